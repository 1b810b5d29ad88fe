#!/usr/bin/env python3
"""Clients and servers that mean harm, and what becomes of it: each attack runs while another user, at
another address, logs in, uploads and downloads. His transfers must succeed in about their usual time,
no gateway may take much memory or die, and no secret may stand in a log.
"""

import os
import resource
import socket
import subprocess
import sys
import threading
import time

from world import ADDRESS_B, ROOT, check, main

DOOR, SCRIPTED_DOOR, SCRIPTED_PORT = 2121, 2124, 2198
SECRET = "hunter2hunter2"
MEMORY_MAX_MB = 400
GOT_MAX = 160

# What the other user does, and how long it took.
USER = r"""
import ftplib, io, os, sys, time
begun = time.monotonic()
ftp = ftplib.FTP(timeout=60, source_address=("127.0.0.2", 0)); ftp.connect("127.0.0.1", int(sys.argv[1]))
ftp.login("anonymous", "x"); ftp.cwd("files")
data = os.urandom(2_000_000); name = "other%d" % os.getpid()
ftp.storbinary("STOR " + name, io.BytesIO(data))
back = bytearray(); ftp.retrbinary("RETR " + name, back.extend)
assert bytes(back) == data, "the same bytes"
ftp.delete(name); ftp.quit()
print("%.2f" % (time.monotonic() - begun))
"""

# Runs inside site a, one attack by name; prints what came of it.
ATTACKS = r'''
import os, socket, sys, time
name, door = sys.argv[1], int(sys.argv[2])
SECRET = "hunter2hunter2"

def connect(port=door, timeout=10):
    s = socket.create_connection(("127.0.0.1", port), timeout)
    return s

def line(s):
    out = b""
    while not out.endswith(b"\n"):
        b = s.recv(1)
        if not b: return out + b"(end)"
        out += b
    return out

def say(s, text):
    s.sendall(text if isinstance(text, bytes) else text.encode() + b"\r\n")
    return line(s).decode(errors="replace").strip()

def login(s):
    line(s); say(s, "USER anonymous")
    return s

def bounce():
    s = login(connect())
    return [say(s, "PORT 10,77,0,2,0,22"), say(s, "PORT 127,0,0,1,0,22"), say(s, "EPRT |1|10.77.0.1|4810|"),
            say(s, "EPRT |2|::1|5000|"), say(s, "LPRT 4,4,10,77,0,2,2,0,22"), say(s, "NOOP")]

def smuggled_lines():
    s = login(connect())
    return [say(s, b"SIZE a\rDELE files/keep\r\n"), say(s, b"CWD x\0DELE files/keep\r\n"),
            say(s, b"STAT \xff\xff\xf4\xf2files\r\n")[:40], say(connect(), b"AUTH TLS\r\nDELE files/keep\r\n")]

def endless_line():
    s = login(connect())
    for _ in range(1600): s.sendall(b"A" * 65536)
    s.sendall(b" DELE files/keep\r\nNOOP\r\n")
    return [line(s).decode().strip(), line(s).decode().strip()[:30], "100 MB sent"]

def many_connections():
    held, refused = [], 0
    for _ in range(10000):
        try:
            s = connect(timeout=5); held.append(s)
        except OSError:
            refused += 1
    time.sleep(3)
    told = 0
    for s in held:
        s.setblocking(False)
        try:
            if b"421 gateway: too many" in s.recv(200): told += 1
        except OSError: pass
    time.sleep(4)
    return ["%d opened, %d not, %d told that these are too many" % (len(held), refused, told)]

def flood_of_commands():
    s = login(connect()); s.settimeout(1); sent = 0
    try:
        while sent < 50_000_000: sent += s.send(b"NOOP\r\n" * 10000)
    except OSError: pass
    time.sleep(4)
    return ["%.1f MB of NOOP taken while no reply is read" % (sent / 1e6)]

def slow_reader():
    s = login(connect()); say(s, "TYPE I")
    reply = say(s, "EPSV"); port = int(reply.split("|")[3])
    d = socket.socket(); d.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096); d.connect(("127.0.0.1", port))
    s.sendall(b"RETR files/large\r\n"); time.sleep(6)
    return [line(s).decode().strip()[:40], "nothing read for 6 s"]

def passwords_in_odd_places():
    s = connect(); line(s)
    return [say(s, text)[:40] for text in (
        SECRET, "USER anonymous", "pass " + SECRET, "PASS\t" + SECRET, " PASS " + SECRET, "ACCT " + SECRET,
        b"\xff\xf4PASS " + SECRET.encode() + b"\r\n", "SITE PSWD " + SECRET + " x", "QUOTE PASS " + SECRET)]

def guessing():
    out, said = 0, ""
    for number in range(40):
        try:
            s = connect(); line(s); say(s, "USER root"); said = say(s, "PASS guess%d" % number); out += 1
        except OSError: pass
    return ["%d guesses, the last answered: %s" % (out, said[:70])]

for text in globals()[name](): print("   ", text)
'''

