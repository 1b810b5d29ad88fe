"""Downloads through a pair of gateways with chunk stores.

A file whose chunks are in the near gateway's store does not cross the WAN again. A client gets the bytes that the
server would send at the same moment.
"""

import json
import os
import subprocess

import pytest

import servers
from files import content, make_file
from world import ADDRESS_B, Path

PATH = Path(rate="1 Gbit/s", rtt="40ms", loss="0")
SIZE, SIZE_QUICK = 1_000_000_000, 100_000_000
SMALL = 3_000_000
# Maximum share of a known file's bytes on the WAN, in both directions together.
CROSSED_MAX = 0.001
FIRST_PORT = 2150
NAMES = ["vsftpd", "ProFTPD", "Pure-FTPd", "pyftpdlib"]


@pytest.fixture(scope="module")
def pair(world):
    """Starts the servers, a listener for each server, and both gateways with stores."""
    running = servers.start_all(world, names=NAMES)
    world.allowed += [server.place() for server in running.values()]
    for site in ("a", "b"):
        os.makedirs(world.path(f"store-{site}"))
    store = '[store]\nfolder = "{}"\n'
    listeners = {name: FIRST_PORT + at for at, name in enumerate(running)}
    sections = [f'[[ftp]]\nlisten = "127.0.0.1:{listeners[name]}"\ntarget = "{server.place()}"\ncache = true\n'
                for name, server in running.items()]
    world.gateway("b", store.format(world.path("store-b")))
    world.gateway("a", store.format(world.path("store-a")) + "".join(sections))
    world.connected()
    yield {name: (server, listeners[name]) for name, server in running.items()}
    world.stop_pair()


@pytest.fixture(params=NAMES)
def way(request, pair):
    return pair[request.param]


def curl(world, server, host, port, name, *options, site="a"):
    """Downloads a file. Returns the file's bytes, or curl's exit code."""
    back = world.path("back")
    if "-C" not in options and os.path.exists(back):
        os.remove(back)
    url = f"ftp://{host}:{port}{server.folder}/{name}"
    done = world.run("curl", "-sS", "-u", f"{server.user}:{server.password}", *options, "-o", back, url, site=site,
                     capture_output=True)
    return content(back) if done.returncode == 0 else done.returncode


def both(world, way, name, *options):
    """Downloads a file through the pair and directly in the server's site. Returns both results."""
    server, listener = way
    through = curl(world, server, "127.0.0.1", listener, name, *options)
    beside = curl(world, server, ADDRESS_B, server.port, name, *options, site="b")
    return through, beside


def place(server, name, data, time_s=None):
    path = server.file(name)
    with open(path, "wb") as file:
        file.write(data)
    os.chmod(path, 0o644)
    if time_s is not None:
        os.utime(path, (time_s, time_s))
    return path


def crossed_bytes(world):
    """Returns the bytes on the WAN in both directions, as the emulator counts them."""
    shown = subprocess.run([world.longhaul, "wan", "--name", world.name, "show", "--json"], check=True,
                           capture_output=True, text=True)
    counters = json.loads(shown.stdout)
    return sum(counters[way]["counters"]["sent_bytes"] for way in ("a_to_b", "b_to_a"))


def saved_bytes(world):
    return world.status("a")["optimiser"]["deduplication_saved_bytes"]


def test_a_file_crosses_the_wan_once(world, pair, options, capsys):
    server, listener = pair["vsftpd"]
    size = SIZE_QUICK if options.quick else SIZE
    make_file(server.file("film"), size)
    shares = []
    for _ in range(3):
        before = crossed_bytes(world)
        back = curl(world, server, "127.0.0.1", listener, "film")
        shares.append((crossed_bytes(world) - before) / size)
        assert back == content(server.file("film"))
    with capsys.disabled():
        print("  share on the WAN:", ", ".join(f"{share:.3%}" for share in shares), flush=True)
    os.remove(server.file("film"))
    assert shares[0] >= 1
    assert max(shares[1:]) <= CROSSED_MAX


def test_a_file_that_has_changed_is_another_one_even_in_the_same_second(world, way):
    server, _ = way
    first, second = os.urandom(SMALL), os.urandom(SMALL)
    before = saved_bytes(world)
    for turn, data in enumerate([first, first, second, first]):
        path = place(server, "changing", data, 1_700_000_000)
        assert os.path.getsize(path) == SMALL
        through, beside = both(world, way, "changing")
        assert through == beside == data, f"turn {turn}"
    assert saved_bytes(world) - before > SMALL, "the stores were in use"


def test_rights_are_those_of_this_moment(world, way):
    server, _ = way
    data = os.urandom(SMALL)
    path = place(server, "private", data)
    assert both(world, way, "private") == (data, data)
    os.chmod(path, 0)
    if server.name == "pyftpdlib":
        # pyftpdlib runs as root here, so it can read every file.
        os.remove(path)
    through, beside = both(world, way, "private")
    assert isinstance(beside, int) and through == beside
    assert not os.path.exists(world.path("back")) or content(world.path("back")) == b""


def test_a_part_is_that_part(world, way):
    server, listener = way
    data = os.urandom(SMALL)
    place(server, "parts", data)
    assert both(world, way, "parts") == (data, data)
    for options in (["-r", "1000000-"], ["-r", "2999999-"], ["-r", "0-999999"]):
        through, beside = both(world, way, "parts", *options)
        assert through == beside, options
    with open(world.path("back"), "wb") as file:
        file.write(data[:1_234_567])
    assert curl(world, server, "127.0.0.1", listener, "parts", "-C", "-") == data


def test_text_is_what_the_server_makes_of_it(world, way):
    server, _ = way
    place(server, "text", b"".join(b"line %d of a text\n" % number for number in range(100_000)))
    for options in ([], ["-B"], ["-B"], []):
        through, beside = both(world, way, "text", *options)
        assert through == beside, options


def test_without_its_server_nothing_is_served(world, pair):
    server, listener = pair["vsftpd"]
    data = os.urandom(SMALL)
    place(server, "gone", data)
    assert curl(world, server, "127.0.0.1", listener, "gone") == data
    world.kill("vsftpd")
    assert isinstance(curl(world, server, "127.0.0.1", listener, "gone"), int)
    assert not os.path.exists(world.path("back"))
