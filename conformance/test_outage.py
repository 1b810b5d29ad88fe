"""Outages and killed gateways during transfers.

For 20 s, the WAN delivers no packet, an interface is down, or a gateway is stopped. The transfer then continues, and
the hash agrees.

If a gateway is killed, the client gets an error within 2 s of the gateway's restart. The server never reports the
upload as complete, and the transfer can be resumed.
"""

import os
import signal
import subprocess
import time

import pytest

import servers
from files import assert_same, make_file
from world import NEAR_PORT

URL = f"ftp://127.0.0.1:{NEAR_PORT}/files"
PAUSE_S = 20
ERROR_MAX_S = 2
SIZE = 1_000_000_000

# Functions that begin and end each disturbance.
DISTURBANCES = {
    "no packets": (lambda world: world.wan("set", "--outage", "on"),
                   lambda world: world.wan("set", "--outage", "off")),
    "interface down": (lambda world: world.wan("set", "a-to-b", "--interface-down", "on"),
                       lambda world: world.wan("set", "a-to-b", "--interface-down", "off")),
    **{f"gateway {site} stopped": (
        lambda world, site=site: world.processes[f"gateway-{site}"].send_signal(signal.SIGSTOP),
        lambda world, site=site: world.processes[f"gateway-{site}"].send_signal(signal.SIGCONT))
       for site in "ab"},
}

pytestmark = pytest.mark.needs("curl", "lftp")


class Transfer:
    """A curl transfer in progress. A fifth of the file has arrived."""

    def __init__(self, world, source, arrives_at, *arguments):
        self.process = start_curl(world, *arguments)
        fifth = os.path.getsize(source) // 5
        world.wait(lambda: self.process.poll() is not None
                   or os.path.exists(arrives_at) and os.path.getsize(arrives_at) > fifth,
                   "a fifth of the transfer", 60)
        assert self.is_waiting(), f"the transfer ended before the disturbance: {self.process.communicate()[0]}"

    def is_waiting(self):
        return self.process.poll() is None

    def finish(self):
        output, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0, f"curl: {output.strip()}"


def start_curl(world, *arguments):
    return subprocess.Popen(world.inside("a", "curl", "-sS", "--fail", *arguments), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def curl(world, *arguments):
    world.run("curl", "-sS", "--fail", *arguments, check=True)


@pytest.fixture(scope="module")
def source(world, options):
    path = world.path("source")
    make_file(path, SIZE * 3 // 10 if options.quick else SIZE)
    return path


@pytest.fixture
def pair(world, vsftpd):
    """Starts two gateways for one test, and ends the disturbance afterwards."""
    world.pair()
    yield
    world.wan("set", "--outage", "off")
    for name in ("gateway-a", "gateway-b"):
        world.processes[name].send_signal(signal.SIGCONT)
    world.stop_pair()


@pytest.fixture
def upload(world, vsftpd, source, pair):
    """Starts an upload. Yields it with the path of the file at the server."""
    there = vsftpd.file("up")
    yield Transfer(world, source, there, "-T", source, f"{URL}/up"), there
    vsftpd.empty()
    servers.forget_transfers(world)


@pytest.fixture
def download(world, vsftpd, source, pair):
    """Starts a download. Yields it with the path of the local file."""
    back = world.path("back")
    os.link(source, vsftpd.file("down"))
    yield Transfer(world, source, back, "-o", back, f"{URL}/down"), back
    vsftpd.empty()
    os.remove(back)


@pytest.mark.parametrize("direction", ["upload", "download"])
@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_a_transfer_goes_on_after_20_s(request, world, source, disturbance, direction):
    transfer, arrives_at = request.getfixturevalue(direction)
    begin, end = DISTURBANCES[disturbance]
    begin(world)
    time.sleep(1)
    before = os.path.getsize(arrives_at)
    time.sleep(PAUSE_S - 1)
    # While a gateway is stopped, the kernel's buffers on both sides of it still move bytes.
    assert os.path.getsize(arrives_at) < os.path.getsize(source), "the transfer must not end during the disturbance"
    assert transfer.is_waiting(), f"the client waits, {before} bytes after a second"
    end(world)
    transfer.finish()
    assert_same(source, arrives_at)


def error_of(world, transfer, site):
    """Kills a gateway, starts it again, and checks that the client soon gets an error."""
    world.kill(f"gateway-{site}")
    time.sleep(1)
    world.start_gateway(site)
    returned = time.monotonic()
    world.wait(lambda: not transfer.is_waiting(), "the client's error", 10)
    took = time.monotonic() - returned
    output, _ = transfer.process.communicate()
    assert transfer.process.returncode != 0, "the client sees an error"
    assert took <= ERROR_MAX_S, f"{took:.1f} s after the gateway's return: {output.strip()}"
    world.connected()


@pytest.mark.parametrize("site", ["a", "b"])
def test_an_upload_that_a_dead_gateway_cut_is_not_complete_and_resumes(world, source, upload, site):
    transfer, there = upload

    def ended(word):
        return [line for line in servers.transfers(world) if f"{word} UPLOAD" in line and 'up"' in line]

    error_of(world, transfer, site)
    # vsftpd writes its log line after the data connection has ended.
    world.wait(lambda: ended("FAIL") or ended("OK"), "vsftpd's log line of the upload", 30)
    assert not ended("OK"), "vsftpd must not report the upload as complete"
    assert os.path.getsize(there) < os.path.getsize(source)
    curl(world, "-C", "-", "-T", source, f"{URL}/up")
    assert_same(source, there)
    assert ended("OK"), "vsftpd must report the resumed upload as complete"


@pytest.mark.parametrize("site", ["a", "b"])
def test_a_download_that_a_dead_gateway_cut_resumes(world, source, download, site):
    transfer, back = download
    error_of(world, transfer, site)
    cut = os.path.getsize(back)
    assert cut < os.path.getsize(source)
    curl(world, "-C", "-", "-o", back, f"{URL}/down")
    assert_same(source, back)
    os.truncate(back, cut)
    world.run("lftp", "-c", f"open -p {NEAR_PORT} 127.0.0.1; get -c files/down -o {back}", check=True)
    assert_same(source, back)
