#!/usr/bin/env python3
"""The main job: vsftpd behind a pair of gateways, used by curl, lftp and Python's ftplib.

Login, listing, 1 GB up and down, a file over 4 GiB, resumption with REST (beyond 4 GiB too) and
APPE, several files at once. Every hash must agree.
"""

import os
import sys
import time

from world import (CHOICE, DOOR, ADDRESS_B, check, digest, main, make_file, same)

FTPLIB = r"""
import ftplib, sys
verb, name, path, port, at = sys.argv[1:6]
ftp = ftplib.FTP()
ftp.connect("127.0.0.1", int(port), timeout=120)
ftp.login()
ftp.cwd("files")
at = int(at) or None
if verb == "list":
    ftp.retrlines("LIST"); print(sorted(ftp.nlst()))
elif verb == "down":
    with open(path, "ab" if at else "wb") as out: ftp.retrbinary("RETR " + name, out.write, 1 << 20, at)
elif verb == "up":
    with open(path, "rb") as file:
        file.seek(at or 0); ftp.storbinary("STOR " + name, file, 1 << 20, rest=at)
elif verb == "append":
    with open(path, "rb") as file: ftp.storbinary("APPE " + name, file, 1 << 20)
ftp.quit()
"""


def job(world, args):
    scale = 10 if args.quick else 1
    gigabyte = 1_000_000_000 // scale
    over_4gib = (4 << 30) // scale + 123_456_789
    url = f"ftp://127.0.0.1:{DOOR}/files"
    figures = []

    def timed(what, size, call):
        begun = time.monotonic()
        call()
        took = time.monotonic() - begun
        figures.append((what, size, took))
        print(f"  {what}: {took:.1f} s, {size * 8 / took / 1e6:.0f} Mbit/s", flush=True)

    def run(*command):
        world.run(*command, check=True, capture_output=True)

    def curl(*arguments):
        run("curl", "-sS", "--fail", *arguments)

    def lftp(script):
        run("lftp", "-c", f"set net:max-retries 1; set cmd:fail-exit true; "
            f"open -p {DOOR} 127.0.0.1; user anonymous x; cd files; {script}")

    def ftplib(verb, name="-", path="-", at=0):
        run(sys.executable, "-c", FTPLIB, verb, name, path, str(DOOR), str(at))

    world.gateway("b")
    world.gateway("a")
    world.connected()

    print("login and listing")
    make_file(world.server_file("hello"), 1000)
    listing = world.run("curl", "-sS", f"{url}/", check=True, capture_output=True, text=True)
    check("hello" in listing.stdout, "curl lists")
    listing = world.run("lftp", "-c", f"open -p {DOOR} 127.0.0.1; cls files", check=True,
                        capture_output=True, text=True)
    check("hello" in listing.stdout, "lftp lists")
    listing = world.run(sys.executable, "-c", FTPLIB, "list", "-", "-", str(DOOR), "0", check=True,
                        capture_output=True, text=True)
    check("['hello']" in listing.stdout, "ftplib lists")
    chosen = world.run("curl", "-sS", "-u", f"anonymous@{ADDRESS_B}:x",
                       f"ftp://127.0.0.1:{CHOICE}/files/", check=True, capture_output=True,
                       text=True)
    check("hello" in chosen.stdout, "USER name@server lists")

    print(f"{gigabyte / 1e9:g} GB up and down")
    local, back = world.path("gigabyte"), world.path("back")
    make_file(local, gigabyte)
    for client, up, down in [
        ("curl", lambda: curl("-T", local, f"{url}/c"), lambda: curl("-o", back, f"{url}/c")),
        ("lftp", lambda: lftp(f"put {local} -o l"), lambda: lftp(f"get l -o {back}")),
        ("ftplib", lambda: ftplib("up", "p", local), lambda: ftplib("down", "p", back)),
    ]:
        name = client[0] if client != "ftplib" else "p"
        timed(f"{client} up", gigabyte, up)
        same(local, world.server_file(name), f"{client} up")
        timed(f"{client} down", gigabyte, down)
        same(local, back, f"{client} down")
        os.remove(back)
        os.remove(world.server_file(name))
    os.remove(local)

    print(f"{over_4gib} bytes, and resumption near the end")
    big, back = world.path("big"), world.path("big-back")
    make_file(big, over_4gib)
    timed("curl up, large", over_4gib, lambda: curl("-T", big, f"{url}/big"))
    same(big, world.server_file("big"), "large file up")
    timed("lftp down, large", over_4gib, lambda: lftp(f"get big -o {back}"))
    same(big, back, "large file down")
    cut = over_4gib - 50_000_000
    for client, resume in [
        ("curl -C -", lambda: curl("-C", "-", "-o", back, f"{url}/big")),
        ("lftp get -c", lambda: lftp(f"get -c big -o {back}")),
        ("ftplib rest", lambda: ftplib("down", "big", back, cut)),
    ]:
        os.truncate(back, cut)
        resume()
        same(big, back, f"{client} down from {cut}")
    for client, resume in [
        ("curl -C -", lambda: curl("-C", "-", "-T", big, f"{url}/big")),
        ("lftp put -c", lambda: lftp(f"put -c {big} -o big")),
        ("ftplib rest", lambda: ftplib("up", "big", big, cut)),
    ]:
        os.truncate(world.server_file("big"), cut)
        resume()
        same(big, world.server_file("big"), f"{client} up from {cut}")
    os.remove(back)
    os.remove(big)
    os.remove(world.server_file("big"))

    print("APPE")
    first, second = world.path("first"), world.path("second")
    make_file(first, 3_000_000)
    make_file(second, 2_000_000)
    for client, append in [
        ("curl -a", lambda path: curl("-a", "-T", path, f"{url}/appended")),
        ("ftplib APPE", lambda path: ftplib("append", "appended", path)),
    ]:
        append(first)
        append(second)
        whole = world.path("whole")
        with open(whole, "wb") as out:
            for part in (first, second):
                with open(part, "rb") as file:
                    out.write(file.read())
        same(whole, world.server_file("appended"), client)
        os.remove(world.server_file("appended"))

    print("several files at once")
    many, again = world.path("many"), world.path("again")
    os.makedirs(many)
    for number in range(16):
        make_file(os.path.join(many, f"file {number}"), 20_000_000 // scale + number)
    timed("lftp mirror -R, 8 at once", 16 * 20_000_000 // scale,
          lambda: lftp(f"mirror -R -P 8 {many} many"))
    timed("lftp mirror, 8 at once", 16 * 20_000_000 // scale,
          lambda: lftp(f"mirror -P 8 many {again}"))
    for name in sorted(os.listdir(many)):
        one = digest(os.path.join(many, name))
        check(one == digest(world.server_file(os.path.join("many", name))), f"{name} up")
        check(one == digest(os.path.join(again, name)), f"{name} down")

    print(f"{args.rate}, RTT {args.rtt}, loss {args.loss} each way:")
    for what, size, took in figures:
        print(f"  {what:28} {size / 1e6:8.0f} MB {took:7.1f} s {size * 8 / took / 1e6:7.0f} Mbit/s")


if __name__ == "__main__":
    main(job, __doc__, "curl", "lftp", "openssl")
