"""Cost of a pair of gateways on paths where it brings no benefit: no loss, and a short round-trip time.

The bench measures the rates of uploads and downloads, the times of single commands, and the time of a short
transaction. The transaction begins with the connection and ends with the reply to QUIT. The bench alternates between
direct connections, strict mode and fast mode. `--write` writes the tables to docs/results/nothing-added.md.
"""

import os
import statistics

import bench
import pages
import servers
import talk
from files import content, make_file
from world import ADDRESS_B, NEAR_PORT, Path

STRICT_PORT = 2130
RTTS = ["0ms", "20ms"]
RATE_MIN = 0.95
ADDED_MEDIAN_MAX_MS, ADDED_99_MAX_MS = 1.0, 2.0
SETUP_MAX = 1.1
SMALL_BYTES = 10_000
COMMANDS = ["NOOP", "PWD", "CWD /files", "SIZE small", "TYPE"]


def rates(world, args, server, where):
    """Returns the rates in Mbit/s, by direction and way. The measured time lasts from PASV to the final reply."""
    size = args.megabytes * 1_000_000
    make_file(server.file("large"), size)
    large = content(server.file("large"))
    found = {}
    for _ in range(args.runs):
        for way, (host, port) in where.items():
            with talk.Client(world, host, port) as client:
                client.log_in("anonymous", "x")
                client.ask("CWD files", 250)
                client.ask("TYPE I", 200)
                got = []
                down = talk.timed(lambda: got.append(client.download("RETR large")))
                if got != [large]:
                    raise talk.Unexpected(f"{way}: the downloaded file has other contents")
                up = talk.timed(client.upload, "STOR up", large)
                client.ask("QUIT", 221)
            if os.path.getsize(server.file("up")) != size:
                raise talk.Unexpected(f"{way}: the uploaded file has another size")
            os.remove(server.file("up"))
            for direction, seconds in [("down", down), ("up", up)]:
                found.setdefault((direction, way), []).append(size * 8 / seconds / 1e6)
    return found


def commands(world, args, where):
    """Returns the times of single commands in milliseconds, by command and way."""
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
    """Returns the times of short transactions in milliseconds, by way.

    A transaction lasts from the start of the connection to the reply to QUIT, and includes a download of 10 KB.
    """
    def transaction(host, port):
        with talk.Client(world, host, port) as client:
            client.log_in("anonymous", "x")
            if len(client.download("RETR files/small")) != SMALL_BYTES:
                raise talk.Unexpected("the downloaded file has another size")
            client.ask("QUIT", 221)

    found = {}
    for _ in range(args.samples // 5):
        for way, at in where.items():
            found.setdefault(way, []).append(talk.timed(transaction, *at) * 1000)
    return found


def measure(world, args):
    if args.quick:
        args.runs, args.samples, args.megabytes = 1, 50, 20
    server = servers.start_vsftpd(world)
    make_file(server.file("small"), SMALL_BYTES)
    strict = f'[[ftp]]\nlisten = "127.0.0.1:{STRICT_PORT}"\ntarget = "{server.place()}"\nmode = "strict"\n'
    where = {"directly": (ADDRESS_B, server.port), "strict": ("127.0.0.1", STRICT_PORT),
             "fast": ("127.0.0.1", NEAR_PORT)}
    missed, lines = [], []
    for rtt in args.rtts:
        # Each round-trip time needs a new pair, because a link detects a changed path only after some time.
        world.wan("set", "--rtt", rtt)
        world.pair(strict)
        print(f"RTT {rtt}, {pages.load()}")
        lines += [f"## RTT {rtt}", ""]
        for table in (rate_table, command_table, transaction_table):
            more, over = table(world, args, server, where)
            lines += [*more, ""]
            missed += [f"RTT {rtt}, {what}" for what in over]
        world.stop_pair()
    bench.write(args, "nothing-added", "Nothing added", [
        f"The path has {args.rate} and no loss. The server is vsftpd.", "", *lines])
    bench.require_none(missed)


class Rows:
    """Rows of a table, and a list of the rows that missed their bound. Each new row is printed immediately."""

    def __init__(self):
        self.rows, self.missed = [], []

    def add(self, *cells, is_good):
        row = [*cells[:-1], cells[-1] + ("" if is_good else " MISSED")]
        self.rows.append(row)
        self.missed += [] if is_good else [", ".join(cells)]
        print("  " + "  ".join(f"{cell:9}" for cell in row), flush=True)


def rate_table(world, args, server, where):
    found, table = rates(world, args, server, where), Rows()
    for direction in ("down", "up"):
        direct = statistics.median(found[direction, "directly"])
        for way in where:
            samples = found[direction, way]
            part = statistics.median(samples) / direct
            table.add(direction, way, bench.spread(samples), f"{part:.3f}", is_good=part >= RATE_MIN)
    return [f"Rates of transfers of {args.megabytes} MB in Mbit/s: median of {args.runs} runs (lowest..highest). The "
            f"median must be at least {RATE_MIN} of the direct median:", "",
            *pages.table(["direction", "through", "Mbit/s", "of direct"], table.rows)], \
        table.missed


def command_table(world, args, server, where):
    found, table = commands(world, args, where), Rows()
    for command in COMMANDS:
        direct = found[command, "directly"]
        for way in where:
            samples = found[command, way]
            middle, high = (bench.quantile(samples, share) for share in (0.5, 0.99))
            added = middle - bench.quantile(direct, 0.5), high - bench.quantile(direct, 0.99)
            table.add(command, way, f"{middle:.2f}", f"{high:.2f}", f"{added[0]:+.2f}", f"{added[1]:+.2f}",
                      is_good=added[0] <= ADDED_MEDIAN_MAX_MS and added[1] <= ADDED_99_MAX_MS)
    return [f"Times of single commands in ms, {args.samples} samples each. The gateways may add at most "
            f"{ADDED_MEDIAN_MAX_MS:g} ms to the median, and {ADDED_99_MAX_MS:g} ms to the 99th percentile:", "",
            *pages.table(["command", "through", "median", "99 %", "added, median", "added, 99 %"],
                         table.rows)], table.missed


def transaction_table(world, args, server, where):
    found, table = transactions(world, args, where), Rows()
    direct = statistics.median(found["directly"])
    for way, samples in found.items():
        part = statistics.median(samples) / direct
        table.add(way, f"{statistics.median(samples):.1f}", f"{bench.quantile(samples, 0.99):.1f}",
                  f"{part:.2f}", is_good=part <= SETUP_MAX)
    return [f"Times of short transactions in ms, {args.samples // 5} samples each. A transaction is a connection, "
            f"login, PASV, RETR of 10 KB, and QUIT. The median may be at most {SETUP_MAX} of the direct median:", "",
            *pages.table(["through", "median", "99 %", "of direct"], table.rows)], \
        table.missed


def extend(parser):
    parser.add_argument("--rtts", nargs="+", default=RTTS)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--megabytes", type=int, default=200)


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300 Mbit/s", "20ms", "0%"), extend=extend)