# A server that means harm; every connection gets the next of these.
SERVER = r"""
import socket, sys, threading, time
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
def endless_line(s):
    try:
        for _ in range(1600): s.sendall(b"2" * 65536)
    except OSError: pass
def endless_reply(s):
    s.sendall(b"220-hello\r\n")
    try:
        for _ in range(400000): s.sendall(b" and so on, " + b"x" * 200 + b"\r\n")
    except OSError: pass
def traps(s):
    s.sendall(b"220-227 Entering Passive Mode (10,77,0,1,18,202)\r\n229 ok (|||4810|)\r\n220 ready\r\n")
    while s.recv(1000): s.sendall(b"227 Entering Passive Mode (10,77,0,1,18,202)\r\n150 go\r\n226 done\r\n")
def silent(s):
    time.sleep(60)
for trick in (endless_line, endless_reply, traps, silent):
    s, _ = listener.accept()
    threading.Thread(target=trick, args=(s,), daemon=True).start()
time.sleep(3600)
"""

CLIENT_OF_BAD_SERVER = r"""
import socket, sys, time
s = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5); s.settimeout(4); got = 0; last = b""
end = time.monotonic() + 6
try:
    s.sendall(b"USER x\r\nPASV\r\nLIST\r\n")
    while time.monotonic() < end:
        b = s.recv(65536)
        if not b: break
        got += len(b); last = (last + b)[-90:]
except OSError as error: last += b" (%s)" % str(error).encode()
print("    %d bytes came, the last: %r" % (got, last.decode(errors="replace")[-80:]))
"""


def memory_mb(world):
    sizes = []
    for site in ("a", "b"):
        with open(f"/proc/{world.processes[f'gateway-{site}'].pid}/status") as status:
            sizes += [int(line.split()[1]) // 1024 for line in status if line.startswith("VmRSS")]
    return sizes


def job(world, args):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    os.environ["RUST_LOG"] = "debug"
    world.far_allow = f'"{ADDRESS_B}:21", "{ADDRESS_B}:{SCRIPTED_PORT}"'
    world.start("bad-server", "b", sys.executable, "-c", SERVER, ADDRESS_B, str(SCRIPTED_PORT))
    world.gateway("b")
    world.gateway("a", f'[[ftp]]\nlisten = "127.0.0.1:{SCRIPTED_DOOR}"\n'
                  f'target = "{ADDRESS_B}:{SCRIPTED_PORT}"\n')
    world.connected()
    for name, size in (("keep", 10), ("large", 300_000_000)):
        with open(world.server_file(name), "wb") as file:
            file.truncate(size)
        os.chmod(world.server_file(name), 0o644)

    def other_user():
        done = world.run(sys.executable, "-c", USER, str(DOOR), capture_output=True, text=True)
        return float(done.stdout) if done.returncode == 0 else None

    usual = max(other_user() for _ in range(3))
    rows = [("nothing", "", usual, memory_mb(world))]
    attacks = [(name, [ATTACKS, name, str(DOOR)]) for name in (
        "bounce", "smuggled_lines", "endless_line", "many_connections", "flood_of_commands",
        "slow_reader", "passwords_in_odd_places")]
    attacks += [(f"server: {name}", [CLIENT_OF_BAD_SERVER, str(SCRIPTED_DOOR)])
                for name in ("endless line", "endless reply", "PASV in banners", "silence")]
    # Last, since it locks its address out for a minute.
    attacks.append(("guessing", [ATTACKS, "guessing", str(DOOR)]))
    failed = []
    for name, (script, *arguments) in attacks:
        print(name, flush=True)
        came = {}
        def attack():
            done = world.run(sys.executable, "-c", script, *arguments, capture_output=True, text=True)
            came["text"] = done.stdout + done.stderr[-500:]
        attacker = threading.Thread(target=attack)
        attacker.start()
        times = []
        while not times or attacker.is_alive():
            times.append(other_user())
        attacker.join()
        print(came["text"].rstrip())
        memory = memory_mb(world)
        worst = None if None in times else max(times)
        print(f"    the other user: {worst} s (usually {usual}), {len(times)} times; memory {memory} MB",
              flush=True)
        got = "; ".join(line.strip() for line in came["text"].strip().splitlines())
        rows.append((name, got.replace("|", "\\|")[:GOT_MAX], worst, memory))
        if worst is None or worst > 5 * usual + 2 or max(memory) > MEMORY_MAX_MB:
            failed.append(name)
    check(os.path.exists(world.server_file("keep")), "no smuggled command was executed")
    logs = "".join(open(world.path(f"gateway-{site}.log"), errors="replace").read() for site in "ab")
    check(SECRET not in logs, "no password in the logs at level debug")
    check("panicked" not in logs, "no panic")
    if args.write:
        lines = ["# Attacks", "", "`cargo xtask conformance attacks -- --write`: what another user needed meanwhile to log",
                 "in, upload 2 MB and download them, the worst of several times, and the memory of the two",
                 "gateways afterwards. Both log at level debug, and no password is in the logs.", "",
                 "| attack | what came of it | other user, s | near gateway, MB | far gateway, MB |",
                 "|---|---|---|---|---|"]
        lines += [f"| {name.replace('_', ' ')} | {got} | {worst} | {memory[0]} | {memory[1]} |"
                  for name, got, worst, memory in rows]
        with open(os.path.join(ROOT, "docs", "results", "attacks.md"), "w") as file:
            file.write("\n".join([*lines, ""]))
    check(not failed, f"nobody else was hurt {failed or ''}")


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")
    parser.add_argument("--write", action="store_true", help="write docs/results/attacks.md")


if __name__ == "__main__":
    main(job, __doc__, extend=extend)
