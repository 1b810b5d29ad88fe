"""Silence towards strangers: the gateway ignores every datagram that no known peer can have sent.

The tests use a wrong key, an unknown peer, a port scan, and replayed and damaged handshakes. As a control, the same
sender sends a new handshake of the known peer, and the gateway answers it.
"""

import os
import socket
import struct
import threading
import time

import pytest

from world import ADDRESS_A, ADDRESS_B

PORT = 4810
# Several round trips of the path.
PATIENCE_S = 3
LOG_LINES_MAX = 60
# Number of datagrams with which a handshake begins, and number of replayed datagrams.
FLIGHT, REPLAYED = 2, 50
ETH_P_ALL = 3


class Sniffer(threading.Thread):
    """A thread that records the UDP payloads to and from port 4810 in a site, with their source addresses."""

    def __init__(self, world, site):
        super().__init__(daemon=True)
        with world.entered(site):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(ETH_P_ALL))
        self.socket.settimeout(0.1)
        self.seen, self.is_over = [], False

    def run(self):
        while not self.is_over:
            try:
                packet = self.socket.recv(65535)
            except TimeoutError:
                continue
            if packet[0] >> 4 != 4 or packet[9] != socket.IPPROTO_UDP:
                continue
            head = (packet[0] & 15) * 4
            if PORT in struct.unpack(">HH", packet[head:head + 4]):
                self.seen.append((socket.inet_ntoa(packet[12:16]), packet[head + 8:]))

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self.is_over = True
        self.join()
        self.socket.close()

    def sent_by(self, address):
        return [payload for source, payload in self.seen if source == address]


def send(world, payloads):
    """Sends datagrams from a new port in site a to gateway b. Returns the number of answers."""
    with world.entered("a"):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    answers = 0
    with sender:
        sender.settimeout(PATIENCE_S)
        sender.connect((ADDRESS_B, PORT))
        for payload in payloads:
            sender.send(payload)
        try:
            while True:
                sender.recv(65535)
                answers += 1
        except (TimeoutError, ConnectionRefusedError):
            return answers


def dropped(world):
    return world.status("b")["dropped"]


def assert_unanswered(world, payloads, *reasons):
    """Checks that gateway b sends no answer, and that it counts dropped datagrams."""
    before = dropped(world)
    assert send(world, payloads) == 0
    after = dropped(world)
    assert sum(after[reason] - before[reason] for reason in reasons or before) > 0, "the drops must be counted"


@pytest.fixture
def responder(world):
    world.gateway("b")
    yield
    world.stop("gateway-b")


@pytest.fixture
def first_flight(world, responder):
    """Returns the datagrams with which the known peer begins a handshake. Gateway b has not received them."""
    world.wan("set", "--outage", "on")
    with Sniffer(world, "a") as sniffer:
        world.gateway("a")
        world.wait(lambda: len(sniffer.sent_by(ADDRESS_A)) >= FLIGHT, "a first flight")
    world.kill("gateway-a")
    world.wan("set", "--outage", "off")
    return sniffer.sent_by(ADDRESS_A)[:FLIGHT]


def remembered(world):
    """Returns gateway b's record of handshakes, which it reads after a restart, or None."""
    try:
        with open(world.path("b.key.replay")) as file:
            return file.read()
    except FileNotFoundError:
        return None


@pytest.fixture
def recorded(world, responder):
    """Yields datagrams of the known peer that gateway b has received and answered. The link is up."""
    before = remembered(world)
    with Sniffer(world, "b") as sniffer:
        world.gateway("a")
        world.connected()
        world.wait(lambda: len(sniffer.sent_by(ADDRESS_A)) > 2, "datagrams of the known peer")
    assert sniffer.sent_by(ADDRESS_B), "the known peer is answered"
    world.wait(lambda: remembered(world) != before, "gateway b's record of the handshake on disk")
    yield sniffer.sent_by(ADDRESS_A)
    world.stop("gateway-a")


def test_a_fresh_first_flight_is_answered_and_its_replay_is_not(world, first_flight):
    assert send(world, first_flight) > 0
    assert send(world, first_flight) == 0


def test_an_unknown_gateway_is_not_answered(world, responder):
    os.rename(world.path("a.key"), world.path("known.key"))
    try:
        world.keygen("a")
        before = dropped(world)
        with Sniffer(world, "b") as sniffer:
            world.gateway("a")
            time.sleep(PATIENCE_S)
        assert sniffer.sent_by(ADDRESS_A), "its datagrams arrive"
        assert not sniffer.sent_by(ADDRESS_B), "nothing answers them"
        assert dropped(world)["unknown_key"] > before["unknown_key"]
        assert world.status("a")["peers"][0]["state"] == "never-answered"
        world.kill("gateway-a")
    finally:
        os.replace(world.path("known.key"), world.path("a.key"))
    begun = time.monotonic()
    world.gateway("a")
    world.connected()
    assert time.monotonic() - begun < PATIENCE_S, "the known gateway is answered in that time"
    world.stop("gateway-a")


def test_a_gateway_with_a_wrong_key_for_its_peer_is_not_answered(world, responder):
    right = world.keys["b"]
    before = dropped(world)
    try:
        world.keys["b"] = world.keygen("other")
        world.gateway("a")
    finally:
        world.keys["b"] = right
    time.sleep(PATIENCE_S)
    after = dropped(world)
    assert sum(after[reason] - before[reason] for reason in ("unknown_key", "bad_mac")) > 0
    assert world.status("a")["peers"][0]["state"] == "never-answered"
    world.kill("gateway-a")
    begun = time.monotonic()
    world.gateway("a")
    world.connected()
    assert time.monotonic() - begun < PATIENCE_S, "with the right key it is answered in that time"
    world.stop("gateway-a")


def test_replayed_datagrams_are_not_answered_and_the_link_stays_up(world, recorded):
    assert_unanswered(world, recorded[:REPLAYED])
    assert world.is_connected()


def test_replayed_datagrams_are_not_answered_after_a_restart_either(world, recorded):
    world.kill("gateway-a")
    world.kill("gateway-b")
    world.gateway("b")
    assert_unanswered(world, recorded[:REPLAYED], "replayed")


def test_damaged_first_flights_are_not_answered(world, first_flight):
    first, *rest = first_flight
    damaged = []
    for at in range(0, len(first), max(1, len(first) // 200)):
        flipped = bytearray(first)
        flipped[at] ^= 0x40
        damaged.append(bytes(flipped))
    assert_unanswered(world, [*damaged, *rest])
    assert send(world, first_flight) > 0, "undamaged it is answered"


def test_a_port_scan_is_not_answered_and_does_not_fill_the_log(world, recorded):
    lines = world.log("gateway-b").count("\n")
    noise = [os.urandom(size) for size in (1, 2, 8, 20, 64, 200, 1200, 1400) for _ in range(20)]
    assert_unanswered(world, noise)
    told = [line for line in world.log("gateway-b").splitlines()[lines:] if "drop" in line.lower()]
    assert 0 < len(told) < LOG_LINES_MAX, "the rate of its log lines is limited"
    assert world.is_connected()
