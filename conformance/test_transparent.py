"""A transparent listener: curl and lftp connect to the server's own address, without any setting for a gateway.

The gateways accelerate active and passive transfers. If the far gateway is killed, clients connect directly to the
server within a second.

A killed near gateway blocks no client. Its next start replaces its rules, and `gateway remove-interception` removes
them.
"""

import json
import subprocess
import time

import pytest

import servers
import talk
from files import assert_same, make_file
from world import ADDRESS_B, CLIENT

URL = f"ftp://{ADDRESS_B}/files"
TABLE, MARK = "longhaul_2125", "0x4c48084d"
# A connection without a fault takes less: one round trip for the connection and one for the greeting.
PATIENCE_S = 1.0
SIZE, SMALL_SIZE = 50_000_000, 1_000_000

CURL = {"EPSV": [], "PASV": ["--disable-epsv"], "EPRT": ["-P", "-"], "PORT": ["--disable-eprt", "-P", "-"]}
LFTP = {
    "passive": "set ftp:passive-mode on",
    "passive by EPSV": "set ftp:passive-mode on; set ftp:prefer-epsv on",
    "active from port 20":
        "set ftp:passive-mode off; set ftp:verify-address on; set ftp:verify-port on",
}

pytestmark = pytest.mark.needs("curl", "lftp", "nft")


@pytest.fixture(scope="module", autouse=True)
def network(world, vsftpd):
    """Adds a client in a site c behind site a. Site a forwards its packets to site b."""
    world.add_client()


@pytest.fixture
def pair(world, vsftpd):
    """Starts both gateways, and waits for the interception."""
    world.gateway("b")
    start_near(world)
    yield
    world.stop_pair()
    vsftpd.empty()


@pytest.fixture
def source(world, options):
    make_file(world.path("source"), SIZE // (10 if options.quick else 1))
    return world.path("source")


@pytest.fixture
def small(world):
    make_file(world.path("small"), SMALL_SIZE)
    return world.path("small")


def start_near(world):
    with open(world.path("a.toml"), "w") as config:
        config.write(f'[identity]\nkey_file = "a.key"\n[[peer]]\nname = "site-b"\n'
                     f'public_key = "{world.keys["b"]}"\nendpoint = "{ADDRESS_B}:4810"\n'
                     f'serves = ["{ADDRESS_B}"]\n'
                     f'[[ftp]]\nlisten = "0.0.0.0:2125"\ntransparent = true\n'
                     f'clients = ["{CLIENT}"]\n')
    world.start_gateway("a")
    world.wait(lambda: intercepts(world), "interception", 30)
    servers.forget_transfers(world)


def curl(world, *arguments):
    world.run("curl", "-sS", "--fail", *arguments, site="c", check=True)


def lftp(world, script):
    world.run("lftp", "-c", f"set net:max-retries 1; set cmd:fail-exit true; {script}", site="c",
              check=True, stdout=subprocess.DEVNULL)


def greeting_s(world):
    """Returns the seconds from the start of a connection to the server's greeting."""
    begun = time.monotonic()
    with talk.Client(world, ADDRESS_B, 21, site="c", timeout=10) as client:
        assert client.greeting.code == 220
        return time.monotonic() - begun


def clients(world):
    """Returns the addresses from which vsftpd logged complete transfers."""
    return {line.split('"')[1].removeprefix("::ffff:") for line in servers.transfers(world)
            if "OK UPLOAD" in line or "OK DOWNLOAD" in line}


def rules(world):
    done = world.run("nft", "list", "ruleset", check=True, capture_output=True, text=True)
    return done.stdout


def intercepts(world):
    return TABLE in rules(world) and "expires" in rules(world)


def installed(world):
    """Returns the numbers of the listener's tables and routing rules."""
    listed = world.run("ip", "-json", "rule", check=True, capture_output=True, text=True)
    marks = [rule.get("fwmark") for rule in json.loads(listed.stdout)]
    return rules(world).count(f"table inet {TABLE} "), marks.count(MARK)


def assert_accelerated(world, count):
    """Checks that `count` transfers came through the gateways, and that no transfer came directly."""
    world.wait(lambda: world.status("a")["transfers_completed_total"] == count, f"{count} transfers")
    assert clients(world) == {ADDRESS_B}


@pytest.mark.parametrize("verb", CURL)
def test_curl_is_accelerated(world, vsftpd, pair, source, verb):
    back = world.path("back")
    curl(world, *CURL[verb], "-T", source, f"{URL}/file")
    curl(world, *CURL[verb], "-o", back, f"{URL}/file")
    assert_accelerated(world, 2)
    assert_same(source, vsftpd.file("file"))
    assert_same(source, back)


@pytest.mark.parametrize("mode", LFTP)
def test_lftp_is_accelerated(world, vsftpd, pair, source, mode):
    back = world.path(f"back-{mode}".replace(" ", "-"))
    # One session makes two transfers, and requests no listing.
    lftp(world, f"{LFTP[mode]}; open {ADDRESS_B}; user anonymous x; "
                f"put {source} -o files/file; get files/file -o {back}")
    assert_accelerated(world, 2)
    assert_same(source, vsftpd.file("file"))
    assert_same(source, back)


def test_clients_pass_directly_while_the_far_gateway_is_dead(world, vsftpd, pair, small):
    world.kill("gateway-b")
    begun, slowest = time.monotonic(), 0
    while time.monotonic() - begun < 3:
        slowest = max(slowest, greeting_s(world))
    assert slowest <= PATIENCE_S, f"a new connection was greeted after {slowest:.2f} s"
    for mode, arguments in [("passive", []), ("active", ["-P", "-"])]:
        curl(world, *arguments, "-T", small, f"{URL}/{mode}")
        assert_same(small, vsftpd.file(mode))
    lftp(world, f"open {ADDRESS_B}; get files/active -o {world.path('lftp-back')}")
    assert_same(small, world.path("lftp-back"))
    assert clients(world) == {CLIENT}, "the server sees the client itself"


def test_clients_are_accelerated_again_when_the_far_gateway_is_back(world, vsftpd, pair, small):
    world.kill("gateway-b")
    world.wait(lambda: not intercepts(world), "interception ends", 30)
    world.gateway("b")
    world.wait(lambda: intercepts(world), "interception again", 30)
    curl(world, "-T", small, f"{URL}/small")
    assert clients(world) == {ADDRESS_B}


def test_a_dead_near_gateway_is_in_nobodys_way(world, pair):
    world.kill("gateway-a")
    assert greeting_s(world) <= PATIENCE_S
    assert TABLE in rules(world), "the rules must still exist, and must let clients pass"


def test_the_next_start_replaces_a_dead_gateways_rules(world, pair):
    world.kill("gateway-a")
    assert installed(world) == (1, 1)
    start_near(world)
    assert installed(world) == (1, 1)


def test_a_gateways_end_removes_its_rules(world, pair):
    assert installed(world) == (1, 1)
    world.stop("gateway-a")
    assert installed(world) == (0, 0)


def test_remove_interception_removes_a_dead_gateways_rules(world, pair):
    world.kill("gateway-a")
    assert installed(world) == (1, 1)
    world.run(world.longhaul, "gateway", "remove-interception", "--config", world.path("a.toml"),
              check=True, stdout=subprocess.DEVNULL)
    assert installed(world) == (0, 0)
    assert greeting_s(world) <= PATIENCE_S
