"""Uploads over a route whose round-trip time changes, either between two uploads or during an upload.

The link has four round trips of the new route plus two seconds to adapt. After this time, it must reach 0.9 of the
ideal goodput. An upload may therefore take its ideal time divided by 0.9, plus the time to adapt. Each change affects
both directions of the path. The bench also measures the change back to the first round-trip time. `--write` writes the
figures to docs/results/routes.md.
"""

import threading
import time

import bench
import servers
import talk
from world import ADDRESS_B, Path, World

PORT = 2131
PAYLOAD_SHARE = 0.94
RATE_BIT_PER_S = 100e6
# Round-trip times before and after the change, in milliseconds.
ROUTES = ((40, 1000), (40, 800), (40, 200))
IDLE_S = 4
CHANGE_AFTER_S = 4
REQUIRED = 0.9


def upload(client, content):
    """Uploads `content`, and returns the seconds from STOR to the final reply."""
    data = client.connect(client.passive("EPSV"))
    begun = time.monotonic()
    client.ask("STOR up", 125, 150)
    client._send(data, content)
    client.expect("STOR", 226)
    return time.monotonic() - begun


def ideal_s(size, rtt_ms):
    """Returns the ideal time of an upload of `size` bytes.

    It consists of the payload's transmission time, one round trip for STOR, and one for the last acknowledgement.
    """
    return size * 8 / (PAYLOAD_SHARE * RATE_BIT_PER_S) + 2 * rtt_ms / 1e3


def bound_s(size, rtt_ms):
    return ideal_s(size, rtt_ms) / REQUIRED + 4 * rtt_ms / 1e3 + 2


def measure(world, args):
    content = bytes((50 if args.quick else 100) * 1_000_000)
    size = len(content)
    lines = ["| RTT | the link was | upload, s | at most, s | ideal, s |", "|---|---|---|---|---|"]
    missed = []

    def judge(before_ms, after_ms, was, took, ideal, bound):
        lines.append(f"| {before_ms} -> {after_ms} ms | {was} | {bench.spread(took, 2)} | {bound:.2f} | {ideal:.2f} |")
        print("  " + lines[-1], flush=True)
        if max(took) > bound:
            missed.append(f"{max(took):.2f} s at {before_ms} -> {after_ms} ms, {was}")

    for near_ms, far_ms in ROUTES[:1] if args.quick else ROUTES:
        times = {}
        for _ in range(1 if args.quick else args.runs):
            with World(args.longhaul, Path("100Mbit/s", f"{near_ms}ms", "0%"), args.keep) as inner:
                server = servers.start_vsftpd(inner)
                inner.pair(f'[[ftp]]\nlisten = "127.0.0.1:{PORT}"\ntarget = "{ADDRESS_B}:21"\n')
                client = talk.Client(inner, "127.0.0.1", PORT)
                client.log_in(server.user, server.password)
                client.ask(f"CWD {server.folder}", 250)
                client.ask("TYPE I", 200)
                upload(client, content)
                for change in ((near_ms, far_ms), (far_ms, near_ms)):
                    before_ms, after_ms = change
                    time.sleep(IDLE_S / 2)
                    inner.wan("set", "--rtt", f"{after_ms}ms")
                    time.sleep(IDLE_S / 2)
                    times.setdefault((*change, "idle"), []).append(upload(client, content))
                    # Restore the route, and measure the same change during an upload.
                    inner.wan("set", "--rtt", f"{before_ms}ms")
                    upload(client, content)
                    timer = threading.Timer(CHANGE_AFTER_S, inner.wan, ("set", "--rtt", f"{after_ms}ms"))
                    timer.start()
                    times.setdefault((*change, "in use"), []).append(upload(client, content))
                    timer.join()
                client.close()
        for (before_ms, after_ms, was), took in times.items():
            if was == "idle":
                ideal, bound = ideal_s(size, after_ms), bound_s(size, after_ms)
            else:
                # The rest of the upload uses the new route.
                sent = (CHANGE_AFTER_S - 2 * before_ms / 1e3) * RATE_BIT_PER_S * PAYLOAD_SHARE / 8 * REQUIRED
                left = max(size - sent, 0)
                ideal = CHANGE_AFTER_S + ideal_s(left, after_ms)
                bound = CHANGE_AFTER_S + bound_s(left, after_ms)
            judge(before_ms, after_ms, was, took, ideal, bound)
    bench.write(args, "routes", "Routes that become longer or shorter",
                [f"The path has 100 Mbit/s and no loss. The server is vsftpd. The uploads of {size // 1_000_000} MB "
                 "pass through a pair of gateways.", "", *lines])
    bench.require_none(missed)


def extend(parser):
    parser.add_argument("--runs", type=int, default=3, help="number of runs for each pair of round-trip times")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("100Mbit/s", "40ms", "0%"), extend=extend)
