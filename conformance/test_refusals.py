"""Replies that state the reason of a refusal.

A target that is not allowed causes a 5yz reply, and a server that is down a 4yz reply. A peer that is down causes a 421
reply with the peer's name and the time of its last answer.
"""

import re

import pytest

import talk
from world import ADDRESS_B, CHOICE, NEAR_PORT, NOBODY

ODD = ["10.77.0.3", f"{ADDRESS_B}:22", "127.0.0.1", "127.0.0.1:2199", "localhost", "0x7f.1", "0x7f000001",
       "2130706433", "127.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]", f"[::ffff:{ADDRESS_B}]",
       "169.254.1.1", "[fe80::1]", "0.0.0.0", "[::]", "224.0.0.1", "10.77.0.2.", "fe80::1%lo"]


@pytest.fixture(scope="module", autouse=True)
def pair(world, vsftpd):
    world.pair()


@pytest.fixture
def client(world):
    with talk.Client(world, "127.0.0.1", CHOICE) as client:
        yield client


@pytest.mark.parametrize("target", ODD)
def test_a_target_that_is_not_allowed_is_refused_for_good(client, target):
    reply = client.ask(f"USER anonymous@{target}")
    assert reply.code // 100 == 5 and "not allowed" in reply
    assert client.ask(f"USER anonymous@{ADDRESS_B}").code in (230, 331), "the session survives the refusal"


def test_a_server_that_is_down_is_refused_for_now(client):
    assert client.ask(f"USER anonymous@{NOBODY}").code // 100 == 4


def test_a_server_that_is_up_lets_its_user_in(client):
    assert client.ask(f"USER anonymous@{ADDRESS_B}").code in (230, 331)


def test_a_peer_that_is_down_is_named_with_the_time_of_its_last_answer(world):
    with talk.Client(world, "127.0.0.1", NEAR_PORT) as client:
        assert client.greeting.code == 220
    world.kill("gateway-b")
    greetings = []

    def is_told():
        with talk.Client(world, "127.0.0.1", NEAR_PORT) as client:
            greetings.append(client.greeting)
        return greetings[-1].code == 421

    try:
        world.wait(is_told, "the peer counts as silent", 60)
    finally:
        world.gateway("b")
    assert "site-b" in greetings[-1] and f"{ADDRESS_B}:4810" in greetings[-1]
    assert re.search(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", greetings[-1])
