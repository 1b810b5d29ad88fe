"""SFTP, scp and rsync over a long path.

Each client runs through an SSH listener of the gateways, directly, and through a `[[forward]]` of the same link. The
bench has these parts. Each part has bounds for the way through the listener:

  - `bulk` uploads and downloads a large file. The figure is the ideal time divided by the time of the client's process,
    which includes the login. The ideal time is the time of the file at 94 % of the path's rate, reduced by the loss,
    plus two round trips. The clients curl and paramiko upload through a listener with `early = "all"`, because they
    wait for each batch of writes.
  - `small files` transfers 200 files of 10 KB. The figure is in seconds.
  - `log-in` runs `ssh host true`. The figure is in round trips.
  - `1 Gbit/s` transfers a file of 2.5 GB by sftp.
  - `processor` measures the processor time of each gateway for a GB by sftp. The bench subtracts the processor time for
    the same number of bytes through a forward.
  - `RTT 0` runs sftp and rsync at a round-trip time of 0. The figure is the rate divided by the rate of the direct way.

`longhaul copy` with `--gateway` and `--peer` takes part in `bulk` and in `small files`. The row of `--gateway` contains
its direct way.

The direct way and the forward use smaller files (`--peer-megabytes`), because their rates do not depend on the size.
Each run begins with another way. The bench compares each file at its destination, and the link is warm. `--write`
writes the table to docs/results/ssh.md.
"""

import dataclasses
import os
import re
import shutil
import socket
import statistics
import subprocess
import threading
import time

import bench
import pages
import ssh_servers
import ssh_world
from files import assert_same, make_file
from ssh_clients import CLIENTS, MOVER_KEY, MOVERS, Cell, cipher_of, fingerprint, missing_program, ssh_options
from world import ADDRESS_B, Missing, Path, World

LISTENER, EARLY_LISTENER, FORWARD, BYTES_FORWARD, BYTES_PORT = 2301, 2302, 2303, 2304, 9000
PAYLOAD_SHARE, IDEAL_TRIPS = 0.94, 2
GATEWAYS, EARLY, DIRECT, FORWARDED = "gateways", 'gateways, early = "all"', "directly", "forward"
WARM_UP_BYTES = 20_000_000
SMALL_FILES, QUICK_SMALL_FILES, SMALL_BYTES = 200, 20, 10_000
TIMEOUT_S = 3600
PROCESSOR_MAX_S_PER_GB = 0.6
LOG_IN_MAX_TRIPS = 4
RTT_0_MIN = 0.9

# Minimum fraction of the ideal, by client and direction.
BULK = {**{(client, direction): 0.88 for client in ("sftp", "scp", "sshfs", "lftp", "rclone") for direction in ("put", "get")},
        **{(client, direction): 0.85 for client in ("rsync", "scp -O") for direction in ("put", "get")},
        **{(client, direction): 0.80 for client in ("curl", "paramiko") for direction in ("put", "get")}}
EARLY_PUTS = ("curl", "paramiko")
MOVER_OPTIONS = ("longhaul copy --gateway", "longhaul copy --peer")
MOVER_BULK = {(client, direction): 0.90 for client in MOVER_OPTIONS for direction in ("put", "get")}
# Maximum number of seconds, by client and direction. `None` means no limit.
SMALL = {("rsync", "put"): 10, ("rsync", "get"): 10, ("sftp", "put"): None, ("sftp", "get"): 90,
         **{(client, direction): 4 for client in MOVER_OPTIONS for direction in ("put", "get")}}


