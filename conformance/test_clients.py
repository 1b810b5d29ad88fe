"""Real clients with real servers through a pair of gateways.

The data connections are passive and active. TLS protects the client's leg, the server's leg, both legs or no leg. Every
client lists, uploads, downloads, renames and deletes files, if it has the command. The hashes must agree.

If a client fails, the test repeats the attempt without the gateways. If the client also fails directly, the fault is in
the client or the server, and the test counts as skipped. `--write` writes the table into docs/clients.md.
"""

import shutil
import warnings

import pytest

import pages
import servers
from clients import CLIENTS, PROGRAMS, WITH_TLS, Cell, attempt, suppaftp_program
from files import make_file
from world import ADDRESS_B, Path

PATH = Path("300 Mbit/s", "20ms", "0%")
FIRST_PORT = 2130
SIZE = 300_000
SERVERS = ["vsftpd", "ProFTPD", "Pure-FTPd", "pyftpdlib", servers.FILEZILLA]

# Legs by name: whether the client uses TLS, and whether the server uses TLS.
LEGS = {"none": (False, False), "client": (True, False), "server": (False, True), "both": (True, True)}
ROWS = [(client, legs, mode) for client in CLIENTS for legs, (with_client, _) in LEGS.items()
        if client in WITH_TLS or not with_client for mode in ("passive", "active")]


class Place:
    """All servers with and without TLS, and a listener for each server and each choice of legs."""

    def __init__(self, world, start_servers):
        self.servers = {tls: start_servers(tls=tls) for tls in (False, True)}
        self.ports, text = {}, ""
        for number, (legs, (client_tls, server_tls)) in enumerate(LEGS.items()):
            listeners, self.ports[legs] = servers.listeners_of(self.servers[server_tls], FIRST_PORT + 10 * number,
                                                       client_tls)
            text += listeners
        world.allowed = [server.place() for some in self.servers.values() for server in some.values()]
        world.pair(text)
        make_file(world.path("local"), SIZE)


@pytest.fixture(scope="module")
def place(world, start_servers):
    return Place(world, start_servers)


@pytest.fixture(scope="module")
def table(options):
    """Yields a dictionary of the verdict and the reason of a failure, by client, legs, mode and server.

    With `--write`, writes it at the end.
    """
    table = {}
    yield table
    if options.write:
        whole = {(*row, server) for row in ROWS for server in SERVERS}
        if set(table) != whole:
            warnings.warn(f"not written: {len(table)} of {len(whole)} cells were tried")
        else:
            write(table)


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize(("client", "legs", "mode"), ROWS)
def test_a_client_does_through_the_pair_what_it_does_directly(world, place, table, client, legs, mode,
                                                              server):
    program = PROGRAMS.get(client)
    if program is not None and shutil.which(program) is None:
        pytest.skip(f"not installed: {program}")
    if client == "suppaftp":
        suppaftp_program()
    client_tls, server_tls = LEGS[legs]
    through = Cell(world, place.servers[server_tls][server], "127.0.0.1", place.ports[legs][server],
                   mode == "active", client_tls)
    why = attempt(through, client)
    verdict = "yes"
    if why is not None:
        # In the direct attempt, a client with TLS connects to a server with TLS.
        itself = place.servers[client_tls][server]
        direct = attempt(Cell(world, itself, ADDRESS_B, itself.port, mode == "active", client_tls), client)
        verdict = "no" if direct is None else "not directly either"
    table[client, legs, mode, server] = verdict, why
    if verdict == "not directly either":
        pytest.skip(f"not directly either: {why}")
    assert verdict == "yes", why


FAILURES = {"no": "the test fails only with gateways",
            "not directly either": "the test also fails without gateways"}
TLS = {"none": "no TLS", "client": "TLS at the client", "server": "TLS at the server",
       "both": "TLS at client and server"}


def write(table):
    lines = ["# Clients and servers", "",
             "The command `cargo xtask conformance clients -- --write` writes this page. The command runs FTP programs",
             "from Debian 12, with a pair of gateways between client and server. The gateways communicate over an",
             "emulated WAN of 20 ms. Each client uploads, lists, downloads, renames and deletes a file, and the test",
             "compares the hashes of the files. There are two exceptions: wget only downloads, and the commands of ncftp",
             "neither rename nor delete files. All TLS is explicit TLS. With TLS, all servers also require TLS on data",
             "connections. All servers except Pure-FTPd and pyftpdlib also require that each data connection resumes",
             "the TLS session of the control connection. The listeners of the near gateway do not require that data",
             "connections resume a session (`require_reuse = false`). With the default `true`, Python's ftplib fails",
             "with `426` if the column `TLS with` contains `client` or `both`. The reason is explained in",
             "[FTPS](how-to/ftps.md#clients-that-cannot-resume-tls-sessions). FileZilla Server is not available on",
             "Debian. In the test, a script that sends the same replies replaces FileZilla Server.", "",
             *pages.table(["client", "TLS with", "data connections", *SERVERS],
                          [(*row, *(table[(*row, server)][0] for server in SERVERS)) for row in ROWS]), "",
             "`cargo xtask conformance filezilla` tests the graphical program FileZilla 3.63. FileZilla uploads twenty",
             "files, downloads twenty files, and uses ten connections. The test runs with vsftpd and with ProFTPD,",
             "without TLS and with TLS ([picture](results/filezilla.png)).", "",
             "The following list contains each combination of client and server that failed. Most of these combinations",
             "also fail without gateways.", "",
             *(f"- {client} and {server}, {mode} data connections, {TLS[legs]}: {FAILURES[verdict]}. Error: {why}"
               for (client, legs, mode, server), (verdict, why) in table.items() if verdict != "yes")]
    pages.write_text("docs/clients.md", lines)
