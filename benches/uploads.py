"""Uploads in fast mode over long paths without loss, by a client that waits for the 150, as curl and ftplib do.

The time runs from STOR to the final reply. The ideal is the line at 94 % (the payload of full packets), one round trip
that STOR itself takes, and one until the end is acknowledged. Each run is a new pair of gateways: its first upload
meets a link that has carried nothing; then comes the first upload to another server, and three more to that one. `--write` puts the figures into docs/results/uploads.md.
"""

import statistics
import time

import bench
import servers
import talk
from world import ADDRESS_B, Path, World

PORTS = (2131, 2132)
OTHER = "127.0.0.1"
PAYLOAD_SHARE = 0.94
# Milliseconds of round trip, and the share of the ideal that later uploads reach at least.
REQUIRED = ((400, 0.90), (1000, 0.85))
FIRST_TRIPS_MAX = 2
RATE_BIT_PER_S = 300e6


def uploads(world, server, port, content, count):
    """Seconds from STOR to the final reply, for each upload of one session."""
    client = talk.Client(world, "127.0.0.1", port)
    client.log_in(server.user, server.password)
    client.ask(f"CWD {server.folder}", 250)
    client.ask("TYPE I", 200)
    took = []
    for number in range(count):
        data = client.connect(client.passive("EPSV"))
        begun = time.monotonic()
        client.ask(f"STOR up{number}", 125, 150)
        client._send(data, content)
        client.expect("STOR", 226)
        took.append(time.monotonic() - begun)
    client.close()
    return took


def measure(world, args):
    megabytes, runs = (20, 1) if args.quick else (args.megabytes, args.runs)
    content = bytes(megabytes * 1_000_000)
    lines = ["| RTT | link cold | first to a server | later | of ideal | first is later by |", "|---|---|---|---|---|---|"]
    missed = []
    for rtt_ms, required in REQUIRED:
        cold, first, later = [], [], []
        for _ in range(runs):
            with World(args.longhaul, Path("300Mbit/s", f"{rtt_ms}ms", "0%"), args.keep) as inner:
                server = servers.start_vsftpd(inner)
                servers.start_vsftpd(inner, "other", address=OTHER)
                inner.allowed.append(f"{OTHER}:21")
                inner.pair("".join(f'[[ftp]]\nlisten = "127.0.0.1:{port}"\ntarget = "{target}:21"\n'
                                   for port, target in zip(PORTS, (OTHER, ADDRESS_B))))
                cold += uploads(inner, server, PORTS[0], content, 1)
                took = uploads(inner, server, PORTS[1], content, 4)
                first.append(took[0])
                later += took[1:]
        ideal_s = len(content) * 8 / (PAYLOAD_SHARE * RATE_BIT_PER_S) + 2 * rtt_ms / 1e3
        share = ideal_s / statistics.median(later)
        trips = (statistics.median(first) - statistics.median(later)) * 1e3 / rtt_ms
        lines.append(f"| {rtt_ms} ms | {bench.spread(cold, 2)} s | {bench.spread(first, 2)} s | "
                     f"{bench.spread(later, 2)} s | {share:.2f} (at least {required:.2f}) | "
                     f"{trips:.1f} round trips (at most {FIRST_TRIPS_MAX}) |")
        print("  " + lines[-1], flush=True)
        if share < required:
            missed.append(f"{share:.2f} of ideal at {rtt_ms} ms")
        if trips > FIRST_TRIPS_MAX:
            missed.append(f"the first upload is {trips:.1f} round trips later at {rtt_ms} ms")
    bench.write(args, "uploads", "Uploads in fast mode over long paths",
                [f"300 Mbit/s, no loss; vsftpd; {megabytes} MB each, {runs} pairs with five uploads each.", "", *lines])
    bench.require_none(missed)


def extend(parser):
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="pairs of gateways for each round trip")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300Mbit/s", "20ms", "0%"), extend=extend)
