"""Many small files at a long round-trip time: by `lftp mirror`, by FileZilla in its window, or by `longhaul copy`.

The client lftp uses eight connections (`--parallel`), and FileZilla uses ten. The bench uploads and downloads all files
in fast mode, and a tenth of the files directly and in strict mode. Every file must have the same contents at its
destination. The client lftp does not preserve the times of files. Otherwise it would send one more command for each
file, and for downloads it would send these commands one after the other.

`--write` writes the figures to docs/results/small-files.md, and with FileZilla to small-files-filezilla.md. With
`--client mover` the bench compares `longhaul copy` with lftp at the same number of connections, and writes
small-files-mover.md.
"""

import os
import shutil
import time

import bench
import pages
import servers
import window
from files import digest
from world import ADDRESS_B, CHOICE, NEAR_PORT, Path

FILE_BYTES = 10_000
# Files in each folder. Listing and removing them also takes time.
FOLDER_FILES = 500
STRICT_PORT = 2130
SETTINGS = ("set net:max-retries 2; set net:timeout 60; set cmd:fail-exit true; set ftp:use-mdtm off; "
            "set ftp:use-site-utime off; set ftp:use-site-utime2 off")


def make_tree(folder, count):
    """Writes `count` files with different contents into subfolders of `folder`."""
    for number in range(count):
        place = os.path.join(folder, f"{number // FOLDER_FILES:03}")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, f"file {number:05}"), "wb") as file:
            file.write(os.urandom(FILE_BYTES))


def digests(folder):
    """Returns the digests of all files in a folder, by relative path."""
    return {os.path.relpath(os.path.join(place, name), folder): digest(os.path.join(place, name))
            for place, _, names in os.walk(folder) for name in names}


def by_lftp(world, args, server, name, host, port, count):
    """Uploads and downloads a tree by lftp, and returns the seconds of each direction."""
    tree, back, took = world.path("tree"), world.path("back"), {}
    make_tree(tree, count)
    sent = digests(tree)
    for direction, what, arrived in [("up", f"-R {tree} tree", server.file("tree")),
                                     ("down", f"tree {back}", back)]:
        begun = time.monotonic()
        with open(world.path("lftp.log"), "a") as log:
            world.run("lftp", "-c", f"{SETTINGS}; open -p {port} -u anonymous,x {host}; cd files; "
                      f"mirror --no-perms -P {args.parallel} {what}", check=True, timeout=3600, stdout=log,
                      stderr=log)
        took[direction] = time.monotonic() - begun
        bench.require(digests(arrived) == sent, f"{name}, {direction}: the arrived files differ from the sent files")
    for folder in (tree, back, server.file("tree")):
        shutil.rmtree(folder)
    return took


def by_filezilla(world, args, server, name, host, port, count):
    url = f"ftp://{server.user}:{server.password}@{host}:{port}{server.folder}"
    return window.move(window.Window(world, args.display, name, url), server, count, FILE_BYTES)


def by_mover(world, args, server, name, options, count):
    """Uploads and downloads a tree by `longhaul copy`, and returns the seconds of each direction."""
    # The trees stay until the end, because ext4 creates files slowly for minutes after many removals.
    place = name.replace(" ", "")
    tree, back, took = world.path(f"tree{place}"), world.path(f"back{place}"), {}
    make_tree(tree, count)
    sent = digests(tree)
    url = f"ftp://{ADDRESS_B}:{server.port}/files/{place}"
    for direction, ends, arrived in [("up", (tree, url), server.file(place)), ("down", (url, back), back)]:
        begun = time.monotonic()
        with open(world.path("mover.log"), "a") as log:
            world.run(world.longhaul, "copy", *ends, *options, check=True, timeout=3600, stdout=log, stderr=log)
        took[direction] = time.monotonic() - begun
        bench.require(digests(arrived) == sent, f"{name}, {direction}: the arrived files differ from the sent files")
    return took


