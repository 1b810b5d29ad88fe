#!/usr/bin/env python3
"""What a pair of gateways costs where it has nothing to mend: no loss, and hardly any distance.

Rate up and down, the time of single commands, and a short transaction from connecting to QUIT; directly,
in strict and in fast mode, by turns. `--write` puts the tables into docs/results/nothing-added.md.
"""

import math
import os
import statistics

import pages
import talk
from world import ADDRESS_B, DOOR, check, main, make_file

STRICT_DOOR = 2130
RTTS = ["0ms", "20ms"]
RATE_MIN = 0.95
ADDED_MEDIAN_MAX_MS, ADDED_99_MAX_MS = 1.0, 2.0
SETUP_MAX = 1.1
SMALL_BYTES = 10_000
COMMANDS = ["NOOP", "PWD", "CWD /files", "SIZE small", "TYPE"]


def rates(world, args, where):
    """Mbit/s by direction and way: from the transfer's command until its final reply."""
    size = args.megabytes * 1_000_000
    make_file(world.server_file("large"), size)
    content = open(world.server_file("large"), "rb").read()
    found = {}
    for _ in range(args.runs):
        for way, (host, port) in where.items():
            with talk.Client(world, host, port) as client:
                client.log_in("anonymous", "x")
                client.ask("CWD files", 250)
                client.ask("TYPE I", 200)
                got = []
                down = talk.timed(lambda: got.append(client.download("RETR large")))
                if got != [content]:
                    raise talk.Unexpected(f"{way}: another file came")
                up = talk.timed(client.upload, "STOR up", content)
                client.ask("QUIT", 221)
            if os.path.getsize(world.server_file("up")) != size:
                raise talk.Unexpected(f"{way}: a file of another size arrived")
            os.remove(world.server_file("up"))
            for direction, seconds in [("down", down), ("up", up)]:
                found.setdefault((direction, way), []).append(size * 8 / seconds / 1e6)
    return found


def commands(world, args, where):
    """Milliseconds of single commands, by command and way."""
    clients = {way: talk.Client(world, *at) for way, at in where.items()}
    for client in clients.values():
        client.log_in("anonymous", "x")
        client.ask("CWD files", 250)
    found = {}
    for number in range(args.samples):
        for command in COMMANDS:
            said = f"TYPE {'IA'[number % 2]}" if command == "TYPE" else command
            if command.startswith("SIZE"):
                for client in clients.values():
                    client.ask("TYPE I", 200)
            for way, client in clients.items():
                seconds = talk.timed(client.ask, said, 200, 213, 250, 257)
                found.setdefault((command, way), []).append(seconds * 1000)
    for client in clients.values():
        client.close()
    return found


def transactions(world, args, where):
    """Milliseconds from connecting to the reply to QUIT, with 10 KB fetched in between."""
    def transaction(host, port):
        with talk.Client(world, host, port) as client:
            client.log_in("anonymous", "x")
            if len(client.download("RETR files/small")) != SMALL_BYTES:
                raise talk.Unexpected("another file came")
            client.ask("QUIT", 221)

    found = {}
    for _ in range(args.samples // 5):
        for way, at in where.items():
            found.setdefault(way, []).append(talk.timed(transaction, *at) * 1000)
    return found


def ninety_nine(samples):
    return sorted(samples)[math.ceil(0.99 * len(samples)) - 1]


def job(world, args):
    make_file(world.server_file("small"), SMALL_BYTES)
    strict = f'[[ftp]]\nlisten = "127.0.0.1:{STRICT_DOOR}"\ntarget = "{ADDRESS_B}:21"\nmode = "strict"\n'
    where = {"directly": (ADDRESS_B, 21), "strict": ("127.0.0.1", STRICT_DOOR),
             "fast": ("127.0.0.1", DOOR)}
    missed, lines = [], []

    def judge(what, good):
        if not good:
            missed.append(what)
        return "" if good else " MISSED"

    for rtt in args.rtts:
        # A link that has known another path takes its time to find out.
        world.wan("set", "--rtt", rtt)
        gateways = [world.gateway("b"), world.gateway("a", strict)]
        world.connected()
        print(f"RTT {rtt}, {pages.load()}")
        rows = []
        found = rates(world, args, where)
        for direction in ("down", "up"):
            direct = statistics.median(found[direction, "directly"])
            for way in where:
                samples = found[direction, way]
                part = statistics.median(samples) / direct
                verdict = judge(f"{direction}, {way}, {rtt}: {part:.3f}", part >= RATE_MIN)
                rows.append((direction, way, f"{statistics.median(samples):.1f} "
                             f"({min(samples):.1f}..{max(samples):.1f})", f"{part:.3f}{verdict}"))
                print("  {:5} {:9} {} Mbit/s, {} of direct".format(*rows[-1]), flush=True)
        lines += [f"## RTT {rtt}", "", f"Rate of {args.megabytes} MB, Mbit/s, median of {args.runs} (least..most); "
                  f"at least {RATE_MIN} of direct:", "",
                  *pages.table(["direction", "through", "Mbit/s", "of direct"], rows), ""]

        rows = []
        found = commands(world, args, where)
        for command in COMMANDS:
            for way in where:
                samples, direct = found[command, way], found[command, "directly"]
                middle = statistics.median(samples) - statistics.median(direct)
                high = ninety_nine(samples) - ninety_nine(direct)
                verdict = judge(f"{command}, {way}, {rtt}: +{middle:.2f} ms, 99 %: +{high:.2f} ms",
                                middle <= ADDED_MEDIAN_MAX_MS and high <= ADDED_99_MAX_MS)
                rows.append((command, way, f"{statistics.median(samples):.2f}",
                             f"{ninety_nine(samples):.2f}", f"{middle:+.2f}", f"{high:+.2f}{verdict}"))
                print("  {:10} {:9} {} ms, 99 % {} ms; added {} ms, {} ms".format(*rows[-1]),
                      flush=True)
        lines += [f"Single commands, ms, {args.samples} samples each; at most {ADDED_MEDIAN_MAX_MS:g} ms more at "
                  f"the median, {ADDED_99_MAX_MS:g} ms at the 99th percentile:", "",
                  *pages.table(["command", "through", "median", "99 %", "added, median",
                                "added, 99 %"], rows), ""]

        rows = []
        found = transactions(world, args, where)
        direct = statistics.median(found["directly"])
        for way, samples in found.items():
            part = statistics.median(samples) / direct
            verdict = judge(f"transaction, {way}, {rtt}: {part:.2f}", part <= SETUP_MAX)
            rows.append((way, f"{statistics.median(samples):.1f}", f"{ninety_nine(samples):.1f}",
                         f"{part:.2f}{verdict}"))
            print("  transaction {:9} {} ms, 99 % {} ms, {} of direct".format(*rows[-1]),
                  flush=True)
        lines += [f"Connect, login, PASV, RETR of 10 KB, QUIT, ms, {args.samples // 5} samples each; at most "
                  f"{SETUP_MAX} of direct:", "",
                  *pages.table(["through", "median", "99 %", "of direct"], rows), ""]
        for gateway in gateways:
            gateway.terminate()
            gateway.wait(15)
    if args.write:
        pages.write("nothing-added", "Nothing added", [f"{args.rate}, no loss, vsftpd.", "", *lines])
    check(not missed, f"each figure within its bound {'; '.join(missed)}")


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")
    parser.add_argument("--rtts", nargs="+", default=RTTS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=200)
    parser.add_argument("--write", action="store_true", help="write docs/results/nothing-added.md")


if __name__ == "__main__":
    main(job, __doc__, "openssl", extend=extend)
