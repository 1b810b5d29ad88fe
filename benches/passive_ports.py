"""Small downloads in quick succession through a listener with 1000 passive ports.

No download may receive the reply 425. The sessions start downloads in turn, so that `--rate-per-s` downloads begin each
second, for `--seconds`. The gateway closes each data connection first, so the port stays in TIME_WAIT for a minute. At
the default rate, the gateway has used each port after five seconds. `--write` writes the figures to
docs/results/passive-ports.md.
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
    """Runs the downloads of one session, each at its scheduled time."""
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
    line = (f"{counts['done']} transfers succeeded in {took:.0f} s: {reached:.0f} a second, with a target of "
            f"{args.rate_per_s:g}. The reply 425: {counts['425']} transfers. Other failures: {counts['other']}.")
    print(f"  {line}", flush=True)
    bench.write(args, "passive-ports", "Small transfers through a thousand passive ports",
                [f"The path has {args.path} in each direction. The server is vsftpd. {SESSIONS} sessions run downloads "
                 f"of {SIZE} bytes. The listener has the ports {LOW}-{HIGH}.", "", line])
    bench.require(counts["425"] == 0, "some downloads received the reply 425")
    bench.require(counts["other"] == 0, "some downloads failed without the reply 425")
    bench.require(counts["done"] > HIGH - LOW + 1, f"not more transfers than ports within {seconds} s")


def extend(parser):
    parser.add_argument("--seconds", type=float, default=300, help="time in which transfers begin")
    parser.add_argument("--rate-per-s", type=float, default=200, help="number of transfers that begin each second")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("1 Gbit/s", "2ms", "0%"), extend=extend)
