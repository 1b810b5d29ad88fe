#!/usr/bin/env python3
"""Silence towards strangers, and plain words towards users.

No datagram that no known peer could have sent is answered: wrong key, unknown peer, port scan,
replayed and damaged first flights. Wrong configurations name file, line, column and what was
expected, and exit 2. Targets that are not allowed get a 5yz reply, servers that are down a 4yz, and
a peer that is down a 421 with its name and the time of its last answer.
"""

import os
import re
import socket
import struct
import subprocess
import sys
import time

from world import ADDRESS_A, ADDRESS_B, CHOICE, DOOR, Failure, check, main

# Runs inside a site: records UDP payloads to or from port 4810 for some seconds, as hex lines.
SNIFF = r"""
import socket, struct, sys, time
sniffer = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(3))
sniffer.settimeout(0.2)
end = time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    try: packet = sniffer.recv(65535)
    except TimeoutError: continue
    if packet[0] >> 4 != 4 or packet[9] != 17: continue
    head = (packet[0] & 15) * 4
    source, to = struct.unpack(">HH", packet[head:head + 4])
    if 4810 in (source, to):
        print(socket.inet_ntoa(packet[12:16]), source, to, packet[head + 8:].hex(), flush=True)
"""

# Runs inside a site: sends hex lines from stdin, and says how many datagrams came back.
SEND = r"""
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.settimeout(3)
sender.connect((sys.argv[1], 4810))
for line in sys.stdin:
    sender.send(bytes.fromhex(line))
answers = 0
try:
    while True:
        sender.recv(65535); answers += 1
except (TimeoutError, ConnectionRefusedError): pass
print(answers)
"""

# Runs inside a site: a control connection, one line from stdin at a time, replies to stdout.
TALK = r"""
import socket, sys
control = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30)
control.settimeout(30)
lines = control.makefile("r", newline="\n")
print(lines.readline().strip(), flush=True)
for command in sys.stdin:
    control.sendall(command.strip().encode() + b"\r\n")
    print(lines.readline().strip(), flush=True)
"""


def job(world, args):
    configurations(world)
    strangers(world)
    words(world)


def configurations(world):
    print("wrong configurations")
    good = f'[identity]\nkey_file = "a.key"\n[[peer]]\nname = "b"\npublic_key = "{world.keys["b"]}"\n'
    for text, line, word in [
        (good + '[link]\nlisten_on = "x"\n', 7, "listen"),
        (good + '[link]\nlisten = 4810\n', 7, "expected"),
        (good + '[link]\npolicy = "greedy"\n', 7, "background"),
        (good + '[[ftp]]\nlisten = "127.0.0.1:1"\ntarget = "10.0.0.1"\nmode = "fast"\n', 9,
         "does not exist yet"),
        (good + '[[ftp]]\nlisten = "127.0.0.1:1"\ntarget = "0x7f.1"\n', 8, "0x7f.1"),
        (good + "[far]\nallow = [\n", 7, ""),
        ('[identity]\nkey_file = "none.key"\n', 2, "none.key"),
    ]:
        path = world.path("wrong.toml")
        with open(path, "w") as config:
            config.write(text)
        done = subprocess.run([world.longhaul, "gateway", "--config", path, "--check"],
                              capture_output=True, text=True)
        where = re.match(re.escape(path) + r":(\d+):(\d+): ", done.stderr)
        check(done.returncode == 2, f"exit code 2: {done.stderr.strip().splitlines()[0]}")
        check(where and int(where[1]) >= line and word in done.stderr, f"line {line}, {word!r}")
    os.chmod(world.path("a.key"), 0o640)
    done = subprocess.run([world.longhaul, "gateway", "--config", path, "--check"],
                          capture_output=True, text=True)
    os.chmod(world.path("a.key"), 0o600)
    check(done.returncode == 2, "a readable key file is refused")


