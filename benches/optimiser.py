"""Rates of several kinds of data with the optimiser, without the optimiser, and by other programs that compress.

Each figure is the payload in bits, divided by the seconds of the client's process and by the rate of the path. A
figure of 2.50 x means that the client sends 2.5 times the bytes that the path can carry in the same time. The client
uploads files by curl, and trees by `lftp mirror`. The bench compares the optimiser's listener with these ways:

  - A listener of the same pair without the optimiser.
  - `rsync -z` through a forward without coding, to an rsync daemon. The file that was sent before is at the
    destination, under the name of the new file. The option `-I` makes rsync compare a file even if its size and its
    time are unchanged.
  - `zstd -1 | nc` through such a forward.
  - MODE Z, FTP's own compression, by curl from ProFTPD. One way uses a listener without the optimiser, and the other
    way uses TCP directly. Both ways are downloads. They cannot use files that were sent before, so the bench runs them
    only for the first file of each kind.

Every run of a kind has its own data and a new pair with empty stores. Its link is warm. Each run begins with another
way, and the bench compares every file at its destination. `--write` writes the tables to docs/results/optimiser.md.

`--processor` instead measures the cost of the optimiser for incompressible data. Use it with a rate that keeps the
machine busy (`--rate '1 Gbit/s' --rtt 20ms`). The bench alternates between all coding on and all coding off. It needs
disk space for two files of `--megabytes` and for the stores. Its page is docs/results/optimiser-processor.md.
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
# Bytes that a new pair carries in each direction before the bench measures.
WARM_UP_BYTES = 10_000_000
BLOCK_BYTES = 4096
CHANGED_SHARE = 0.01
SHIFT_BYTES = 7
SMALL_FILES = 10_000
# Required rates, divided by the rate of the path. They apply only to files of full size.
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
# Maximum number of seconds between the end of the nc client and the end of its receiver. The limit shows that the
# client did not end long before the last byte arrived.
NC_LATER_MAX_S = 0.5
# Ways that the bench runs only for the first file of each kind.
FORGETFUL = (MODE_Z, MODE_Z_DIRECT)


# Data.


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of data: a function that makes its first file or tree, and variants that are sent after this file."""

    name: str
    what: str
    bytes: int
    # `make(path, size, rng)` makes a file or a tree of `size` bytes.
    make: object
    # Pairs of a row's name and a function. `vary(path, base, rng)` makes a variant of the file `base`.
    variants: tuple = ()
    # Required disk space, as a multiple of the size. It includes the stores.
    room: int = 6
    is_tree: bool = False


def source_tarball(path, size, rng):
    """Writes source text of programs into a tar archive.

    The text comes from one version of each crate in Cargo's registry, from the system's folders for headers and
    scripts, and from this repository. No two files have the same contents.
    """
    suffixes = (".rs", ".c", ".h", ".cc", ".hpp", ".py", ".pm", ".pl", ".toml", ".md", ".txt", ".sh", ".S", ".js")
    cargo = os.environ.get("CARGO_HOME", os.path.expanduser("~/.cargo"))
    crates = {re.sub(r"-\d.*", "", os.path.basename(folder)): folder
              for folder in sorted(glob.glob(os.path.join(cargo, "registry", "src", "*", "*")))}
    # Code that is generated from the interfaces of another system does not count as source text.
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
    raise Missing(f"{size} bytes of source text; the machine has {total}")


def log_files(path, size, rng):
    """Writes log lines of a web server."""
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
    """Writes a CSV table of numbers, names and dates."""
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
    """Makes an ext4 file system with programs and libraries of this machine. About a quarter of it is free."""
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
    """Copies `base`, and replaces the contents of one in a hundred blocks at random positions."""
    copy(base, path)
    blocks = os.path.getsize(base) // BLOCK_BYTES
    with open(path, "r+b") as file:
        for block in sorted(rng.sample(range(blocks), max(1, int(blocks * CHANGED_SHARE)))):
            file.seek(block * BLOCK_BYTES)
            file.write(rng.randbytes(BLOCK_BYTES))


