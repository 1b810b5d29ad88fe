"""What the optimiser makes of a line: data of several kinds, sent through a pair with it and without it, and by the
means that people have already.

Each figure is the payload's bits by the seconds that the client's process took, by the line's rate: 2.50 x is two and a half
times what the line could carry as it is. Uploads by curl, trees by `lftp mirror`. Beside the optimiser's listener stand

  - a listener without it, over the same link;
  - `rsync -z` through a forward of the same link that codes nothing, to a daemon. What was sent before lies at the
    destination, under the name that the file gets; `-I` makes rsync look into a file that has kept size and time;
  - `zstd -1 | nc` through such a forward;
  - FTP's own compression, MODE Z, by curl from a ProFTPD, through a listener without the optimiser and directly over TCP. These are
    downloads; and they know nothing of what was sent before, so they are measured for the first of each kind only.

Every run has data of its own and a fresh pair with empty stores, whose link is warm. The ways go by turns, and every
file is compared at its destination. `--write` puts the tables into docs/results/optimiser.md.

`--processor` measures what it costs where there is nothing to win: incompressible data at a rate that keeps the machine busy
(`--rate '1 Gbit/s' --rtt 20ms`), with everything on beside everything off; into docs/results/optimiser-processor.md. It takes
two files of `--megabytes` on the disk, and the stores.
"""

import dataclasses
import glob
import os
import random
import re
import shutil
import statistics
import subprocess
import tarfile
import threading
import time
import uuid

import bench
import pages
import servers
from files import digest, make_file
from small_files import SETTINGS, digests
from world import ADDRESS_B, NEAR_PORT, ROOT, Failure, Missing, Path

PLAIN_PORT, MODE_Z_PORT, RSYNC_FORWARD, NC_FORWARD = 2140, 2141, 2142, 2143
RSYNC_PORT, NC_PORT = 873, 9000
TOOLS = ["curl", "lftp", "rsync", "zstd", "nc.openbsd", "ss", "mkfs.ext4", "openssl", "tar", "cp"]
TIMEOUT_S = 3600
# The pair has carried so much before it is measured.
WARM_UP_BYTES = 10_000_000
BLOCK_BYTES = 4096
CHANGED_SHARE = 0.01
SHIFT_BYTES = 7
SMALL_FILES = 10_000
# By the line's rate; they hold for whole sizes only.
REQUIRED = {"file sent twice: again": 20, "VM image: 1 % changed": 10, "source tarball": 3.6}
INCOMPRESSIBLE, INCOMPRESSIBLE_MIN = "JPEG, H.264", 0.98
NEEDS_STORE = ("file sent twice: again", "VM image: 1 % changed")
PROCESSOR_RATE_MIN = 0.95
OPTIMISER, PLAIN = "optimiser", "without"
RSYNC, NC, MODE_Z, MODE_Z_DIRECT = "rsync -z", "zstd -1 \\| nc", "MODE Z", "MODE Z, TCP"
INFLATE = """
import sys, zlib
stream = zlib.decompressobj()
while got := sys.stdin.buffer.read1(1 << 20):
    sys.stdout.buffer.write(stream.decompress(got))
sys.stdout.buffer.write(stream.flush())
"""
WAYS = (OPTIMISER, PLAIN, RSYNC, NC, MODE_Z, MODE_Z_DIRECT)
# The receiver may end so much later than its client: nothing is under way then.
NC_LATER_MAX_S = 0.5
# Measured for the first file of each kind only.
FORGETFUL = (MODE_Z, MODE_Z_DIRECT)


# Data.


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of data: what it is made by, and what is sent after it while a gateway's store knows it."""

    name: str
    what: str
    bytes: int
    # Makes a file, or a tree, of so many bytes: `make(path, size, rng)`.
    make: object
    # By the name of the row: `vary(path, base, rng)`.
    variants: tuple = ()
    # Files of its own size that lie on the disk at once, stores included.
    room: int = 6
    is_tree: bool = False


