#!/usr/bin/env python3
"""A thousand clients that are logged in at once: what each costs the gateways, and whether they all still
get answers.

Memory is what the gateways have resident, before and with the sessions; the difference is shared out. Each
session has listed a folder, so that it has had a data connection. `--write` puts the figures into
docs/results/idle-sessions.md.
"""

import concurrent.futures
import resource
import statistics
import time

import pages
import servers as ftp_servers
import talk
from world import ADDRESS_B, check, main

KIB_MAX = 64
PORT = 2130
MODES = ["fast", "strict", "fast, TLS with the client"]
WARM, TOGETHER = 20, 20


def resident_kib(world, site):
    with open(f"/proc/{world.processes[f'gateway-{site}'].pid}/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def log_in(world, server, tls):
    client = talk.Client(world, "127.0.0.1", PORT)
    if tls:
        client.begin_tls()
    client.log_in(server.user, server.password)
    client.download("LIST")
    return client


def measure(world, args, server, name):
    tls = "TLS" in name

    def begin(count):
        with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
            return list(pool.map(lambda _: log_in(world, server, tls), range(count)))

    # What the first sessions load stays; it is no session's own.
    clients = begin(WARM)
    time.sleep(2)
    before = {site: resident_kib(world, site) for site in "ab"}
    begun = time.perf_counter()
    clients += begin(args.sessions)
    seconds = time.perf_counter() - begun
    time.sleep(2)
    each = {site: (resident_kib(world, site) - before[site]) / args.sessions for site in "ab"}
    open_sessions = world.status("a")["sessions_open"]
    check(open_sessions == len(clients), f"{name}: {open_sessions} sessions at once")
    times = sorted(talk.timed(client.ask, "NOOP", 200) for client in clients)
    print(f"  {name}: {each['a']:.1f} KiB near, {each['b']:.1f} KiB far a session", flush=True)
    for site, kib in each.items():
        check(kib <= KIB_MAX, f"{name}: gateway {site} has at most {KIB_MAX} KiB for each")
    for client in clients:
        client.ask("QUIT", 221)
        client.close()
    world.wait(lambda: world.status("a")["sessions_open"] == 0, "all sessions end", 30)
    return [name, args.sessions, f"{seconds:.1f}", f"{each['a']:.1f}", f"{each['b']:.1f}",
            f"{statistics.median(times) * 1000:.0f}", f"{times[-1] * 1000:.0f}"]


def job(world, args):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    server = ftp_servers.start_all(world)["pyftpdlib"]
    target = f'target = "{ADDRESS_B}:{server.port}"\n'
    more = {"strict": 'mode = "strict"\n', "fast, TLS with the client": 'tls = { mode = "explicit" }\n'}
    world.far_allow += f', "{ADDRESS_B}:{server.port}"'
    rows = []
    for name in MODES:
        door = f'[[ftp]]\nlisten = "127.0.0.1:{PORT}"\n{target}{more.get(name, "")}'
        world.gateway("b")
        world.gateway("a", door + f"[limits]\nsessions_per_client_max = {args.sessions + WARM}\n")
        world.connected()
        rows.append(measure(world, args, server, name))
        # Memory is compared with what a gateway has that has never had more.
        for site in "ab":
            world.processes[f"gateway-{site}"].terminate()
            world.processes[f"gateway-{site}"].wait(20)
    head = ["mode", "sessions at once", "all logged in, s", "near gateway, KiB a session",
            "far gateway, KiB a session", "NOOP on each: median, ms", "longest, ms"]
    table = pages.table(head, rows)
    print("\n".join(table))
    if args.write:
        pages.write("idle-sessions", "A thousand sessions at once", [
            f"pyftpdlib across {args.rtt}; at most {KIB_MAX} KiB a session and gateway.", "", *table])


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--write", action="store_true", help="write docs/results/idle-sessions.md")


if __name__ == "__main__":
    main(job, __doc__, "openssl", extend=extend)