def shifted(path, base, rng):
    """Writes seven random bytes, and then the contents of `base`."""
    with open(path, "wb") as file, open(base, "rb") as old:
        file.write(rng.randbytes(SHIFT_BYTES))
        shutil.copyfileobj(old, file, 1 << 20)


def again(path, base, rng):
    """Links `base` to a second name, so the contents are the same."""
    os.link(base, path)


def random_bytes(path, size, rng):
    """Writes incompressible bytes, like the bytes of compressed pictures and films."""
    seeded = f"{path}.{rng.getrandbits(64):x}"
    make_file(seeded, size)
    os.rename(seeded, path)


def small_similar(path, size, rng):
    """Makes a tree of XML files of about 4 KiB that differ only in their values."""
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
    Kind("source tarball", "source text of programs in a tar archive, without duplicate files", 100_000_000,
         source_tarball),
    Kind("log files", "log lines of a web server", 100_000_000, log_files),
    Kind("CSV", "numbers, names and dates", 100_000_000, csv_table),
    Kind(INCOMPRESSIBLE, "random bytes", 100_000_000, random_bytes),
    Kind("VM image", "ext4 with programs and libraries, a quarter of it free", 1_000_000_000, vm_image,
         (("VM image: 1 % changed", changed), ("VM image: shifted by 7 bytes", shifted))),
    Kind("file sent twice", "random bytes", 1_000_000_000, random_bytes, (("file sent twice: again", again),)),
    Kind("small files", "XML files of 4 KiB that differ only in their values; `lftp mirror` with eight connections",
         SMALL_FILES * 4096, small_similar, is_tree=True),
]


def copy(source, target):
    subprocess.run(["cp", "--reflink=auto", source, target], check=True)


def contents_of(path):
    """Returns the digest of a file, or the digests of all files of a tree."""
    return digests(path) if os.path.isdir(path) else digest(path)


def remove(path):
    shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


# Servers and ways.


class Setup:
    """A world with its servers, and the ways to transfer data.

    Each way is a function that returns the seconds of its client, and the path at which the data must have arrived.
    """

    def __init__(self, world, args):
        self.world, self.args = world, args
        self.rate_bits_per_s = bits_per_s(args.rate)
        self.vsftpd = servers.start_vsftpd(world)
        self.proftpd = servers.start_proftpd(world, "LoadModule mod_deflate.c", "DeflateEngine on")
        self.start_rsyncd()
        world.allowed += [self.proftpd.place(), f"{ADDRESS_B}:{RSYNC_PORT}", f"{ADDRESS_B}:{NC_PORT}"]
        self.has_store = not args.no_store and self.accepts(self.store("a"))
        self.old = None

    def accepts(self, section):
        """Returns whether the program accepts a section of the configuration."""
        self.world.write_config("a", section)
        done = self.world.run(self.world.longhaul, "gateway", "check", "--config", self.world.path("a.toml"),
                              capture_output=True)
        return done.returncode == 0

    def store(self, site):
        """Creates an empty store, and returns its section of the configuration."""
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
        """Starts a pair with empty stores, and warms up its link."""
        world = self.world
        world.stop_pair()
        store = {site: self.store(site) if self.has_store else "" for site in "ab"}
        off = 'compress = "off"\n' + ('dedup = "off"\n' if self.has_store else "")
        listeners = "".join(f'[[ftp]]\nlisten = "127.0.0.1:{port}"\ntarget = "{server.place()}"\n{off}'
                        for port, server in ((PLAIN_PORT, self.vsftpd), (MODE_Z_PORT, self.proftpd)))
        # A forward has no coding unless its section enables coding.
        listeners += "".join(f'[[forward]]\nlisten = "127.0.0.1:{port}"\ntarget = "{ADDRESS_B}:{target}"\n'
                         for port, target in ((RSYNC_FORWARD, RSYNC_PORT), (NC_FORWARD, NC_PORT)))
        world.gateway("b", store["b"])
        world.gateway("a", listeners + store["a"])
        world.connected()
        path = world.path("warm-up")
        make_file(path, WARM_UP_BYTES)
        _, arrived = self.by_curl(path, PLAIN_PORT)
        # The download warms up the other direction.
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
        """Runs a client, and returns the seconds until its end.

        A timer kills a client that hangs, because a wait with a timeout would detect the end up to 50 ms late.
        """
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
        """Uploads a file or a tree by rsync. If an earlier version was sent, this version is at the destination."""
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
        bench.require(time.monotonic() - begun < NC_LATER_MAX_S, "the nc client ended long before its receiver")
        return took, arrived

    def by_mode_z(self, path, host, port):
        """Downloads a file by curl with MODE Z.

        Uploads are too slow: ProFTPD takes 13 s to inflate a megabyte, with and without gateways. The client curl does
        not support MODE Z, but can send the command. The next program in the pipe inflates the bytes.
        """
        server, name, arrived = self.proftpd, os.path.basename(path), self.world.path("inflated")
        os.link(path, server.file(name))
        # Without `--ignore-content-length`, curl would expect as many bytes as the file has.
        took = self.timed("bash", "-c", f"set -o pipefail; curl --silent --show-error --ignore-content-length --quote 'MODE Z' "
                          f"{self.url(server, host, port, path)} | python3 -c '{INFLATE}' > {arrived}")
        os.remove(server.file(name))
        return took, arrived

    def coded(self):
        """Returns the byte counters of the near gateway's optimiser, and the processor time of both optimisers."""
        sums = {site: (self.world.status(site) or {}).get("optimiser", {}) for site in "ab"}
        near = sums["a"]
        return {**{key: near.get(key, 0) for key in ("bytes", "wan_bytes", "compression_saved_bytes", "deduplication_saved_bytes")},
                "near_s": near.get("processor_s", 0), "far_s": sums["b"].get("processor_s", 0)}

    def send(self, name, path, contents):
        """Sends `path` by a way, compares the arrived data with `contents`, and removes the arrived data.

        Returns the seconds of the client, and the increase of the optimiser's counters.
        """
        before = self.coded()
        took, arrived = self.way(name)(path)
        after = self.coded()
        bench.require(contents_of(arrived) == contents, f"{name}: something else arrived")
        remove(arrived)
        return took, {key: after[key] - before[key] for key in after}


