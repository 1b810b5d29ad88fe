#!/usr/bin/env python3
"""`longhaul probe tcp` beside iperf3: both must tell the same goodput, within 3 %.

Over an emulated WAN, by turns, the medians of several runs: a path that is full, windows that bound it, and
several streams, each way. `--write` puts the figures into docs/results/probe.md.
"""

import json
import statistics
import time

import pages
from world import ADDRESS_B, check, main

BOUND = 0.03
CASES = [
    ("one stream", [], []),
    ("one stream, from the server", ["--reverse"], ["-R"]),
    ("window 64 KiB", ["--window", "64 KiB"], ["-w", "65536"]),
    ("window 64 KiB, 4 streams", ["--window", "64 KiB", "--streams", "4"], ["-w", "65536", "-P", "4"]),
]


def job(world, args):
    world.start("probe", "b", world.longhaul, "probe", "serve", "--listen", f"{ADDRESS_B}:4811")
    world.start("iperf3", "b", "iperf3", "-s", "-B", ADDRESS_B)
    time.sleep(1)
    seconds = 4 if args.quick else args.seconds
    rows, ratios = [], {}
    for name, probe, iperf in CASES:
        figures = {"probe": [], "iperf3": []}
        for _ in range(1 if args.quick else args.runs):
            figures["probe"].append(by_probe(world, probe, seconds))
            figures["iperf3"].append(by_iperf(world, iperf, seconds))
        ours, theirs = (statistics.median(figures[who]) for who in ("probe", "iperf3"))
        spread = [f"{min(figures[who]):.2f}..{max(figures[who]):.2f}" for who in ("probe", "iperf3")]
        ratio = ours / theirs
        ratios[name] = ratio
        missed = "" if abs(ratio - 1) <= BOUND else " MISSED"
        rows.append((name, f"{ours:.2f}", spread[0], f"{theirs:.2f}", spread[1], f"{ratio:.3f}{missed}"))
        print("  {}: probe {} ({}), iperf3 {} ({}) Mbit/s, ratio {}".format(*rows[-1]), flush=True)
    if args.write:
        pages.write("probe", "The probe beside iperf3", [
            f"{args.rate}, RTT {args.rtt}, loss {args.loss}; {args.runs} runs of {seconds} s each, by turns; "
            "medians, least and most, Mbit/s.", "",
            *pages.table(["", "probe", "", "iperf3", "", "probe / iperf3"], rows)])
    for name, ratio in ratios.items():
        check(abs(ratio - 1) <= BOUND, f"{name}: within {BOUND:.0%}")


def by_probe(world, options, seconds):
    done = world.run(world.longhaul, "probe", "tcp", ADDRESS_B, "--time", f"{seconds}s", "--json", *options,
                     capture_output=True, text=True, check=True)
    streams = json.loads(done.stdout)["streams"]
    received = [stream["receiver"] for stream in streams]
    return sum(end["bytes"] for end in received) * 8 / max(end["seconds"] for end in received) / 1e6


def by_iperf(world, options, seconds):
    done = world.run("iperf3", "-c", ADDRESS_B, "-t", str(seconds), "-J", *options,
                     capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"] / 1e6


def extend(parser):
    parser.set_defaults(rate="100 Mbit/s", rtt="40ms", loss="0%")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--write", action="store_true", help="write docs/results/probe.md")


if __name__ == "__main__":
    main(job, __doc__, "iperf3", extend=extend)