def measure_mover(world, args):
    """Measures `longhaul copy` directly and through a pair, and lftp directly with the same number of connections."""
    server = servers.start_vsftpd(world)
    key = world.keygen("mover")
    world.gateway("b", f'[[peer]]\nname = "mover"\npublic_key = "{key}"\n')
    world.gateway("a")
    world.connected()
    count, few = (1000, 100) if args.quick else (args.files, args.files // 10)
    transfers = ["--transfers", str(args.parallel)]
    peer = ["--peer", f"{world.keys['b']}@{ADDRESS_B}:4810", "--key", world.path("mover.key")]
    ways = [("copy directly", transfers, few),
            ("copy --gateway", [*transfers, "--gateway", f"127.0.0.1:{CHOICE}"], count),
            ("copy --peer", [*transfers, *peer], count)]
    ways = [way for way in ways if args.only in way[0]]
    rows = []
    measured = [(name, number, by_mover(world, args, server, name, options, number))
                for name, options, number in ways]
    # lftp is last, because `by_lftp` removes its files.
    if args.only in "lftp directly":
        measured.append(("lftp directly", few, by_lftp(world, args, server, "lftp", ADDRESS_B, server.port, few)))
    for name, number, took in measured:
        for direction, seconds in took.items():
            rows.append((name, direction, number, f"{seconds:.1f}", f"{number / seconds:.1f}"))
            print("  {}, {}: {} files in {} s, {} files/s".format(*rows[-1]), flush=True)
    table = pages.table(["by", "direction", "files", "seconds", "files/s"], rows)
    bench.write(args, "small-files-mover", "Small files with longhaul copy", [
        f"The files have {FILE_BYTES // 1000} KB, the path has {args.path}, and the server is vsftpd. The clients are "
        f"`lftp mirror -P {args.parallel}` and `longhaul copy --transfers {args.parallel}`. Each figure is from one "
        "run.", "", *table])


def measure(world, args):
    if args.client == "mover":
        return measure_mover(world, args)
    server = servers.start_vsftpd(world)
    world.pair(f'[[ftp]]\nlisten = "127.0.0.1:{STRICT_PORT}"\ntarget = "{server.place()}"\n'
               f'mode = "strict"\n')
    count, few = (500, 100) if args.quick else (args.files, args.files // 10)
    ways = [("directly", ADDRESS_B, server.port, few), ("strict", "127.0.0.1", STRICT_PORT, few),
            ("fast", "127.0.0.1", NEAR_PORT, count)]
    by = by_lftp
    if args.client == "filezilla":
        by, args.display = by_filezilla, window.start_display(world)
    rows = []
    for name, host, port, number in ways:
        for direction, seconds in by(world, args, server, name, host, port, number).items():
            rows.append((name, direction, number, f"{seconds:.1f}", f"{number / seconds:.1f}"))
            print("  {}, {}: {} files in {} s, {} files/s".format(*rows[-1]), flush=True)
    table = pages.table(["through", "direction", "files", "seconds", "files/s"], rows)
    what = f"The files have {FILE_BYTES // 1000} KB, the path has {args.path}, and the server is vsftpd."
    if args.client == "filezilla":
        bench.write(args, "small-files-filezilla", "Small files with FileZilla", [
            f"{what} The client is FileZilla in its window with ten connections. Each figure is from one run.", "",
            *table])
    else:
        bench.write(args, "small-files", "Small files", [
            f"{what} The client is `lftp mirror -P {args.parallel}` without times. Each figure is from one run.", "",
            *table])


def extend(parser):
    parser.add_argument("--client", choices=["lftp", "filezilla", "mover"], default="lftp")
    parser.add_argument("--files", type=int, default=10_000,
                        help="number of files in fast mode, and by longhaul copy through a pair; others use a tenth")
    parser.add_argument("--only", default="", help="with --client mover, run only ways whose names contain this text")
    parser.add_argument("--parallel", type=int, default=8, help="number of connections of lftp and of longhaul copy")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300 Mbit/s", "200ms", "0%"), ["lftp", *window.PROGRAMS], extend)