# Measuring.


@dataclasses.dataclass
class Row:
    """Results of a row: rates divided by the path's rate for each way, and counters of the optimiser."""

    times_line: dict = dataclasses.field(default_factory=dict)
    coded: list = dataclasses.field(default_factory=list)
    payload: int = 0


def measure_kind(setup, kind, run, size, rows):
    world, args = setup.world, setup.args
    free = shutil.disk_usage(world.folder).free
    if free < kind.room * size + args.free_gb * 1e9:
        raise Missing(f"disk space for {kind.name}: {kind.room * size / 1e9:.1f} GB, and {args.free_gb} GB that must "
                      f"stay free in {world.folder}; only {free / 1e9:.1f} GB are free")
    rng = random.Random(f"{kind.name}, run {run}")
    setup.fresh_pair()
    base, base_seed = world.path("sent"), None
    kind.make(base, size, rng)
    setup.old = None
    ways = [way for way in WAYS if args.way in way and not (os.path.isdir(base) and way in FORGETFUL)]
    if run >= args.peer_runs:
        # Later runs measure only the optimiser, and for incompressible data also its reference.
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
    """Returns the median of the counter `key` divided by the coded bytes, or None if no bytes were coded."""
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
    """Returns the table of all rates, and the table of the optimiser's counters."""
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
    """Returns a table of required and reached figures, and a list of missed figures."""
    lines, missed = [], []

    def compare(what, required, reached):
        lines.append((what, f"{required:.2f}", f"{reached:.2f}", "yes" if reached >= required else "no"))
        if reached < required:
            missed.append(f"{what}: {reached:.2f} of {required:.2f}")

    for name, required in REQUIRED.items():
        if name not in rows or OPTIMISER not in rows[name].times_line:
            continue
        if name in NEEDS_STORE and not has_store:
            lines.append((name, f"{required:.2f}", "-", "not required: no store"))
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
    bench.require(kinds, f"no kind of data has {args.only!r} in its name; the names are: "
                  f"{', '.join(kind.name for kind in KINDS)}")
    rows = {}
    for run in range(runs):
        # Round trips determine the times of trees. Trees take long, so they take part only in the first runs.
        for kind in [kind for kind in kinds if run < args.peer_runs or not kind.is_tree]:
            measure_kind(setup, kind, run, int(kind.bytes * scale), rows)
    rates, told = tables(rows)
    required, missed = judge(rows, setup.has_store)
    print("\n".join(["", *rates, "", *told, "", *required]), flush=True)
    of_peers = f" ({args.peer_runs} for the other ways and for trees)" if args.peer_runs < runs else ""
    about = [f"- {kind.name}: {kind.what}." for kind in kinds]
    bench.write(args, "optimiser", "The optimiser beside other means", [
        f"The path has {args.path}. Each figure is the payload in bits, divided by the seconds of the client's process "
        "and by the rate of the path (*line*). The cells show the median (lowest..highest) of "
        f"{runs} runs{of_peers}. Transfers are uploads, except for `MODE Z`. The bench compared every file at its "
        "destination."
        f"{'' if setup.has_store else ' The gateways had no store.'}", "", *rates, "",
        "`rsync -z` and `zstd -1 | nc` use forwards of the same link. The file that was sent before is at rsync's "
        "destination. `MODE Z` is a download from ProFTPD by curl, because the server inflates too slowly for uploads. "
        "The next program in a pipe inflates curl's output. `MODE Z` uses a listener without the optimiser, and "
        "`MODE Z, TCP` uses TCP directly.", "", *told, "",
        "*Coding* is the processor time of the near gateway's optimiser, divided by the payload. *Decoding* is the "
        "same figure for the far gateway.", "", *required, "",
        *about])
    if args.quick or args.scale < 1:
        print("  with smaller sizes the set-up time affects the figures, so the bench checks no bound")
    else:
        bench.require_none(missed)