@dataclasses.dataclass
class Row:
    """One line of the table: the figures of each way, and the bound for the way through the gateways."""

    name: str
    unit: str
    digits: int
    # Relation of the figure to the bound: `>=` or `<=`.
    sign: str = ""
    bound: float = None
    figures: dict = dataclasses.field(default_factory=dict)
    note: str = ""

    def add(self, way, figure):
        self.figures.setdefault(way, []).append(figure)
        print(f"  {self.name}, {way}: {figure:.{self.digits}f} {self.unit}", flush=True)

    def missed(self):
        """Returns a text about the missed bound, or None if the row has no missed bound."""
        way = EARLY if EARLY in self.figures else GATEWAYS
        if self.bound is None or way not in self.figures:
            return None
        reached = statistics.median(self.figures[way])
        is_kept = reached >= self.bound if self.sign == ">=" else reached <= self.bound
        return None if is_kept else f"{self.name}: {reached:.{self.digits}f} {self.unit}, not {self.sign} {self.bound}"

    def cells(self):
        columns = [bench.spread(self.figures[way], self.digits) if way in self.figures else "-"
                   for way in (GATEWAYS, EARLY, DIRECT, FORWARDED)]
        required = f"{self.sign} {self.bound}" if self.bound is not None else "-"
        verdict = "-" if self.bound is None or not {GATEWAYS, EARLY} & set(self.figures) else "no" if self.missed() else "yes"
        return self.name, self.unit, *columns, required, verdict


class Setup:
    """A server, a pair of gateways, and the address of each way.

    The pair has SSH listeners if the program supports `[[ssh]]`.
    """

    def __init__(self, world, args):
        self.world, self.args = world, args
        self.server = ssh_servers.start_openssh(world)
        self.has_gateways = ssh_world.knows_ssh(world)
        key = world.keygen(MOVER_KEY)
        self.peers = f'[[peer]]\nname = "{MOVER_KEY}"\npublic_key = "{key}"\n'
        self.start_pair()

    def start_pair(self):
        target = self.server.place()
        world = self.world
        world.allowed = [target, f"{ADDRESS_B}:{BYTES_PORT}"]
        near = "".join(f'[[forward]]\nlisten = "127.0.0.1:{port}"\ntarget = "{where}"\n'
                       for port, where in ((FORWARD, target), (BYTES_FORWARD, f"{ADDRESS_B}:{BYTES_PORT}")))
        if self.has_gateways:
            near += ssh_world.listener(LISTENER, target) + ssh_world.listener(EARLY_LISTENER, target, early="all")
            ssh_world.start_pair(world, near, [self.server.known_host()], peers=self.peers)
        else:
            world.pair(near)

    def ways(self, early=False, client=None):
        """Returns the addresses of the available ways, by name."""
        if client in MOVER_OPTIONS:
            found = self.ways()
            named = (GATEWAYS, DIRECT) if client == MOVER_OPTIONS[0] else (GATEWAYS,)
            return {way: where for way, where in found.items() if way in named}
        found = {EARLY if early else GATEWAYS: ("127.0.0.1", EARLY_LISTENER if early else LISTENER)} if self.has_gateways else {}
        found |= {DIRECT: (ADDRESS_B, self.server.port), FORWARDED: ("127.0.0.1", FORWARD)}
        return {way: where for way, where in found.items() if self.args.way in way}

    def cell(self, where):
        cell = Cell(self.world, self.server, *where, timeout=TIMEOUT_S)
        cell.fresh()
        return cell

    def move(self, client, direction, where, size):
        """Transfers a file by a client and compares the result. Returns the seconds of the client."""
        cell = self.cell(where)
        source, target = cell.here("moved"), self.server.file("moved")
        if direction == "get":
            source, target = target, cell.got("moved")
        make_file(source, size)
        mover = program_of(client, cell)
        verb = mover.put if direction == "put" else mover.get
        begun = time.monotonic()
        verb(cell, "moved")
        took = time.monotonic() - begun
        bench.require(cell.status == 0, f"{client} {direction}: exit status {cell.status}: {cell.said[-300:]}")
        assert_same(source, target)
        cell.fresh()
        return took

    def warm_up(self):
        """Sends files in both directions, so that the link measures its path."""
        for direction in ("put", "get"):
            if self.has_gateways:
                self.move("sftp", direction, ("127.0.0.1", LISTENER), WARM_UP_BYTES)