def source_tarball(path, size, rng):
    """Texts of programs in a tar: one version of each library that this repository is built with, and what lies in the system's
    folders for headers and scripts. Nothing is in it twice."""
    suffixes = (".rs", ".c", ".h", ".cc", ".hpp", ".py", ".pm", ".pl", ".toml", ".md", ".txt", ".sh", ".S", ".js")
    cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    crates = {re.sub(r"-\d.*", "", os.path.basename(folder)): folder
              for folder in sorted(glob.glob(os.path.join(cargo, "registry", "src", "*", "*")))}
    # What was generated from the interfaces of another system is no text that somebody has written.
    folders = [folder for name, folder in sorted(crates.items()) if not name.startswith(("windows", "winapi"))]
    for place in ("/usr/include", "/usr/lib/python3*", "/usr/share/perl"):
        folders += sorted(glob.glob(os.path.join(place, "*", "")))
    folders += [os.path.join(ROOT, name) for name in ("crates", "conformance", "benches", "docs")]
    rng.shuffle(folders)
    seen, total = set(), 0
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        for folder in folders:
            for place, inner, names in os.walk(folder):
                inner.sort()
                for name in sorted(names):
                    file = os.path.join(place, name)
                    if not name.endswith(suffixes) or os.path.islink(file) or os.path.getsize(file) > 256 * 1024:
                        continue
                    which = digest(file)
                    if which in seen:
                        continue
                    seen.add(which)
                    tar.add(file, arcname=file.lstrip("/"))
                    total += os.path.getsize(file)
                    if total >= size:
                        return
    raise Missing(f"{size} bytes of source text; there are {total}")


def log_files(path, size, rng):
    """Lines as a web server logs them."""
    hosts = [f"{rng.randrange(1, 224)}.{rng.randrange(256)}.{rng.randrange(256)}.{rng.randrange(256)}"
             for _ in range(5000)]
    pages_ = [f"/{rng.choice(('shop', 'news', 'api/v2', 'static/img', 'static/js', 'forum'))}/"
              f"{rng.choice(('list', 'item', 'view', 'search', 'thumb', 'edit'))}/{rng.randrange(100_000)}"
              f"{rng.choice(('', '.html', '.png', '.js', '?page=2', '?sort=price'))}" for _ in range(20_000)]
    agents = [f"Mozilla/5.0 ({system}) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{rng.randrange(90, 130)}.0."
              f"{rng.randrange(7000)}.{rng.randrange(200)} Safari/537.36"
              for system in ("X11; Linux x86_64", "Windows NT 10.0; Win64; x64", "Macintosh; Intel Mac OS X 10_15_7")
              for _ in range(40)]
    now_s, written = 1_700_000_000.0, 0
    with open(path, "w") as file:
        while written < size:
            now_s += rng.random() / 5
            written += file.write(
                f'{rng.choice(hosts)} - - [{time.strftime("%d/%b/%Y:%H:%M:%S", time.gmtime(now_s))} +0000] '
                f'"{rng.choice(("GET", "GET", "GET", "GET", "POST", "HEAD"))} {rng.choice(pages_)} HTTP/1.1" '
                f'{rng.choice((200, 200, 200, 200, 304, 302, 404, 500))} {int(rng.expovariate(1 / 20_000))} '
                f'"https://www.example.com{rng.choice(pages_)}" "{rng.choice(agents)}" {rng.random():.3f}\n')


def csv_table(path, size, rng):
    """Numbers, names and dates."""
    parts = ("an", "ber", "ca", "dor", "el", "fin", "gar", "hel", "is", "jo", "ka", "lin", "mar", "na", "ol", "per", "ra", "sen")
    names = ["".join(rng.choices(parts, k=rng.randrange(2, 5))).capitalize() for _ in range(20_000)]
    cities = [name + rng.choice(("ville", "burg", "ton", "stad")) for name in names[:500]]
    number, written = 0, 0
    with open(path, "w") as file:
        written += file.write("id,first name,name,city,date,quantity,price,balance,rate\n")
        while written < size:
            number += 1
            written += file.write(
                f"{number},{rng.choice(names)},{rng.choice(names)},{rng.choice(cities)},"
                f"{rng.randrange(2015, 2026)}-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02},{rng.randrange(1, 500)},"
                f"{rng.randrange(100, 100_000) / 100:.2f},{rng.gauss(0, 5000):.2f},{rng.random():.5f}\n")