def measure_processor(world, args):
    """Measures rates and processor time for incompressible data, with all coding on and with all coding off."""
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
        f"The path has {args.path}. The client curl uploads {megabytes} MB of random bytes to vsftpd. The cells show "
        f"the median (lowest..highest) of {runs} runs, which alternate between the two rows. The gateways ran "
        f"{'with' if setup.has_store else 'without'} a store. The table shows the processor time of the gateways' "
        "processes, and the optimiser's part of this time, as the gateways report it.", "", *table, "", *verdict])
    if not args.quick:
        bench.require_none([f"{ratio:.3f} of {PROCESSOR_RATE_MIN}"] if ratio < PROCESSOR_RATE_MIN else [])


def processor_s(world, site):
    """Returns the processor time of the gateway of a site since its start, in seconds."""
    with open(f"/proc/{world.processes[f'gateway-{site}'].pid}/stat") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def bits_per_s(rate):
    """Parses a rate such as `100 Mbit/s`, and returns the bits per second."""
    found = re.fullmatch(r"([\d.]+) *([kMG]?)bit/s", rate)
    if not found:
        raise Failure(f"{rate}: not a rate such as '100 Mbit/s'")
    return float(found[1]) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[found[2]]


def extend(parser):
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--peer-runs", type=int, default=3, help="number of runs with all ways and with trees; later "
                        "runs measure the optimiser, and incompressible data also without it")
    parser.add_argument("--only", default="", help="run only kinds of data whose names contain this text")
    parser.add_argument("--way", default="", help="run only ways whose names contain this text")
    parser.add_argument("--scale", type=float, default=1.0,
                        help="factor for all sizes; below 1 the bench checks no bound")
    parser.add_argument("--no-store", action="store_true", help="run the gateways without a store of chunks")
    parser.add_argument("--store-size", default="8 GiB", help="size limit of each gateway's store")
    parser.add_argument("--free-gb", type=float, default=2.0, help="disk space that must stay free, in GB")
    parser.add_argument("--parallel", type=int, default=8, help="connections of lftp mirror")
    parser.add_argument("--processor", action="store_true",
                        help="measure only the cost of the optimiser for incompressible data")
    parser.add_argument("--megabytes", type=int, default=4000, help="size of each file with --processor")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("100 Mbit/s", "100ms", "0%"), TOOLS, extend)