def program_of(client, cell):
    """Returns the client for a cell. On the direct way, `longhaul copy` has no option for a gateway."""
    if client not in MOVERS:
        return CLIENTS[client]
    # This call caches the fingerprint, so the measured time excludes the query of the host key.
    fingerprint(cell)
    return MOVERS["longhaul copy" if cell.host == ADDRESS_B else client]


def ideal_s(path, size):
    loss = float(path.loss.rstrip("%")) / 100
    return size * 8 / (PAYLOAD_SHARE * bits_per_s(path.rate) * (1 - loss)) + IDEAL_TRIPS * seconds_of(path.rtt)


def wanted(args, name):
    return any(text in name for text in args.only.split(","))


def here(client):
    """Returns whether a client is installed on this machine, and prints a message if not."""
    if client not in MOVERS and (missing := missing_program(client)):
        print(f"  {client} is omitted: {missing} is not installed", flush=True)
        return False
    return True


def by_turns(ways, run):
    """Returns the ways of a run in order. Each run begins with another way."""
    ways = list(ways.items())
    return ways[run % len(ways):] + ways[:run % len(ways)] if ways else []


def measure_bulk(setup, args, rows, name="bulk", clients=BULK, size=None, bounds=BULK):
    size = size or args.megabytes * 1_000_000
    for client, direction in clients:
        row = Row(f"{name}: {client} {direction}, {size / 1e9:g} GB", "of ideal", 2, ">=", bounds[client, direction])
        if not wanted(args, row.name) or not here(client):
            continue
        ways = setup.ways(client in EARLY_PUTS and direction == "put", client)
        for run in range(args.runs):
            for way, where in by_turns(ways, run):
                is_peer = way in (DIRECT, FORWARDED)
                if is_peer and run >= args.peer_runs:
                    continue
                amount = min(size, args.peer_megabytes * 1_000_000) if is_peer else size
                row.add(way, ideal_s(args.path, amount) / setup.move(client, direction, where, amount))
        rows.append(row)


def measure_small_files(setup, args, rows):
    for (client, direction), most in SMALL.items():
        count = QUICK_SMALL_FILES if args.quick else SMALL_FILES
        row = Row(f"small files: {client} {direction}, {count} of {SMALL_BYTES // 1000} KB", "s", 1, "<=", most)
        if not wanted(args, row.name) or not here(client):
            continue
        for run in range(args.runs):
            for way, where in by_turns(setup.ways(client=client), run):
                if way in (DIRECT, FORWARDED) and run >= args.peer_runs:
                    continue
                row.add(way, small_files(setup, client, direction, where, count))
        rows.append(row)


def small_files(setup, client, direction, where, count):
    cell = setup.cell(where)
    source, target = cell.here("tree"), setup.server.file("tree")
    if direction == "get":
        source, target = target, cell.got("tree")
    os.makedirs(source)
    for number in range(count):
        with open(os.path.join(source, f"file {number:03}"), "wb") as file:
            file.write(os.urandom(SMALL_BYTES))
    mover = program_of(client, cell)
    begun = time.monotonic()
    (mover.tree_put if direction == "put" else mover.tree_get)(cell, "tree")
    took = time.monotonic() - begun
    bench.require(cell.status == 0, f"{client} {direction}: exit status {cell.status}: {cell.said[-300:]}")
    for number in range(count):
        name = f"file {number:03}"
        assert_same(os.path.join(source, name), os.path.join(target, name))
    cell.fresh()
    return took


def measure_log_in(setup, args, rows):
    row = Row("log-in: ssh host true", "round trips", 1, "<=", LOG_IN_MAX_TRIPS)
    if not wanted(args, row.name):
        return
    rtt_s = seconds_of(args.rtt)
    for run in range(max(args.runs, 1 if args.quick else 5)):
        for way, where in by_turns(setup.ways(), run):
            cell = setup.cell(where)
            begun = time.monotonic()
            cell.run("ssh", *ssh_options(cell, "-p"), f"{cell.user}@{cell.host}", "true")
            took = time.monotonic() - begun
            bench.require(cell.status == 0, f"ssh host true: {cell.said[-300:]}")
            row.add(way, took / rtt_s)
    rows.append(row)


