"""Uploads in fast mode over long paths without loss, by a client that waits for the reply 150, as curl and ftplib do.

The measured time lasts from STOR to the final reply. The ideal time is the time of the file at 94 % of the path's rate,
plus two round trips. The payload takes 94 % of a full packet. One round trip is for STOR, and the other round trip is
for the last acknowledgement.

Each run has a new pair of gateways. Its first upload uses a link that has carried no data. The second upload is the
first to another server, and three more uploads to this server follow. `--write` writes the figures to
docs/results/uploads.md.
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
# Round-trip times in milliseconds, each with the minimum fraction of the ideal for later uploads.
REQUIRED = ((400, 0.90), (1000, 0.85))
FIRST_TRIPS_MAX = 2
RATE_BIT_PER_S = 300e6


def uploads(world, server, port, content, count):
    """Runs `count` uploads in one session, and returns the seconds of each, from STOR to the final reply."""
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
            missed.append(f"the first upload takes {trips:.1f} round trips longer at {rtt_ms} ms")
    bench.write(args, "uploads", "Uploads in fast mode over long paths",
                [f"The path has 300 Mbit/s and no loss. The server is vsftpd. Each upload has {megabytes} MB. For each "
                 f"round-trip time, {runs} pairs of gateways run five uploads each.", "", *lines])
    bench.require_none(missed)


def extend(parser):
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="number of pairs of gateways for each round-trip time")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300Mbit/s", "20ms", "0%"), extend=extend)
