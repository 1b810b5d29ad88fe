"""FileZilla in its real window, with vsftpd and ProFTPD, without TLS and with TLS.

FileZilla uploads twenty files and downloads twenty files over its ten connections. The hashes must agree. The test
keeps pictures of the last windows in target/.
"""

import pytest

import servers
import window
from world import Path

PATH = Path("300 Mbit/s", "20ms", "0%")
FIRST_PORTS = {"without TLS": 2130, "with TLS": 2140}
SERVERS = ["vsftpd", "ProFTPD"]
FILES, FILE_BYTES = 20, 200_000

pytestmark = pytest.mark.needs(*window.PROGRAMS)


class Place:
    """The servers, their listeners, and a display."""

    def __init__(self, world, start_servers):
        self.servers, self.ports, text = start_servers(names=SERVERS), {}, ""
        for tls, first in FIRST_PORTS.items():
            listeners, self.ports[tls] = servers.listeners_of(self.servers, first, tls == "with TLS")
            text += listeners
        world.allowed = [server.place() for server in self.servers.values()]
        world.pair(text)
        self.display = window.start_display(world)


@pytest.fixture(scope="module")
def at(world, start_servers):
    return Place(world, start_servers)


@pytest.mark.parametrize("tls", FIRST_PORTS)
@pytest.mark.parametrize("name", SERVERS)
def test_twenty_files_go_up_and_down_in_the_window(world, at, name, tls):
    server = at.servers[name]
    url = f"ftp://{server.user}:{server.password}@127.0.0.1:{at.ports[tls][name]}{server.folder}"
    shown = window.Window(world, at.display, f"{name} {tls}".replace(" ", "-"), url)
    window.move(shown, server, FILES, FILE_BYTES)
