"""Command sequences of clients that do not run here: WinSCP, ftp.exe of Windows, and ftp of macOS.

The tests log in directly, and through listeners with and without a target. They send the commands of each client for a
listing, an upload, a download and other operations. After each reply, the script continues as the client would.

vsftpd accepts its user at USER, and ProFTPD requires PASS.
"""

import pytest

import servers
import talk
from files import content, make_file
from world import ADDRESS_B, Path

PATH = Path("300 Mbit/s", "20ms", "0%")
# Port of the first listener with a target, by mode. `CHOICES` has the ports of the listeners without a target.
FIRST_PORTS = {"fast": 2130, "strict": 2140}
CHOICES = {mode: first + 9 for mode, first in FIRST_PORTS.items()}
SERVERS = ["vsftpd", "ProFTPD"]
SIZE = 200_000


class Files:
    """The contents of a file, and the server that receives it."""

    def __init__(self, server, content):
        self.server, self.content = server, content

    def arrived(self, name):
        with open(self.server.file(name), "rb") as file:
            if file.read() != self.content:
                raise talk.Unexpected(f"{name}: another file arrived")

    def came(self, content, name):
        if content != self.content:
            raise talk.Unexpected(f"{name}: another file came")


# Log-ins. After a 2yz reply to USER, the client sends no PASS.

def plain(client, server):
    client.log_in(server.user, server.password)


def user_at_host(client, server):
    client.log_in(f"{server.user}@{place(server)}", server.password)


def site_host(client, server):
    client.ask(f"SITE {place(server)}", 200, 220, 250)
    plain(client, server)


def open_host(client, server):
    client.ask(f"OPEN {place(server)}", 200, 220, 250)
    plain(client, server)


def place(server):
    return ADDRESS_B if server.port == 21 else f"{ADDRESS_B}:{server.port}"


# Commands after the log-in.

def winscp(client, files, log_in):
    """Sends the commands of WinSCP 6 in passive mode: TYPE A before listings, and MDTM after uploads."""
    log_in(client, files.server)
    client.ask("SYST", 215)
    features = client.ask("FEAT")
    if "UTF8" in features:
        client.ask("OPTS UTF8 ON", 200)
    client.ask("PWD", 257)
    client.ask("CWD /files", 250)
    client.ask("PWD", 257)
    client.ask("TYPE A", 200)
    client.download("LIST -a")
    client.ask("TYPE I", 200)
    client.upload("STOR winscp", files.content)
    files.arrived("winscp")
    client.ask("MDTM winscp", 213)
    client.ask("TYPE A", 200)
    if b"winscp" not in client.download("LIST -a"):
        raise talk.Unexpected("LIST: a name is missing")
    client.ask("TYPE I", 200)
    client.ask("SIZE winscp", 213)
    files.came(client.download("RETR winscp"), "winscp")
    client.ask("RNFR winscp", 350)
    client.ask("RNTO winscp 2", 250)
    client.ask("DELE winscp 2", 250)
    # WinSCP keeps the connection alive with NOOP, and leaves without QUIT.
    client.ask("NOOP", 200)


def windows(client, files, log_in):
    """Sends the commands of ftp.exe: OPTS before USER, active mode only, and the old names of commands."""
    client.ask("OPTS UTF8 ON")
    log_in(client, files.server)
    client.ask("XPWD", 257)
    client.ask("CWD files", 250)
    client.download_actively("NLST")
    client.ask("TYPE I", 200)
    client.upload_actively("STOR windows", files.content)
    files.arrived("windows")
    client.ask("TYPE A", 200)
    if b"windows" not in client.download_actively("LIST"):
        raise talk.Unexpected("LIST: a name is missing")
    client.ask("TYPE I", 200)
    files.came(client.download_actively("RETR windows"), "windows")
    client.ask("XMKD folder", 257)
    client.ask("XRMD folder", 250)
    client.ask("RNFR windows", 350)
    client.ask("RNTO windows.txt", 250)
    client.ask("DELE windows.txt", 250)
    client.ask("QUIT", 221)


def macos(client, files, log_in):
    """Sends the commands of tnftp: EPSV first, and EPRT after `passive off`."""
    log_in(client, files.server)
    client.ask("SYST", 215)
    client.ask("FEAT", 211)
    client.ask("PWD", 257)
    client.ask("CWD files", 250)
    client.download("LIST", "EPSV")
    client.ask("TYPE I", 200)
    client.upload("STOR macos", files.content, "EPSV")
    files.arrived("macos")
    client.ask("SIZE macos", 213)
    files.came(client.download("RETR macos", "EPSV"), "macos")
    client.ask("MDTM macos", 213)
    client.ask("TYPE A", 200)
    if b"macos" not in client.download_actively("LIST", "EPRT"):
        raise talk.Unexpected("LIST: a name is missing")
    client.ask("TYPE I", 200)
    client.upload_actively("STOR macos", files.content, "EPRT")
    files.arrived("macos")
    client.ask("RNFR macos", 350)
    client.ask("RNTO macos.txt", 250)
    client.ask("DELE macos.txt", 250)
    client.ask("QUIT", 221)


CLIENTS = {"WinSCP": winscp, "Windows ftp.exe": windows, "macOS ftp": macos}
FORMS = {
    "WinSCP": {"USER name@server": user_at_host, "SITE server": site_host, "OPEN server": open_host},
    "Windows ftp.exe": {"USER name@server": user_at_host},
    "macOS ftp": {"USER name@server": user_at_host},
}

# Client, way and form of log-in. The way is directly or the mode of a listener. The form `plain` uses the listener with
# a target, and other forms use the listener without a target.
CELLS = [(client, way, form) for client, forms in FORMS.items() for way in ("directly", *FIRST_PORTS)
         for form in ("plain", *(forms if way != "directly" else ()))]


class Place:
    """The servers, and the listeners that lead to them, by mode."""

    def __init__(self, world, start_servers):
        self.servers = start_servers(names=SERVERS)
        self.ports, text = {}, ""
        for mode, first in FIRST_PORTS.items():
            listeners, self.ports[mode] = servers.listeners_of(self.servers, first)
            listeners += f'[[ftp]]\nlisten = "127.0.0.1:{CHOICES[mode]}"\nclients = ["127.0.0.0/8"]\n'
            text += listeners.replace("[[ftp]]\n", f'[[ftp]]\nmode = "{mode}"\n')
        world.allowed = [server.place() for server in self.servers.values()]
        world.pair(text)
        make_file(world.path("content"), SIZE)

    def address(self, server, way, form):
        if way == "directly":
            return ADDRESS_B, self.servers[server].port
        return "127.0.0.1", self.ports[way][server] if form == "plain" else CHOICES[way]


@pytest.fixture(scope="module")
def at(world, start_servers):
    return Place(world, start_servers)


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize(("client", "way", "form"), CELLS)
def test_a_clients_words_lead_to_their_end(world, at, client, way, form, name):
    server = at.servers[name]
    log_in = FORMS[client].get(form, plain)
    try:
        with talk.Client(world, *at.address(name, way, form)) as connection:
            CLIENTS[client](connection, Files(server, content(world.path("content"))), log_in)
    finally:
        server.empty()
