#!/usr/bin/env python3
"""Many small files at a long round-trip time: `lftp mirror` with eight connections.

Up and down through the pair, and a tenth of them directly. Every file must agree. lftp keeps no times,
for which it would send a command more for each file, and for downloads one after the other. `--write` puts the
figures into docs/results/small-files.md.
"""

import os
import shutil
import time

import pages
from world import ADDRESS_B, DOOR, check, digest, main

FILE_BYTES = 10_000
# Files in a folder; what lists and removes them takes its time, too.
FOLDER_FILES = 500
STRICT_DOOR = 2130
SETTINGS = ("set net:max-retries 2; set net:timeout 60; set cmd:fail-exit true; set ftp:use-mdtm off; "
            "set ftp:use-site-utime off; set ftp:use-site-utime2 off")


def make_tree(folder, count):
    """`count` files that differ, in folders."""
    for number in range(count):
        place = os.path.join(folder, f"{number // FOLDER_FILES:03}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"file {number:05}"), "wb") as file:
            file.write(os.urandom(FILE_BYTES))


def digests(folder):
    """What is in a folder, by relative path."""
    return {os.path.relpath(os.path.join(place, name), folder): digest(os.path.join(place, name))
            for place, _, names in os.walk(folder) for name in names}


def job(world, args):
    count, direct_count = (500, 100) if args.quick else (args.files, args.files // 10)
    world.gateway("b")
    world.gateway("a", f'[[ftp]]\nlisten = "127.0.0.1:{STRICT_DOOR}"\ntarget = "{ADDRESS_B}:21"\n'
                       f'mode = "strict"\n')
    world.connected()
    rows = []
    for way, host, port, number in [("directly", ADDRESS_B, 21, direct_count),
                                    ("strict", "127.0.0.1", STRICT_DOOR, direct_count),
                                    ("fast", "127.0.0.1", DOOR, count)]:
        tree, back = world.path("tree"), world.path("back")
        make_tree(tree, number)
        sent = digests(tree)

        def mirror(direction):
            begun = time.monotonic()
            what = f"-R {tree} tree" if direction == "up" else f"tree {back}"
            world.run("lftp", "-c", f"{SETTINGS}; open -p {port} -u anonymous,x {host}; cd files; "
                      f"mirror --no-perms -P {args.parallel} {what}", check=True, timeout=3600,
                      stdout=lftp_log, stderr=lftp_log)
            seconds = time.monotonic() - begun
            rows.append((way, direction, number, f"{seconds:.1f}", f"{number / seconds:.1f}"))
            print("  {}, {}: {} files in {} s, {} files/s".format(*rows[-1]), flush=True)

        with open(world.path("lftp.log"), "a") as lftp_log:
            mirror("up")
            check(digests(world.server_file("tree")) == sent, f"{way}: {number} files up agree")
            mirror("down")
            check(digests(back) == sent, f"{way}: {number} files down agree")
        for folder in (tree, back, world.server_file("tree")):
            shutil.rmtree(folder)
    if args.write:
        pages.write("small-files", "Small files", [
            f"Files of {FILE_BYTES // 1000} KB, {args.rate}, RTT {args.rtt}, loss {args.loss}: `lftp mirror "
            f"-P {args.parallel}` without times, vsftpd. One run each.", "",
            *pages.table(["through", "direction", "files", "seconds", "files/s"], rows)])


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="200ms", loss="0%")
    parser.add_argument("--files", type=int, default=10_000, help="through the pair; a tenth directly")
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--write", action="store_true", help="write docs/results/small-files.md")


if __name__ == "__main__":
    main(job, __doc__, "lftp", extend=extend)