def vm_image(path, size, rng):
    """A file system (ext4) with programs and libraries of this machine; a quarter of it is free."""
    files = [os.path.join(place, name) for folder in ("/usr/bin", "/usr/sbin", "/usr/lib")
             for place, _, names in os.walk(folder) for name in names]
    files = sorted(file for file in files if os.path.isfile(file) and not os.path.islink(file))
    rng.shuffle(files)
    staged, total = f"{path}.files", 0
    count_max = size // 32_768
    for number, file in enumerate(files):
        length = os.path.getsize(file)
        if total >= 0.7 * size or number == count_max:
            break
        if total + length > 0.75 * size:
            continue
        place = staged + os.path.dirname(file)
        os.makedirs(place, exist_ok=True)
        try:
            os.link(file, os.path.join(place, os.path.basename(file)))
        except OSError:
            shutil.copy2(file, place)
        total += length
    try:
        with open(path, "wb") as image:
            image.truncate(size // BLOCK_BYTES * BLOCK_BYTES)
        identity = str(uuid.UUID(int=rng.getrandbits(128)))
        subprocess.run(["mkfs.ext4", "-q", "-F", "-b", str(BLOCK_BYTES), "-U", identity, "-E", f"hash_seed={identity}", "-d",
                        staged, path], check=True, env={**os.environ, "E2FSPROGS_FAKE_TIME": "1700000000"})
    finally:
        shutil.rmtree(staged)


def changed(path, base, rng):
    """The base with new contents in one of a hundred blocks, at random places."""
    copy(base, path)
    blocks = os.path.getsize(base) // BLOCK_BYTES
    with open(path, "r+b") as file:
        for block in sorted(rng.sample(range(blocks), max(1, int(blocks * CHANGED_SHARE)))):
            file.seek(block * BLOCK_BYTES)
            file.write(rng.randbytes(BLOCK_BYTES))


def shifted(path, base, rng):
    """The base behind seven bytes more."""
    with open(path, "wb") as file, open(base, "rb") as old:
        file.write(rng.randbytes(SHIFT_BYTES))
        shutil.copyfileobj(old, file, 1 << 20)


def again(path, base, rng):
    """The base itself."""
    os.link(base, path)


def random_bytes(path, size, rng):
    """Bytes as those of compressed pictures and films: none can be spared."""
    seeded = f"{path}.{rng.getrandbits(64):x}"
    make_file(seeded, size)
    os.rename(seeded, path)


def small_similar(path, size, rng):
    """XML of about 4 KiB, alike but for the values."""
    count = max(10, size // 4096)
    for number in range(count):
        place = os.path.join(path, f"{number // 500:03}")
        os.makedirs(place, exist_ok=True)
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', f'<measurement station="{rng.randrange(10_000):05}" serial="{number:07}">',
                 f"  <taken>2026-{rng.randrange(1, 13):02}-{rng.randrange(1, 29):02}T{rng.randrange(24):02}:00:00Z</taken>"]
        lines += [f'  <sensor name="channel-{channel:02}" unit="{rng.choice(("V", "mA", "degC", "hPa"))}" '
                  f'quality="{rng.choice(("good", "good", "good", "fair", "bad"))}"><value>{rng.gauss(20, 7):.4f}</value>'
                  f"<sigma>{rng.random():.4f}</sigma></sensor>" for channel in range(34)]
        with open(os.path.join(place, f"measurement {number:05}.xml"), "w") as file:
            file.write("\n".join([*lines, "</measurement>", ""]))


KINDS = [
    Kind("source tarball", "texts of programs in a tar, no file twice", 100_000_000, source_tarball),
    Kind("log files", "lines of a web server", 100_000_000, log_files),
    Kind("CSV", "numbers, names and dates", 100_000_000, csv_table),
    Kind(INCOMPRESSIBLE, "random bytes", 100_000_000, random_bytes),
    Kind("VM image", "ext4 with programs and libraries, a quarter of it free", 1_000_000_000, vm_image,
         (("VM image: 1 % changed", changed), ("VM image: shifted by 7 bytes", shifted))),
    Kind("file sent twice", "random bytes", 1_000_000_000, random_bytes, (("file sent twice: again", again),)),
    Kind("small files", "XML of 4 KiB, alike but for the values; `lftp mirror` with eight connections", SMALL_FILES * 4096,
         small_similar, is_tree=True),
]


def copy(source, target):
    subprocess.run(["cp", "--reflink=auto", source, target], check=True)


def contents_of(path):
    """A digest, or those of a tree."""
    return digests(path) if os.path.isdir(path) else digest(path)


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


# Places and ways.


class Setup:
    """A world with its servers, and the ways by which data gets to them. A way returns the seconds that its client took and
    the path where the data must be then."""

    def __init__(self, world, args):
        self.world, self.args = world, args
        self.rate_bits_per_s = bits_per_s(args.rate)
        self.vsftpd = servers.start_vsftpd(world)
        # The same user may write wherever a server may.
        self.proftpd = servers.start_proftpd(world, "LoadModule mod_deflate.c", "DeflateEngine on")
        self.start_rsyncd()
        world.allowed += [self.proftpd.place(), f"{ADDRESS_B}:{RSYNC_PORT}", f"{ADDRESS_B}:{NC_PORT}"]
        self.has_store = not args.no_store and self.accepts(self.store("a"))
        self.old = None

    def accepts(self, section):
        """Whether the program knows a section of the configuration."""
        self.world.write_config("a", section)
        done = self.world.run(self.world.longhaul, "gateway", "check", "--config", self.world.path("a.toml"),
                              capture_output=True)
        return done.returncode == 0

    def store(self, site):
        """The section of an empty store."""
        folder = self.world.path(f"store-{site}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return f'[store]\nfolder = "{folder}"\nsize_max = "{self.args.store_size}"\n'

    def start_rsyncd(self):
        config, module = self.world.path("rsyncd.conf"), self.world.path("rsync")
        os.makedirs(module)
        with open(config, "w") as file:
            file.write(f"address = {ADDRESS_B}\nport = {RSYNC_PORT}\npid file = {self.world.path('rsyncd.pid')}\nuid = root\n"
                       f"gid = root\nuse chroot = no\n[files]\npath = {module}\nread only = no\n")
        self.world.start("rsyncd", "b", "rsync", "--daemon", "--no-detach", "--config", config)
        self.world.wait(lambda: self.listens(RSYNC_PORT), "rsync listens")

    def listens(self, port):
        done = self.world.run("ss", "-Hltn", f"sport = :{port}", site="b", capture_output=True)
        return bool(done.stdout.strip())

    def fresh_pair(self):
        """A pair with empty stores and a warm link."""
        world = self.world
        world.stop_pair()
        store = {site: self.store(site) if self.has_store else "" for site in "ab"}
        off = 'compress = "off"\n' + ('dedup = "off"\n' if self.has_store else "")
        listeners = "".join(f'[[ftp]]\nlisten = "127.0.0.1:{port}"\ntarget = "{server.place()}"\n{off}'
                        for port, server in ((PLAIN_PORT, self.vsftpd), (MODE_Z_PORT, self.proftpd)))
        # Forwards code nothing unless they are told to.
        listeners += "".join(f'[[forward]]\nlisten = "127.0.0.1:{port}"\ntarget = "{ADDRESS_B}:{target}"\n'
                         for port, target in ((RSYNC_FORWARD, RSYNC_PORT), (NC_FORWARD, NC_PORT)))
        world.gateway("b", store["b"])
        world.gateway("a", listeners + store["a"])
        world.connected()
        path = world.path("warm-up")
        make_file(path, WARM_UP_BYTES)
        _, arrived = self.by_curl(path, PLAIN_PORT)
        # Downward, too.
        self.timed("curl", "--silent", "--show-error", "-o", path, self.url(self.vsftpd, "127.0.0.1", PLAIN_PORT, path))
        for file in (path, arrived):
            os.remove(file)

    def url(self, server, host, port, path):
        return f"ftp://{server.user}:{server.password}@{host}:{port}{server.folder}/{os.path.basename(path)}"

    def way(self, name):
        return {OPTIMISER: lambda path: self.by_ftp(path, NEAR_PORT), PLAIN: lambda path: self.by_ftp(path, PLAIN_PORT),
                RSYNC: self.by_rsync, NC: self.by_nc,
                MODE_Z: lambda path: self.by_mode_z(path, "127.0.0.1", MODE_Z_PORT),
                MODE_Z_DIRECT: lambda path: self.by_mode_z(path, ADDRESS_B, self.proftpd.port)}[name]

    def timed(self, *command):
        """Runs a client and returns the seconds until its end. A wait with a timeout would see the end up to 50 ms late."""
        with open(self.world.path("clients.log"), "a") as log:
            begun = time.monotonic()
            client = subprocess.Popen(self.world.inside("a", *command), stdout=log, stderr=log)
            guard = threading.Timer(TIMEOUT_S, client.kill)
            guard.start()
            try:
                status = client.wait()
            finally:
                guard.cancel()
            took = time.monotonic() - begun
        bench.require(status == 0, f"{command[0]} ended with {status}")
        return took

    def by_ftp(self, path, listener):
        return self.by_mirror(path, listener) if os.path.isdir(path) else self.by_curl(path, listener)

    def by_curl(self, path, listener):
        took = self.timed("curl", "--silent", "--show-error", "-T", path, self.url(self.vsftpd, "127.0.0.1", listener, path))
        return took, self.vsftpd.file(os.path.basename(path))

    def by_mirror(self, path, listener):
        took = self.timed("lftp", "-c", f"{SETTINGS}; open -p {listener} -u {self.vsftpd.user},{self.vsftpd.password} 127.0.0.1; "
                          f"cd files; mirror --no-perms -P {self.args.parallel} -R {path} tree")
        return took, self.vsftpd.file("tree")

    def by_rsync(self, path):
        """To where the first version lies, if there was one."""
        arrived = self.world.path("rsync", "file")
        if self.old:
            os.link(self.old, arrived)
        names = ["-r", f"{path}/", "rsync://127.0.0.1/files/file/"] if os.path.isdir(path) else [
            path, "rsync://127.0.0.1/files/file"]
        return self.timed("rsync", "-z", "-I", f"--port={RSYNC_FORWARD}", *names), arrived

    def by_nc(self, path):
        arrived, world = self.world.path("nc"), self.world
        is_tree = os.path.isdir(path)
        if is_tree:
            os.makedirs(arrived)
        end = f"tar -x -C '{arrived}'" if is_tree else f"cat > '{arrived}'"
        receiver = world.start("nc", "b", "sh", "-c", f"nc.openbsd -l -d {ADDRESS_B} {NC_PORT} | zstd -dqc | {end}")
        world.wait(lambda: self.listens(NC_PORT), "nc listens")
        begin = f"tar -c -C '{path}' . | zstd -1qc" if is_tree else f"zstd -1qc '{path}'"
        took = self.timed("sh", "-c", f"{begin} | nc.openbsd -N 127.0.0.1 {NC_FORWARD}")
        begun = time.monotonic()
        receiver.wait(60)
        bench.require(time.monotonic() - begun < NC_LATER_MAX_S, "nc's client has ended before its receiver had everything")
        return took, arrived

    def by_mode_z(self, path, host, port):
        """A download: ProFTPD inflates a megabyte of an upload in 13 s, through the gateways or not. curl knows nothing of MODE Z,
        but asks for it, and the next in the pipe inflates."""
        server, name, arrived = self.proftpd, os.path.basename(path), self.world.path("inflated")
        os.link(path, server.file(name))
        # It would wait for as many bytes as the file has.
        took = self.timed("bash", "-c", f"set -o pipefail; curl --silent --show-error --ignore-content-length --quote 'MODE Z' "
                          f"{self.url(server, host, port, path)} | python3 -c '{INFLATE}' > {arrived}")
        os.remove(server.file(name))
        return took, arrived

    def coded(self):
        """What the gateways have coded until now; sums of the near one, and processor time of both."""
        sums = {site: (self.world.status(site) or {}).get("optimiser", {}) for site in "ab"}
        near = sums["a"]
        return {**{key: near.get(key, 0) for key in ("bytes", "wan_bytes", "compression_saved_bytes", "deduplication_saved_bytes")},
                "near_s": near.get("processor_s", 0), "far_s": sums["b"].get("processor_s", 0)}

    def send(self, name, path, contents):
        """Sends by a way, compares what has arrived with `contents`, removes it, and returns the seconds and what was coded
        meanwhile."""
        before = self.coded()
        took, arrived = self.way(name)(path)
        after = self.coded()
        bench.require(contents_of(arrived) == contents, f"{name}: something else arrived")
        remove(arrived)
        return took, {key: after[key] - before[key] for key in after}


# Measuring.


@dataclasses.dataclass
class Row:
    """What the runs of a row have given: by the line's rate, for each way, and what the gateways said of the optimiser's."""

    times_line: dict = dataclasses.field(default_factory=dict)
    coded: list = dataclasses.field(default_factory=list)
    payload: int = 0


def measure_kind(setup, kind, run, size, rows):
    world, args = setup.world, setup.args
    free = shutil.disk_usage(world.folder).free
    if free < kind.room * size + args.free_gb * 1e9:
        raise Missing(f"room for {kind.name}: {kind.room * size / 1e9:.1f} GB beside the {args.free_gb} GB that must stay free in "
                      f"{world.folder}, of which {free / 1e9:.1f} GB are free")
    rng = random.Random(f"{kind.name}, run {run}")
    setup.fresh_pair()
    base, base_seed = world.path("sent"), None
    kind.make(base, size, rng)
    setup.old = None
    ways = [way for way in WAYS if args.way in way and not (os.path.isdir(base) and way in FORGETFUL)]
    if run >= args.peer_runs:
        # What has to be compared in each run.
        compared = (OPTIMISER, PLAIN) if kind.name == INCOMPRESSIBLE else (OPTIMISER,)
        ways = [way for way in ways if way in compared]
    # Each run begins with another way.
    ways = ways[run % len(ways):] + ways[:run % len(ways)]
    for number, (row, vary) in enumerate([(kind.name, None), *kind.variants]):
        path = base
        if vary:
            path = world.path(f"sent{number}")
            vary(path, base, rng)
            setup.old = base
        payload, contents = total_bytes(path), contents_of(path)
        for way in ways if vary is None else [way for way in ways if way not in FORGETFUL]:
            took, coded = setup.send(way, path, contents)
            found = rows.setdefault(row, Row())
            found.payload = payload
            times = payload * 8 / took / setup.rate_bits_per_s
            found.times_line.setdefault(way, []).append(times)
            told = ""
            if way == OPTIMISER:
                found.coded.append(coded)
                told = f", {wan_share([coded])} on the WAN"
            name, load = way.replace("\\", ""), os.getloadavg()[0]
            busy = f", load average {load:.1f}" if load > os.cpu_count() else ""
            print(f"  run {run + 1}, {row}, {name}: {payload / 1e6:.0f} MB in {took:.2f} s, {times:.2f} x{told}{busy}", flush=True)
        if vary:
            os.remove(path)
    remove(base)


def total_bytes(path):
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(os.path.getsize(os.path.join(place, name)) for place, _, names in os.walk(path) for name in names)


def share(coded, key):
    """Median of what `key` is of the coded bytes; none if nothing was coded."""
    shares = [one[key] / one["bytes"] for one in coded if one["bytes"]]
    return statistics.median(shares) if shares else None


def percent(value):
    return "-" if value is None else f"{100 * value:.1f} %"


def wan_share(coded):
    return percent(share(coded, "wan_bytes"))


def seconds_per_gb(coded, key):
    found = share(coded, key)
    return "-" if found is None else f"{found * 1e9:.2f}"


def tables(rows):
    """The rates of all ways, and what the gateways told of the optimiser's."""
    ways = [way for way in WAYS if any(way in row.times_line for row in rows.values())]
    cells = [(name, f"{row.payload / 1e6:.0f}", *(f"{bench.spread(row.times_line[way], 2)}" if way in row.times_line else "-"
                                                 for way in ways)) for name, row in rows.items()]
    told = [(name, wan_share(row.coded), percent(share(row.coded, "compression_saved_bytes")),
             percent(share(row.coded, "deduplication_saved_bytes")), seconds_per_gb(row.coded, "near_s"),
             seconds_per_gb(row.coded, "far_s")) for name, row in rows.items() if row.coded]
    return (pages.table(["by the line's rate", "MB", *ways], cells),
            pages.table(["through the optimiser", "on the WAN", "saved by compression", "saved by deduplication",
                         "coding, s/GB", "decoding, s/GB"], told))


def judge(rows, has_store):
    """Lines that say what is required and reached, and what was missed."""
    lines, missed = [], []

    def compare(what, required, reached):
        lines.append((what, f"{required:.2f}", f"{reached:.2f}", "yes" if reached >= required else "no"))
        if reached < required:
            missed.append(f"{what}: {reached:.2f} of {required:.2f}")

    for name, required in REQUIRED.items():
        if name not in rows or OPTIMISER not in rows[name].times_line:
            continue
        if name in NEEDS_STORE and not has_store:
            lines.append((name, f"{required:.2f}", "-", "not asked: no store"))
            continue
        compare(name, required, statistics.median(rows[name].times_line[OPTIMISER]))
    times = rows[INCOMPRESSIBLE].times_line if INCOMPRESSIBLE in rows else {}
    if OPTIMISER in times and PLAIN in times:
        with_it, without = statistics.median(times[OPTIMISER]), statistics.median(times[PLAIN])
        compare(f"{INCOMPRESSIBLE}: by the rate without the optimiser", INCOMPRESSIBLE_MIN, with_it / without)
    return pages.table(["required", "at least", "reached", "kept"], lines), missed


def measure(world, args):
    if args.processor:
        return measure_processor(world, args)
    setup = Setup(world, args)
    print(f"  {'with' if setup.has_store else 'without'} a store", flush=True)
    runs, scale = (1, 0.1 * args.scale) if args.quick else (args.runs, args.scale)
    kinds = [kind for kind in KINDS if args.only in kind.name]
    bench.require(kinds, f"no kind of data has {args.only!r} in its name: {', '.join(kind.name for kind in KINDS)}")
    rows = {}
    for run in range(runs):
        # Trees are ruled by round trips, and take long.
        for kind in [kind for kind in kinds if run < args.peer_runs or not kind.is_tree]:
            measure_kind(setup, kind, run, int(kind.bytes * scale), rows)
    rates, told = tables(rows)
    required, missed = judge(rows, setup.has_store)
    print("\n".join(["", *rates, "", *told, "", *required]), flush=True)
    of_peers = f", {args.peer_runs} of the other ways and of trees" if args.peer_runs < runs else ""
    about = [f"- {kind.name}: {kind.what}." for kind in kinds]
    bench.write(args, "optimiser", "The optimiser beside other means", [
        f"{args.path}. Payload by the seconds that the client's process took, by the line's rate; median, least and most of "
        f"{runs} runs{of_peers}. Uploads; every file was compared.{'' if setup.has_store else ' Without a store.'}", "", *rates, "",
        "`rsync -z` and `zstd -1 | nc` go through forwards of the same link; what was sent before lies at rsync's destination. "
        "`MODE Z` is a download from ProFTPD by curl, whose output is inflated in a pipe, through a listener without the optimiser, and directly "
        "over TCP: the server inflates too slowly for uploads.", "", *told, "",
        "Coding is the near gateway's, decoding the far one's: processor time by payload.", "", *required, "",
        *about])
    if args.quick or args.scale < 1:
        print("  smaller sizes: set-up has its part in these figures, so none is a failure")
    else:
        bench.require_none(missed)


def measure_processor(world, args):
    """Incompressible data with everything on beside everything off: rates, and the gateways' processor time."""
    setup = Setup(world, args)
    runs, megabytes = (1, args.megabytes // 10) if args.quick else (args.runs, args.megabytes)
    setup.fresh_pair()
    found = {OPTIMISER: [], PLAIN: []}
    for run in range(runs):
        path = world.path("sent")
        random_bytes(path, megabytes * 1_000_000, random.Random(f"processor, run {run}"))
        payload, contents = os.path.getsize(path), digest(path)
        for way in (OPTIMISER, PLAIN) if run % 2 == 0 else (PLAIN, OPTIMISER):
            before = {site: processor_s(world, site) for site in "ab"}
            took, coded = setup.send(way, path, contents)
            per_gb = {site: (processor_s(world, site) - before[site]) / payload * 1e9 for site in "ab"}
            found[way].append((payload * 8 / took / 1e6, per_gb["a"], per_gb["b"], coded["near_s"] / payload * 1e9,
                               coded["far_s"] / payload * 1e9))
            print("  run {}, {}: {:.1f} Mbit/s, near {:.2f} s/GB, far {:.2f} s/GB, of which coding {:.2f} and decoding {:.2f}"
                  .format(run + 1, way, *found[way][-1]), flush=True)
        os.remove(path)
    rows = [(name, *(bench.spread([one[column] for one in samples], digits) for column, digits in enumerate((1, 2, 2, 2, 2))))
            for name, samples in found.items()]
    rates = [statistics.median([one[0] for one in found[way]]) for way in (OPTIMISER, PLAIN)]
    ratio = rates[0] / rates[1]
    table = pages.table(["", "Mbit/s", "near gateway, s/GB", "far gateway, s/GB", "of which coding", "of which decoding"], rows)
    verdict = pages.table(["required", "at least", "reached"],
                          [("rate with everything on, by that with everything off", PROCESSOR_RATE_MIN, f"{ratio:.3f}")])
    print("\n".join(["", *table, "", *verdict]), flush=True)
    bench.write(args, "optimiser-processor", "What the optimiser costs where there is nothing to win", [
        f"{args.path}. Random bytes, {megabytes} MB, curl's upload to vsftpd; median, least and most of {runs} runs, by turns. "
        f"{'With' if setup.has_store else 'Without'} a store. Processor time of the gateways' processes, and what they tell "
        "of the optimiser's part.", "", *table, "", *verdict])
    if not args.quick:
        bench.require_none([f"{ratio:.3f} of {PROCESSOR_RATE_MIN}"] if ratio < PROCESSOR_RATE_MIN else [])


def processor_s(world, site):
    """What the gateway of a site has taken of processors since its start."""
    with open(f"/proc/{world.processes[f'gateway-{site}'].pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bits_per_s(rate):
    """`100 Mbit/s` as a number."""
    found = re.fullmatch(r"([\d.]+) *([kMG]?)bit/s", rate)
    if not found:
        raise Failure(f"{rate}: not a rate such as '100 Mbit/s'")
    return float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def extend(parser):
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-runs", type=int, default=3, help="in later runs only the optimiser")
    parser.add_argument("--only", default="", help="kinds of data with this in their names")
    parser.add_argument("--way", default="", help="ways with this in their names")
    parser.add_argument("--scale", type=float, default=1.0, help="sizes by this; below 1 no bound is held against the figures")
    parser.add_argument("--no-store", action="store_true", help="gateways without a store of chunks")
    parser.add_argument("--store-size", default="8 GiB", help="most bytes in the store of each gateway")
    parser.add_argument("--free-gb", type=float, default=2.0, help="what must stay free on the disk")
    parser.add_argument("--parallel", type=int, default=8, help="connections of lftp mirror")
    parser.add_argument("--processor", action="store_true", help="the cost where there is nothing to win, instead")
    parser.add_argument("--megabytes", type=int, default=4000, help="of each file of --processor")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("100 Mbit/s", "100ms", "0%"), TOOLS, extend)
