"""Small downloads in quick succession through a listener with a thousand passive ports: none may be answered 425.

Sessions take turns, so that the wanted number of transfers begins each second, for `--seconds`. Each data connection
ends at the gateway first, so its port stays in TIME_WAIT for a minute: within five seconds each port has been used.
`--write` puts the figures into docs/results/passive-ports.md.
"""

import threading
import time

import bench
import servers
import talk
from world import ADDRESS_B, Path

PORT, LOW, HIGH = 2130, 30000, 30999
SESSIONS = 20
QUICK_S = 20
NAME, SIZE = "small", 100


def transfer_in_turn(client, number, args, begun, counts, lock):
    """The downloads of one session, each at its time."""
    interval_s = SESSIONS / args.rate_per_s
    due = begun + number / args.rate_per_s
    while due < begun + args.seconds:
        time.sleep(max(0, due - time.monotonic()))
        due += interval_s
        try:
            client.download(f"RETR {NAME}", "EPSV")
            what = "done"
        except talk.Unexpected as error:
            what = "425" if "425" in str(error) else "other"
            if what == "other":
                print(f"  {error}", flush=True)
        with lock:
            counts[what] += 1


def measure(world, args):
    seconds = args.seconds = QUICK_S if args.quick else args.seconds
    server = servers.start_vsftpd(world)
    with open(server.file(NAME), "wb") as file:
        file.write(b"x" * SIZE)
    world.pair(f'[[ftp]]\nlisten = "127.0.0.1:{PORT}"\ntarget = "{ADDRESS_B}:21"\n'
               f'passive_ports = "{LOW}-{HIGH}"\n')
    clients = []
    for _ in range(SESSIONS):
        client = talk.Client(world, "127.0.0.1", PORT)
        client.log_in(server.user, server.password)
        client.ask(f"CWD {server.folder}", 250)
        client.ask("TYPE I", 200)
        clients.append(client)
    counts, lock, begun = {"done": 0, "425": 0, "other": 0}, threading.Lock(), time.monotonic()
    threads = [threading.Thread(target=transfer_in_turn, args=(client, number, args, begun, counts, lock))
               for number, client in enumerate(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - begun
    for client in clients:
        client.close()
    reached = counts["done"] / took
    line = (f"{counts['done']} transfers in {took:.0f} s: {reached:.0f} a second of {args.rate_per_s:g} wanted; "
            f"answered 425: {counts['425']}, otherwise failed: {counts['other']}")
    print(f"  {line}", flush=True)
    bench.write(args, "passive-ports", "Small transfers through a thousand passive ports",
                [f"{args.path} each way; vsftpd; {SESSIONS} sessions, {SIZE} bytes each, ports {LOW}-{HIGH}.", "", line])
    bench.require(counts["425"] == 0, "425 to none")
    bench.require(counts["other"] == 0, "no other failure")
    bench.require(counts["done"] > HIGH - LOW + 1, f"more transfers than ports, within {seconds} s")


def extend(parser):
    parser.add_argument("--seconds", type=float, default=300, help="how long transfers begin")
    parser.add_argument("--rate-per-s", type=float, default=200, help="transfers that begin each second")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("1 Gbit/s", "2ms", "0%"), extend=extend)