def measure_processor(setup, args, rows):
    """Measures the processor time of the gateways by sftp and through a forward, for the same number of bytes."""
    size = args.megabytes * 1_000_000
    names = {site: f"processor: {what} gateway, {{}}" for site, what in (("a", "near"), ("b", "far"))}
    if not setup.has_gateways or not any(wanted(args, name) for name in names.values()):
        return
    # The bound assumes AES-GCM. ChaCha20 takes twice as long.
    cipher = cipher_of(setup.cell(("127.0.0.1", LISTENER))).removesuffix("@openssh.com")
    for direction in ("put", "get"):
        found = {site: Row(names[site].format(f"sftp {direction}, {cipher}"), "s/GB beyond the link's", 2, "<=", PROCESSOR_MAX_S_PER_GB)
                 for site in "ab"}
        for run in range(args.runs):
            link = spent(setup, lambda: send_bytes(setup, direction, size), size)
            ssh = spent(setup, lambda: setup.move("sftp", direction, ("127.0.0.1", LISTENER), size), size)
            for site, row in found.items():
                row.add(GATEWAYS, ssh[site] - link[site])
                print(f"    {ssh[site]:.2f} s/GB, of which the link uses {link[site]:.2f}", flush=True)
        rows += found.values()


def spent(setup, call, size):
    before = {site: processor_s(setup.world, site) for site in "ab"}
    call()
    return {site: (processor_s(setup.world, site) - before[site]) / size * 1e9 for site in "ab"}


def send_bytes(setup, direction, size):
    """Sends bytes without repetitions through the forward, up or down."""
    world = setup.world
    path = world.path("bytes")
    make_file(path, size)
    with world.entered("b"):
        listener = socket.create_server((ADDRESS_B, BYTES_PORT))
    with world.entered("a"):
        near = socket.create_connection(("127.0.0.1", BYTES_FORWARD))
    with listener, near:
        # An accepted socket is in the namespace of its listener.
        far, _ = listener.accept()
        with far:
            source, sink = (near, far) if direction == "put" else (far, near)

            def send():
                with open(path, "rb") as file:
                    source.sendfile(file)
                source.shutdown(socket.SHUT_WR)

            sender = threading.Thread(target=send)
            sender.start()
            left = size
            buffer = bytearray(1 << 20)
            while left and (got := sink.recv_into(buffer)):
                left -= got
            sender.join()
    os.remove(path)
    bench.require(left == 0, f"{left} of {size} bytes did not arrive")


def measure_no_distance(args, rows):
    """Measures sftp and rsync at a round-trip time of 0, in comparison with the direct way."""
    names = [(client, direction) for client in ("sftp", "rsync") for direction in ("put", "get")]
    if not any(wanted(args, no_distance_name(*name)) for name in names):
        return
    path = Path("1 Gbit/s", "0ms", "0%")
    with World(args.longhaul, path, args.keep) as inner:
        setup = Setup(inner, args)
        if not setup.has_gateways:
            return
        setup.warm_up()
        size = args.megabytes * 1_000_000
        for client, direction in names:
            row = Row(no_distance_name(client, direction), "by the direct rate", 2, ">=", RTT_0_MIN)
            if not wanted(args, row.name):
                continue
            for _ in range(args.runs):
                direct = setup.move(client, direction, (ADDRESS_B, setup.server.port), size)
                through = setup.move(client, direction, ("127.0.0.1", LISTENER), size)
                row.add(GATEWAYS, direct / through)
            rows.append(row)


def no_distance_name(client, direction):
    return f"RTT 0: {client} {direction}, 1 Gbit/s"


def is_fast_wanted(args):
    return any(wanted(args, f"1 Gbit/s: sftp {direction}, {args.megabytes * 2.5 / 1000:g} GB") for direction in ("put", "get"))


