"""Waiting times of users at a long round-trip time, in round trips of the WAN.

The bench runs scripts with the commands of FileZilla and of curl, and it runs the real curl. Each step of a script
waits for the same replies as the imitated client. FileZilla sends a transfer's command while its data connection
opens, and uploads without the reply 150. The client curl waits for the connection and for the reply 150. The bench
measures direct connections, strict mode, fast mode, and fast mode with USER name@server. `--write` writes the table to
docs/results/round-trips.md.
"""

import statistics
import urllib.parse

import bench
import pages
import servers
import talk
from files import content, make_file
from world import ADDRESS_B, CHOICE, Path

STRICT_PORT, FAST_PORT = 2130, 2140
# Allowance for the processing time of the machine. A larger allowance could hide an additional round trip.
SLACK_ROUND_TRIPS = 0.1
SMALL_BYTES = 10_000

LISTED = "connect to end of first listing"
DOWN = "small download"
UP = "small upload"
UP_150 = "small upload that waits for 150"
CURL = "curl's commands, 10 KB down"
REAL_CURL = "real curl, 10 KB down"

WAYS = ["directly", "strict", "fast", "fast, user@host"]

# Maximum number of round trips, by step and way.
TARGETS = {
    (LISTED, "fast"): 5, (LISTED, "fast, user@host"): 4,
    **{(step, way): most for way in WAYS[2:]
       for step, most in [(DOWN, 1), (UP, 1), (UP_150, 2), ("SIZE", 1), ("MDTM", 1), ("CWD", 1)]},
}


def filezilla(client_at, server, name):
    """Runs a session with FileZilla's commands, and returns the seconds of each step."""
    seconds = {}

    def connect_and_list():
        client = client_at()
        for command in ("AUTH TLS", "AUTH SSL"):
            if client.ask(command).code == 234:
                raise talk.Unexpected(f"{command} is accepted, although no TLS is configured")
        client.log_in(name, server.password)
        client.ask("SYST", 215)
        features = client.ask("FEAT")
        if "UTF8" in features:
            client.ask("OPTS UTF8 ON", 200)
        client.ask("PWD", 257)
        client.ask("TYPE I", 200)
        listing = "MLSD" if "MLST" in features else "LIST"
        client.download_eagerly(listing)
        return client

    clients = []
    seconds[LISTED] = talk.timed(lambda: clients.append(connect_and_list()))
    small = content(server.file("small"))
    with clients[0] as client:
        def step(name, call, *arguments):
            seconds[name] = talk.timed(call, *arguments)

        step("CWD", client.ask, f"CWD {server.folder}", 250)
        step("PWD after CWD", client.ask, "PWD", 257)
        # Replies to commands that a gateway sent ahead have arrived by now.
        got = []
        step(DOWN, lambda: got.append(client.download_eagerly("RETR small")))
        if got != [small]:
            raise talk.Unexpected(f"{server.name}: the downloaded file has other contents")
        step(UP, client.upload_eagerly, "STOR up", small)
        step(UP_150, client.upload, "STOR up", small)
        step("SIZE", client.ask, "SIZE up", 213)
        step("MDTM", client.ask, "MDTM up", 213)
        client.ask("DELE up", 250)
        client.ask("QUIT", 221)
    return seconds


def curl(client_at, server, name):
    """Sends the commands of `curl -o FILE ftp://…/files/small`, and receives the file and its final reply."""
    with client_at() as client:
        client.log_in(name, server.password)
        client.ask("PWD", 257)
        client.ask("CWD files", 250)
        data = client.connect(client.passive("EPSV"))
        client.ask("TYPE I", 200)
        client.ask("SIZE small", 213)
        client.send("RETR small")
        client.receive(data, "RETR small")


def real_curl(world, server, name, host, port):
    who = f"{urllib.parse.quote(name, safe='')}:{server.password}"
    done = world.run("curl", "-sS", "--fail", "-o", "/dev/null", "-w", "%{time_total}",
                     f"ftp://{who}@{host}:{port}/files/small", check=True, capture_output=True,
                     text=True)
    return float(done.stdout)


def measure_server(world, args, server, ports):
    """Returns the seconds of all runs, by step and way."""
    make_file(server.file("small"), SMALL_BYTES)
    where = {"directly": (ADDRESS_B, server.port, server.user),
             **{mode: ("127.0.0.1", ports[mode][server.name], server.user) for mode in ports},
             "fast, user@host": ("127.0.0.1", CHOICE, f"{server.user}@{server.place()}")}
    measured = {}
    for _ in range(args.runs):
        for way, (host, port, name) in where.items():
            at = lambda: talk.Client(world, host, port)
            steps = filezilla(at, server, name)
            steps[CURL] = talk.timed(curl, at, server, name)
            steps[REAL_CURL] = real_curl(world, server, name, host, port)
            for step, seconds in steps.items():
                measured.setdefault((step, way), []).append(seconds)
    return measured


def measure(world, args):
    rtt_s = seconds_of(args.rtt)
    args.runs = 1 if args.quick else args.runs
    found = servers.start_all(world, names=args.servers)
    ports, text = {}, ""
    for mode, first in [("strict", STRICT_PORT), ("fast", FAST_PORT)]:
        listeners, ports[mode] = servers.listeners_of(found, first)
        text += listeners.replace("[[ftp]]\n", f'[[ftp]]\nmode = "{mode}"\n')
    world.allowed = [server.place() for server in found.values()]
    world.pair(text)
    rows, missed = [], []
    for server in found.values():
        measured = measure_server(world, args, server, ports)
        print(f"{server.name}: round trips of {args.rtt}, median (least..most)")
        for step in dict.fromkeys(step for step, _ in measured):
            cells = []
            for way in WAYS:
                trips = [seconds / rtt_s for seconds in measured[step, way]]
                most = TARGETS.get((step, way))
                is_over = most is not None and statistics.median(trips) > most + SLACK_ROUND_TRIPS
                missed += [f"{server.name}, {step}, {way}: {bench.spread(trips, 2)} > {most}"] * is_over
                cells.append(bench.spread(trips, 2) + (f", {'MISSED ' * is_over}<= {most}" if most else ""))
            rows.append([server.name, step, *cells])
            print(f"  {step:32} " + "  ".join(f"{cell:26}" for cell in cells), flush=True)
    bench.write(args, "round-trips", "Round trips", [
        f"The path has {args.path}. The cells show round trips: the median of {args.runs} sessions (lowest..highest), "
        "and the target if the step has one.", "", *pages.table(["server", "step", *WAYS], rows)])
    bench.require_none(missed)


def seconds_of(text):
    bench.require(text.endswith("ms"), "--rtt must be a number of ms, such as 600ms")
    return float(text[:-2]) / 1000


def extend(parser):
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers", nargs="+", default=["vsftpd", "ProFTPD"])


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("100 Mbit/s", "600ms", "0%"), ["curl"], extend)
