#!/usr/bin/env python3
"""Transparent front door: curl and lftp go to the server's own address, and know of no gateway.

Accelerated, active and passive; with the far gateway killed they pass directly within a second; the near
gateway killed is in nobody's way, and leaves nothing after its next start or the command for that.
"""

import json
import os
import subprocess
import sys
import time

from world import ADDRESS_B, check, main, make_file, same

CLIENT, ROUTER = "10.78.0.2", "10.78.0.1"
TABLE, MARK = "longhaul_2125", "0x4c48084d"
# Longer than a connection takes when nothing is wrong: a round trip for itself, one for the greeting.
PATIENCE = 1.0

GREETING = r"""
import socket, sys, time
begun = time.monotonic()
stream = socket.create_connection((sys.argv[1], 21), 10)
stream.settimeout(10)
assert stream.recv(1000).startswith(b"220")
print(time.monotonic() - begun)
"""


def job(world, args):
    world.sites["c"] = f"{world.name}-c"
    subprocess.run(["ip", "netns", "add", world.sites["c"]], check=True)
    try:
        stories(world, args)
    finally:
        subprocess.run(["ip", "netns", "del", world.sites["c"]], check=False)


def stories(world, args):
    network(world)
    world.gateway("b")
    near = start_near(world)
    world.wait(lambda: TABLE in rules(world) and "expires" in rules(world), "interception", 30)

    size = 50_000_000 // (10 if args.quick else 1)
    source, back = world.path("source"), world.path("back")
    make_file(source, size)
    url = f"ftp://{ADDRESS_B}/files"
    done = 0

    def accelerated(what):
        """Both transfers since the last time came by the gateways."""
        nonlocal done
        done += 2
        world.wait(lambda: world.status("a")["transfers_completed_total"] == done, what)
        check(set(clients(world)) == {ADDRESS_B}, f"{what}: by the gateways")
        same(source, world.server_file("file"), f"{what} up")
        same(source, back, f"{what} down")
        os.remove(world.server_file("file"))
        os.remove(back)

    print("accelerated")
    for what, options in [
        ("curl, EPSV", []), ("curl, PASV", ["--disable-epsv"]), ("curl, EPRT", ["-P", "-"]),
        ("curl, PORT", ["--disable-eprt", "-P", "-"]),
    ]:
        begun = time.monotonic()
        curl(world, *options, "-T", source, f"{url}/file")
        curl(world, *options, "-o", back, f"{url}/file")
        took = time.monotonic() - begun
        print(f"  {what}: {2 * size * 8 / took / 1e6:.0f} Mbit/s, up and down")
        accelerated(what)
    for what, settings in [
        ("lftp, passive", "set ftp:passive-mode on"),
        ("lftp, passive, EPSV", "set ftp:passive-mode on; set ftp:prefer-epsv on"),
        ("lftp, active, from the server's port 20",
         "set ftp:passive-mode off; set ftp:verify-address on; set ftp:verify-port on"),
    ]:
        # Two transfers in one session, no listing beside them.
        lftp(world, f"{settings}; open {ADDRESS_B}; user anonymous x; "
                    f"put {source} -o files/file; get files/file -o {back}")
        accelerated(what)

    print("with the far gateway killed")
    forget(world)
    world.processes["gateway-b"].kill()
    begun, slowest = time.monotonic(), 0
    while time.monotonic() - begun < 3:
        slowest = max(slowest, greeting(world))
    check(slowest <= PATIENCE, f"each new connection is greeted within {slowest:.2f} s")
    small = world.path("small")
    make_file(small, 1_000_000)
    for what, options in [("passive", []), ("active", ["-P", "-"])]:
        curl(world, *options, "-T", small, f"{url}/small")
        same(small, world.server_file("small"), f"curl directly, {what}")
    lftp(world, f"open {ADDRESS_B}; get files/small -o {back}")
    same(small, back, "lftp directly")
    check(set(clients(world)) == {CLIENT}, "the server sees the client itself")
    world.gateway("b")
    returned = time.monotonic()
    world.wait(lambda: "expires" in rules(world), "interception again", 30)
    print(f"  intercepted again {time.monotonic() - returned:.1f} s after the return")
    forget(world)
    curl(world, "-o", back, f"{url}/small")
    check(set(clients(world)) == {ADDRESS_B}, "accelerated again")

    print("with the near gateway killed")
    near.kill()
    near.wait()
    check(greeting(world) <= PATIENCE, "a new connection passes at once")
    check(TABLE in rules(world), "its rules are still there")
    near = start_near(world)
    check(installed(world) == (1, 1), "its next start replaces them")
    world.wait(lambda: "expires" in rules(world), "interception again", 30)
    near.terminate()
    near.wait()
    check(installed(world) == (0, 0), "its end removes them")
    near = start_near(world)
    near.kill()
    near.wait()
    check(installed(world) == (1, 1), "killed again")
    world.run(world.longhaul, "gateway", "--config", world.path("a.toml"), "--remove-interception",
              check=True, stdout=subprocess.DEVNULL)
    check(installed(world) == (0, 0), "--remove-interception removes them")
    check(greeting(world) <= PATIENCE, "a new connection passes")


