#!/usr/bin/env python3
"""Clients that do not run here, word for word: WinSCP, the ftp.exe of Windows, the ftp of macOS.

Their logons through a front door with and without target, and what they send for a listing, an upload, a
download and the rest; each goes on as its client would after the reply. vsftpd lets its user in at USER,
ProFTPD wants PASS.
"""

import os

import servers as ftp_servers
import talk
from world import ADDRESS_B, check, main, make_file

FAST_DOOR, STRICT_DOOR = 2130, 2140
SIZE = 200_000


class Files:
    """A file, and the server that it goes to."""

    def __init__(self, server, content):
        self.server, self.content = server, content

    def arrived(self, name):
        with open(self.server.file(name), "rb") as file:
            if file.read() != self.content:
                raise talk.Unexpected(f"{name}: another file arrived")

    def came(self, content, name):
        if content != self.content:
            raise talk.Unexpected(f"{name}: another file came")


# Logons. 2yz after USER leaves out PASS.

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


# What follows.

def winscp(client, files, log_in):
    """WinSCP 6, passive: it asks for TYPE A before listings, and for the time after uploads."""
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
    # It keeps the connection busy, and leaves without QUIT.
    client.ask("NOOP", 200)


def windows(client, files, log_in):
    """ftp.exe: OPTS before USER, active only, the old names of commands."""
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
    """tnftp: EPSV first, and EPRT after `passive off`."""
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


def doors_of(servers):
    """The front doors beyond those that every world has, and their ports by mode and server."""
    doors, ports = "", {}
    for mode, first in [("fast", FAST_DOOR), ("strict", STRICT_DOOR)]:
        text, fixed = ftp_servers.doors_of(servers, first)
        text += f'[[ftp]]\nlisten = "127.0.0.1:{first + 9}"\nclients = ["127.0.0.0/8"]\n'
        doors += text.replace("[[ftp]]\n", f'[[ftp]]\nmode = "{mode}"\n')
        ports[mode] = fixed, first + 9
    return doors, ports


def job(world, args):
    servers = {name: server for name, server in ftp_servers.start_all(world).items()
               if name in ("vsftpd", "ProFTPD")}
    make_file(world.path("content"), SIZE)
    content = open(world.path("content"), "rb").read()
    doors, ports = doors_of(servers)
    world.far_allow = ", ".join(f'"{ADDRESS_B}:{server.port}"' for server in servers.values())
    world.gateway("b")
    world.gateway("a", doors)
    world.connected()
    failed = []
    for server in servers.values():
        files = Files(server, content)
        for name, client_of in CLIENTS.items():
            cells = [("directly", ADDRESS_B, server.port, "plain", plain)]
            for mode, (fixed, choice) in ports.items():
                cells.append((mode, "127.0.0.1", fixed[server.name], "plain", plain))
                cells += [(mode, "127.0.0.1", choice, form, log_in)
                          for form, log_in in FORMS[name].items()]
            for way, host, port, form, log_in in cells:
                why = ""
                try:
                    with talk.Client(world, host, port) as client:
                        client_of(client, files, log_in)
                except (talk.Unexpected, OSError) as error:
                    why = str(error)
                    failed.append(f"{name}, {server.name}, {way}, {form}: {why}")
                print(f"  {name:16} {server.name:8} {way:9} {form:18} {why or 'yes'}", flush=True)
                for left in os.listdir(server.file(".")):
                    os.remove(server.file(left))
    check(not failed, f"each sequence runs to its end {'; '.join(failed)}")


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")


if __name__ == "__main__":
    main(job, __doc__, "openssl", extend=extend)