def measure_fast(args, rows):
    """Measures sftp at 1 Gbit/s, with a file of 2.5 times `--megabytes`."""
    sizes = {"put": 0.85, "get": 0.85}
    if not is_fast_wanted(args):
        return
    path = Path("1 Gbit/s", args.path.rtt, args.path.loss)
    inner_args = type(args)(**{**vars(args), "path": path})
    with World(args.longhaul, path, args.keep) as inner:
        setup = Setup(inner, inner_args)
        setup.warm_up()
        size = args.megabytes * 2_500_000
        bounds = {("sftp", direction): least for direction, least in sizes.items()}
        measure_bulk(setup, inner_args, rows, "1 Gbit/s", list(bounds), size, bounds)


def processor_s(world, site):
    """Returns the processor time of the gateway of a site since its start, in seconds."""
    with open(f"/proc/{world.processes[f'gateway-{site}'].pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bits_per_s(rate):
    found = re.fullmatch(r"([\d.]+) *([kMG]?)bit/s", rate)
    bench.require(found, f"the rate {rate} is invalid; write it like '100 Mbit/s'")
    return float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def seconds_of(text):
    bench.require(text.endswith("ms"), "--rtt must be a number of ms, such as 200ms")
    return float(text[:-2]) / 1000


def measure(world, args):
    if args.quick:
        args.runs, args.peer_runs, args.megabytes, args.peer_megabytes = 1, 1, min(args.megabytes, 100), min(args.peer_megabytes, 10)
    # Both sites store the largest file.
    room = 2.2e6 * args.megabytes * (2.5 if is_fast_wanted(args) else 1)
    if shutil.disk_usage(world.folder).free < room:
        raise Missing(f"{room / 1e9:.1f} GB of free disk space in {world.folder}")
    rows = []
    setup = Setup(world, args)
    if not setup.has_gateways:
        print("  the program does not support [[ssh]], so the bench omits the SSH listener", flush=True)
    setup.warm_up()
    measure_bulk(setup, args, rows)
    if setup.has_gateways:
        measure_bulk(setup, args, rows, clients=MOVER_BULK, bounds=MOVER_BULK)
    measure_small_files(setup, args, rows)
    measure_log_in(setup, args, rows)
    measure_processor(setup, args, rows)
    world.stop_pair()
    measure_fast(args, rows)
    measure_no_distance(args, rows)
    bench.require(rows, f"no row has {args.only!r} in its name")
    table = pages.table(["", "", GATEWAYS, EARLY, DIRECT, FORWARDED, "required", "kept"], [row.cells() for row in rows])
    print("\n".join(["", *table]), flush=True)
    client = subprocess.run(["ssh", "-V"], capture_output=True, text=True).stderr.strip()
    bench.write(args, "ssh", "SSH, SFTP and rsync over long paths", [
        f"The path has {args.path}, unless a row names another path. The server is OpenSSH ({client}). The cells show "
        f"the median (lowest..highest) of {args.runs} runs. The direct way and the way through a `[[forward]]` have "
        f"{args.peer_runs} runs with files of at most {args.peer_megabytes} MB. [Measuring](../measuring.md#ideal) "
        f"defines the ideal time, here with {IDEAL_TRIPS} round trips.", "", *table])
    if args.quick:
        print("  with small files the login affects the figures, so the bench checks no bound")
    else:
        bench.require_none([missed for row in rows if (missed := row.missed())])


def extend(parser):
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-runs", type=int, default=1, help="number of runs of the direct way and of the forward")
    parser.add_argument("--only", default="",
                        help="run only rows whose names contain one of these texts, such as 'lftp,log-in'")
    parser.add_argument("--way", default="", help="run only ways whose names contain this text")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--peer-megabytes", type=int, default=50,
                        help="maximum size of files of the direct way and of the forward")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300 Mbit/s", "200ms", "0.1%"), ["sftp", "rsync", "sshd"], extend)
