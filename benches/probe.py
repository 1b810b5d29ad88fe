"""Comparison of `longhaul probe tcp` with iperf3: the ratio of their median goodputs must be 1 within 3 %.

The runs of the two programs alternate. The cases are a full path in each direction, and windows of 64 KiB with one and
with four streams. `--write` writes the figures to docs/results/probe.md.
"""

import json
import socket
import statistics

import bench
import pages
from world import ADDRESS_B, Path

BOUND = 0.03
PROBE_PORT, IPERF_PORT = 4811, 5201
CASES = [
    ("one stream", [], []),
    ("one stream, from the server", ["--reverse"], ["-R"]),
    ("window 64 KiB", ["--window", "64 KiB"], ["-w", "65536"]),
    ("window 64 KiB, 4 streams", ["--window", "64 KiB", "--streams", "4"], ["-w", "65536", "-P", "4"]),
]


def measure(world, args):
    world.start("probe", "b", world.longhaul, "probe", "serve", "--listen", f"{ADDRESS_B}:{PROBE_PORT}")
    world.start("iperf3", "b", "iperf3", "-s", "-B", ADDRESS_B)
    for port in (PROBE_PORT, IPERF_PORT):
        world.wait(lambda: listens(world, port), f"port {port} listens")
    seconds, runs = (4, 3) if args.quick else (args.seconds, args.runs)
    rows, missed = [], []
    for name, probe, iperf in CASES:
        figures = {"probe": [], "iperf3": []}
        for _ in range(runs):
            figures["probe"].append(by_probe(world, probe, seconds))
            figures["iperf3"].append(by_iperf(world, iperf, seconds))
        ratio = statistics.median(figures["probe"]) / statistics.median(figures["iperf3"])
        is_missed = abs(ratio - 1) > BOUND
        missed += [f"{name}: {ratio:.3f}"] * is_missed
        rows.append((name, bench.spread(figures["probe"], 2), bench.spread(figures["iperf3"], 2),
                     f"{ratio:.3f}{' MISSED' * is_missed}"))
        print("  {}: probe {}, iperf3 {} Mbit/s, ratio {}".format(*rows[-1]), flush=True)
    bench.write(args, "probe", "The probe beside iperf3", [
        f"The path has {args.path}. The cells show the median (lowest..highest) of {runs} runs of {seconds} s, in "
        "Mbit/s. The runs of the two programs alternate.", "",
        *pages.table(["", "probe", "iperf3", "probe / iperf3"], rows)])
    bench.require_none(missed)


def listens(world, port):
    with world.entered("b"), socket.socket() as stream:
        return stream.connect_ex((ADDRESS_B, port)) == 0


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
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=10)


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("100 Mbit/s", "40ms", "0%"), ["iperf3"], extend)
