"""A thousand sessions at once: memory of the gateways for each session, and replies to all clients.

The bench measures the resident memory of each gateway before and after the logins. It divides the difference by the
number of sessions. Each session has listed a folder, so each session has used a data connection. `--write` writes the
figures to docs/results/idle-sessions.md.
"""

import concurrent.futures
import time

import bench
import pages
import servers
import talk
from world import Path, raise_open_files

KIB_MAX = 64
PORT = 2130
MODES = ["fast", "strict", "fast, TLS with the client"]
WARM, TOGETHER = 20, 20


def log_in(world, server, tls):
    client = talk.Client(world, "127.0.0.1", PORT)
    if tls:
        client.begin_tls()
    client.log_in(server.user, server.password)
    client.download("LIST")
    return client


def measure_mode(world, server, name, sessions):
    tls = "TLS" in name

    def begin(count):
        with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(lambda _: log_in(world, server, tls), range(count)))

    # The first sessions allocate memory that stays allocated and belongs to no single session.
    clients = begin(WARM)
    time.sleep(2)
    before = {site: world.memory_kib(site) for site in "ab"}
    begun = time.perf_counter()
    clients += begin(sessions)
    seconds = time.perf_counter() - begun
    time.sleep(2)
    each = {site: (world.memory_kib(site) - before[site]) / sessions for site in "ab"}
    bench.require(world.status("a")["sessions_open"] == len(clients), f"{name}: not all sessions are open at once")
    times = [talk.timed(client.ask, "NOOP", 200) * 1000 for client in clients]
    for client in clients:
        client.ask("QUIT", 221)
        client.close()
    world.wait(lambda: world.status("a")["sessions_open"] == 0, "all sessions end", 30)
    row = [name, sessions, f"{seconds:.1f}", f"{each['a']:.1f}", f"{each['b']:.1f}", bench.spread(times, 0)]
    print("  {}: {} sessions after {} s; {} KiB near and {} KiB far for each session; NOOP {} ms".format(*row),
          flush=True)
    return row, [f"{name}, gateway {site}: {kib:.1f} KiB" for site, kib in each.items() if kib > KIB_MAX]


def measure(world, args):
    raise_open_files()
    sessions = 100 if args.quick else args.sessions
    server = servers.start_all(world, names=["pyftpdlib"])["pyftpdlib"]
    more = {"strict": 'mode = "strict"\n', "fast, TLS with the client": 'tls = { mode = "explicit" }\n'}
    world.allowed.append(server.place())
    rows, missed = [], []
    for name in MODES:
        # Each mode needs new gateways, because memory of earlier sessions would distort the comparison.
        world.pair(f'[[ftp]]\nlisten = "127.0.0.1:{PORT}"\ntarget = "{server.place()}"\n{more.get(name, "")}'
                   f"[limits]\nsessions_per_client_max = {sessions + WARM}\n")
        row, over = measure_mode(world, server, name, sessions)
        rows.append(row)
        missed += over
        world.stop_pair()
    bench.write(args, "idle-sessions", "A thousand sessions at once", [
        f"The server is pyftpdlib. The round-trip time is {args.rtt}. A session may use at most {KIB_MAX} KiB at each "
        "gateway.", "",
        *pages.table(["mode", "sessions at once", "all logged in, s", "near gateway, KiB a session",
                      "far gateway, KiB a session", "NOOP on each: median (least..most), ms"], rows)])
    bench.require_none(missed)


def extend(parser):
    parser.add_argument("--sessions", type=int, default=1000)


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300 Mbit/s", "20ms", "0%"), extend=extend)
