"""Wrong configurations: the gateway reports the file, the line, the column and the expected input, and exits with 2."""

import os
import re

import pytest

# Text after the five valid lines of `good`, the lowest line number that the message may contain, and a word of the
# message.
WRONG = {
    "unknown key": ('[link]\nlisten_on = "x"\n', 7, "listen"),
    "wrong type": ("[link]\nlisten = 4810\n", 7, "expected"),
    "unknown policy": ('[link]\npolicy = "greedy"\n', 7, "background"),
    "unknown mode": ('[[ftp]]\nlisten = "127.0.0.1:1"\ntarget = "10.0.0.1"\nmode = "fastest"\n', 9, "fast"),
    "odd target": ('[[ftp]]\nlisten = "127.0.0.1:1"\ntarget = "0x7f.1"\n', 8, "0x7f.1"),
    "no end of a list": ("[far]\nallow = [\n", 7, ""),
}


def good(world):
    return f'[identity]\nkey_file = "a.key"\n[[peer]]\nname = "b"\npublic_key = "{world.keys["b"]}"\n'


def check(world, text):
    path = world.path("checked.toml")
    with open(path, "w") as config:
        config.write(text)
    return world.run(world.longhaul, "gateway", "check", "--config", path, capture_output=True, text=True)


def assert_refused(world, text, line, word):
    done = check(world, text)
    assert done.returncode == 2
    place = re.match(re.escape(world.path("checked.toml")) + r":(\d+):(\d+): ", done.stderr)
    assert place, done.stderr
    assert int(place[1]) >= line
    assert word in done.stderr


def test_a_good_configuration_is_accepted(world):
    assert check(world, good(world)).returncode == 0


@pytest.mark.parametrize("what", WRONG)
def test_what_is_wrong_is_named_with_its_place(world, what):
    text, line, word = WRONG[what]
    assert_refused(world, good(world) + text, line, word)


def test_a_missing_key_file_is_named_with_its_place(world):
    assert_refused(world, good(world).replace("a.key", "none.key"), 2, "none.key")


def test_a_key_file_that_others_can_read_is_refused(world):
    os.chmod(world.path("a.key"), 0o640)
    try:
        assert check(world, good(world)).returncode == 2
    finally:
        os.chmod(world.path("a.key"), 0o600)
    assert check(world, good(world)).returncode == 0
