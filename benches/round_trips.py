#!/usr/bin/env python3
"""What users wait for at a long round-trip time, counted in round trips of the WAN.

FileZilla's and curl's commands, scripted so that each step waits for what those clients wait for, and the
real curl; directly, in strict mode, in fast mode, and in fast mode with USER name@server. FileZilla
sends a transfer's command while it connects, and uploads without waiting for the 150; curl waits for
both. `--write` puts the table into docs/results/round-trips.md.
"""

import statistics
import urllib.parse

import pages
import servers as ftp_servers
import talk
from world import ADDRESS_B, CHOICE, check, main, make_file

STRICT_DOOR, FAST_DOOR = 2130, 2140
# What the machine takes beside the path: a quarter of a round trip would be another one.
SLACK_ROUND_TRIPS = 0.1
SMALL_BYTES = 10_000

LISTED = "connect to end of first listing"
DOWN = "small download"
UP = "small upload"
UP_150 = "small upload that waits for 150"
CURL = "curl's commands, 10 KB down"
REAL_CURL = "real curl, 10 KB down"

WAYS = ["directly", "strict", "fast", "fast, user@host"]

# Most round trips, by step and way.
TARGETS = {
    (LISTED, "fast"): 5, (LISTED, "fast, user@host"): 4,
    **{(step, way): most for way in WAYS[2:]
       for step, most in [(DOWN, 1), (UP, 1), (UP_150, 2), ("SIZE", 1), ("MDTM", 1), ("CWD", 1)]},
}


def filezilla(client_at, server, name):
    """FileZilla's session. Returns seconds by step."""
    seconds = {}

    def connect_and_list():
        client = client_at()
        for command in ("AUTH TLS", "AUTH SSL"):
            if client.ask(command).code == 234:
                raise talk.Unexpected(f"{command} is accepted, and nobody asked for TLS")
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
    content = open(server.file("small"), "rb").read()
    with clients[0] as client:
        def step(name, call, *arguments):
            seconds[name] = talk.timed(call, *arguments)

        step("CWD", client.ask, f"CWD {server.folder}", 250)
        step("PWD after CWD", client.ask, "PWD", 257)
        # What was asked ahead has come by now, whoever waits for it.
        got = []
        step(DOWN, lambda: got.append(client.download_eagerly("RETR small")))
        if got != [content]:
            raise talk.Unexpected(f"{server.name}: another file came")
        step(UP, client.upload_eagerly, "STOR up", content)
        step(UP_150, client.upload, "STOR up", content)
        step("SIZE", client.ask, "SIZE up", 213)
        step("MDTM", client.ask, "MDTM up", 213)
        client.ask("DELE up", 250)
        client.ask("QUIT", 221)
    return seconds


def curl(client_at, server, name):
    """The commands of `curl -o FILE ftp://…/files/small`, up to the file's final reply."""
    with client_at() as client:
        client.log_in(name, server.password)
        client.ask("PWD", 257)
        client.ask("CWD files", 250)
        data = client.connect(client.passive("EPSV"))
        client.ask("TYPE I", 200)
        client.ask("SIZE small", 213)
        client.send("RETR small")
        client._receive(data, "RETR small")


def real_curl(world, server, name, host, port):
    who = f"{urllib.parse.quote(name, safe='')}:{server.password}"
    done = world.run("curl", "-sS", "--fail", "-o", "/dev/null", "-w", "%{time_total}",
                     f"ftp://{who}@{host}:{port}/files/small", check=True, capture_output=True,
                     text=True)
    return float(done.stdout)


def job(world, args):
    servers = {name: server for name, server in ftp_servers.start_all(world).items()
               if name in args.servers}
    texts = []
    for mode, first in [("strict", STRICT_DOOR), ("fast", FAST_DOOR)]:
        doors, ports = ftp_servers.doors_of(servers, first)
        texts.append((mode, ports, doors.replace("[[ftp]]\n", f'[[ftp]]\nmode = "{mode}"\n')))
    world.far_allow = ", ".join(f'"{ADDRESS_B}:{server.port}"' for server in servers.values())
    world.gateway("b")
    world.gateway("a", "".join(text for _, _, text in texts))
    world.connected()
    rtt_s = seconds_of(args.rtt)

    rows, missed = [], []
    for server in servers.values():
        make_file(server.file("small"), SMALL_BYTES)
        where = {"directly": (ADDRESS_B, server.port, server.user),
                 **{mode: ("127.0.0.1", ports[server.name], server.user)
                    for mode, ports, _ in texts},
                 "fast, user@host": ("127.0.0.1", CHOICE,
                                     f"{server.user}@{ADDRESS_B}:{server.port}")}
        measured = {}
        for _ in range(args.runs):
            for way, (host, port, name) in where.items():
                at = lambda: talk.Client(world, host, port)
                steps = filezilla(at, server, name)
                steps[CURL] = talk.timed(curl, at, server, name)
                steps[REAL_CURL] = real_curl(world, server, name, host, port)
                for step, seconds in steps.items():
                    measured.setdefault((step, way), []).append(seconds)
        print(f"{server.name}: median of {args.runs}, round trips of {args.rtt} (seconds)")
        for step in dict.fromkeys(step for step, _ in measured):
            cells = []
            for way in WAYS:
                seconds = statistics.median(measured[step, way])
                trips, most = seconds / rtt_s, TARGETS.get((step, way))
                over = most is not None and trips > most + SLACK_ROUND_TRIPS
                if over:
                    missed.append(f"{server.name}, {step}, {way}: {trips:.2f} > {most}")
                cells.append(f"{trips:.2f} ({seconds:.2f} s)"
                             + (f", {'MISSED' if over else ''} <= {most}" if most else ""))
            rows.append([server.name, step, *cells])
            print(f"  {step:32} " + "  ".join(f"{cell:22}" for cell in cells), flush=True)
    if args.write:
        pages.write("round-trips", "Round trips", [
            f"{args.rate}, RTT {args.rtt}, loss {args.loss}. Median of {args.runs} sessions, in round trips "
            f"(and seconds), with the target where there is one.", "",
            *pages.table(["server", "step", *WAYS], rows)])
    check(not missed, f"each step within its target {'; '.join(missed)}")


def seconds_of(text):
    if not text.endswith("ms"):
        raise SystemExit("--rtt in ms")
    return float(text[:-2]) / 1000


def extend(parser):
    parser.set_defaults(rate="100 Mbit/s", rtt="600ms", loss="0%")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--servers", nargs="+", default=["vsftpd", "ProFTPD"])
    parser.add_argument("--write", action="store_true", help="write docs/results/round-trips.md")


if __name__ == "__main__":
    main(job, __doc__, "curl", "openssl", extend=extend)