def network(world):
    """A client behind site a, which passes packets on to site b."""
    def ip(site, *arguments):
        subprocess.run(["ip", "-n", world.sites[site], *arguments], check=True)

    ip("c", "link", "set", "lo", "up")
    ip("a", "link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", world.sites["c"])
    ip("a", "address", "add", f"{ROUTER}/24", "dev", "lan0")
    ip("c", "address", "add", f"{CLIENT}/24", "dev", "lan0")
    for site in ("a", "c"):
        ip(site, "link", "set", "lan0", "up")
    ip("c", "route", "add", "default", "via", ROUTER)
    ip("b", "route", "add", f"{CLIENT}/32", "via", "10.77.0.1")
    world.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward", check=True)


def start_near(world):
    with open(world.path("a.toml"), "w") as config:
        config.write(f'[identity]\nkey_file = "a.key"\n[[peer]]\nname = "site-b"\n'
                     f'public_key = "{world.keys["b"]}"\nendpoint = "{ADDRESS_B}:4810"\n'
                     f'serves = ["{ADDRESS_B}"]\n'
                     f'[[ftp]]\nlisten = "0.0.0.0:2125"\ntransparent = true\n'
                     f'clients = ["{CLIENT}"]\n')
    near = world.start("gateway-a", "a", world.longhaul, "gateway", "--config", world.path("a.toml"))
    world.wait(lambda: world.status("a") is not None, "gateway a up")
    return near


def curl(world, *arguments):
    world.run("curl", "-sS", "--fail", *arguments, site="c", check=True)


def lftp(world, script):
    world.run("lftp", "-c", f"set net:max-retries 1; set cmd:fail-exit true; {script}", site="c",
              check=True, stdout=subprocess.DEVNULL)


def greeting(world):
    """Seconds from the begin of a connection to the server's first word."""
    done = world.run(sys.executable, "-c", GREETING, ADDRESS_B, site="c", check=True,
                     capture_output=True, text=True)
    return float(done.stdout)


def forget(world):
    open(world.path("vsftpd.log"), "w").close()


def clients(world):
    """Whom vsftpd has seen transfer something."""
    with open(world.path("vsftpd.log"), errors="replace") as log:
        return [line.split('"')[1].removeprefix("::ffff:") for line in log
                if "OK UPLOAD" in line or "OK DOWNLOAD" in line]


def rules(world):
    done = world.run("nft", "list", "ruleset", check=True, capture_output=True, text=True)
    return done.stdout


def installed(world):
    """How many tables and routing rules of the door there are."""
    listed = world.run("ip", "-json", "rule", check=True, capture_output=True, text=True)
    marks = [rule.get("fwmark") for rule in json.loads(listed.stdout)]
    return rules(world).count(f"table inet {TABLE} "), marks.count(MARK)


if __name__ == "__main__":
    main(job, __doc__, "curl", "lftp", "openssl", "nft")