def strangers(world):
    print("strangers")
    world.gateway("b")
    own_key = world.path("a.key")

    def dropped():
        return world.status("b")["dropped"]

    def counted(before, *reasons):
        after = dropped()
        return sum(after[r] - before[r] for r in reasons)

    def send(payloads):
        done = world.run(sys.executable, "-c", SEND, ADDRESS_B, check=True, capture_output=True,
                         text=True, input="".join(p + "\n" for p in payloads))
        return int(done.stdout)

    # A peer that site-b does not know.
    os.rename(own_key, world.path("known.key"))
    world.keygen("a")
    sniffer = subprocess.Popen(world.inside("b", sys.executable, "-c", SNIFF, "6"),
                               stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    before = dropped()
    stranger = world.gateway("a")
    seen = [line.split() for line in sniffer.communicate(timeout=30)[0].splitlines()]
    check(any(line[0] == ADDRESS_A for line in seen), "an unknown gateway's datagrams arrive")
    check(not any(line[0] == ADDRESS_B for line in seen), "nothing answers it")
    check(counted(before, "unknown_key") > 0, "they are counted as unknown_key")
    status = world.status("a")["peers"][0]
    check(status["state"] == "never-answered", "its own status: never answered")
    stranger.kill()
    stranger.wait()

    # The known gateway has a wrong key for site-b: nobody can read its first flight.
    os.rename(world.path("known.key"), own_key)
    right = world.keys["b"]
    world.keys["b"] = world.keygen("other")
    before = dropped()
    mistaken = world.gateway("a")
    time.sleep(3)
    check(sum(counted(before, r) for r in ("unknown_key", "bad_mac")) > 0, "wrong key: counted")
    check(world.status("a")["peers"][0]["state"] == "never-answered", "wrong key: no answer")
    mistaken.kill()
    mistaken.wait()
    world.keys["b"] = right

    # First flights of the known peer, replayed and damaged.
    sniffer = subprocess.Popen(world.inside("b", sys.executable, "-c", SNIFF, "6"),
                               stdout=subprocess.PIPE, text=True)
    time.sleep(0.5)
    known = world.gateway("a")
    world.connected()
    seen = [line.split() for line in sniffer.communicate(timeout=30)[0].splitlines()]
    ours = [line[3] for line in seen if line[0] == ADDRESS_A]
    check(ours, "the known gateway's datagrams are recorded")
    before = dropped()
    check(send(ours[:50]) == 0, "replayed datagrams, first flight included, are not answered")
    check(counted(before, *before) > 0, "and counted")
    first = bytes.fromhex(ours[0])
    damaged = []
    for at in range(0, len(first), max(1, len(first) // 200)):
        flipped = bytearray(first)
        flipped[at] ^= 0x40
        damaged.append(flipped.hex())
    before = dropped()
    check(send(damaged) == 0, f"{len(damaged)} damaged first flights are not answered")
    check(counted(before, *before) > 0, "and counted")
    before = dropped()
    noise = [os.urandom(n).hex() for n in (1, 2, 8, 20, 64, 200, 1200, 1400) for _ in range(20)]
    check(send(noise) == 0, "a port scan is not answered")
    check(counted(before, *before) > 0, "and counted")
    check(world.status("a")["peers"][0]["state"] == "up", "the link of the known peer stays up")
    with open(world.path("gateway-b.log"), errors="replace") as log:
        lines = [line for line in log if "drop" in line.lower()]
    check(0 < len(lines) < 60, f"{len(lines)} log lines tell of it: their rate is limited")
    known.kill()
    known.wait()

    # The same after a restart of the gateway that got them.
    responder = world.processes["gateway-b"]
    responder.kill()
    responder.wait()
    world.gateway("b")
    before = dropped()
    check(send(ours[:50]) == 0, "after a restart of the responder they are not answered either")
    check(counted(before, "replayed") > 0, "and counted as replayed")


def words(world):
    print("words to users")
    world.gateway("a")
    world.connected()

    def talk(port, *commands):
        done = world.run(sys.executable, "-c", TALK, str(port), capture_output=True, text=True,
                         input="".join(c + "\n" for c in commands))
        return done.stdout.splitlines()

    odd = ["10.77.0.3", f"{ADDRESS_B}:22", "127.0.0.1", "127.0.0.1:2199", "localhost", "0x7f.1",
           "0x7f000001", "2130706433", "127.1", "0177.0.0.1", "[::1]", "[::ffff:127.0.0.1]",
           f"[::ffff:{ADDRESS_B}]", "169.254.1.1", "[fe80::1]", "0.0.0.0", "[::]", "224.0.0.1",
           "10.77.0.2.", "fe80::1%lo"]
    replies = talk(CHOICE, *[f"USER anonymous@{target}" for target in odd])[1:]
    check(len(replies) == len(odd), "the session survives every refusal")
    for target, reply in zip(odd, replies):
        check(re.match("5\\d\\d ", reply) and "not allowed" in reply, f"{target}: {reply}")
    reply = talk(CHOICE, f"USER anonymous@{ADDRESS_B}:2199")[1]
    check(reply.startswith("4"), f"server down: {reply}")
    reply = talk(CHOICE, f"USER anonymous@{ADDRESS_B}")[1]
    check(reply[:3] in ("230", "331"), f"server up: {reply}")

    world.processes["gateway-b"].kill()
    world.processes["gateway-b"].wait()
    print("  waiting until the peer counts as silent")

    def greeting():
        return next(iter(talk(DOOR)), "no greeting")

    deadline = time.monotonic() + 60
    while not (reply := greeting()).startswith("421"):
        if time.monotonic() > deadline:
            raise Failure(f"peer down: {reply!r}")
        time.sleep(1)
    check("site-b" in reply and f"{ADDRESS_B}:4810" in reply, f"peer down: {reply}")
    check(re.search(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", reply), "the time of its last answer")


if __name__ == "__main__":
    main(job, __doc__)
