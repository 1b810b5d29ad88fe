"""A pair of gateways of different releases: a near gateway of this release with a far gateway of the previous release,
and vice versa.

Files move in every way through the pair. No transfer fails, and every digest agrees. The pair starts again for each
direction, so that its first sessions detect the peer's protocol version.
"""

import collections
import concurrent.futures
import ftplib
import io
import os
import random
import shutil
import subprocess

import pytest

import servers
import talk
from files import assert_same, content, make_file
from world import ADDRESS_B, CHOICE, NEAR_PORT, Failure, Path

PATH = Path(rate="300 Mbit/s", rtt="20ms", loss="0.1%")
TRANSFERS, WORKERS = 20, 5
SIZE_MAX, LARGE = 2_000_000, 50_000_000
# Number of files in a mirrored folder.
FOLDER_FILES = 3
# Bytes of an upload before ABOR. They exceed the buffers of a connection.
ABORTED_BYTES = 1_000_000

# Ports of the listeners: without coding, with TLS, for the server that supports MLSD, and for a web server.
RAW, TLS, MACHINE, FORWARD_WEB = 2131, 2132, 2133, 2134
WEB_PORT = 8000
KEY = "mover"
WEB = r"""
import http.server, os, sys
address, port, home = sys.argv[1:4]
class Handler(http.server.SimpleHTTPRequestHandler):
    def __init__(self, *arguments):
        super().__init__(*arguments, directory=home)
    def do_PUT(self):
        with open(os.path.join(home, os.path.basename(self.path)), "wb") as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer((address, int(port)), Handler).serve_forever()
"""
# Programs of the near and the far gateway, by direction.
DIRECTIONS = {"new to previous": ("new", "previous"), "previous to new": ("previous", "new")}

pytestmark = pytest.mark.needs("curl", "lftp")


class Kinds:
    """The kinds of transfers. Each takes a number, moves a file and compares it."""

    def __init__(self, world, vsftpd, machine, near):
        self.world, self.vsftpd, self.machine, self.near = world, vsftpd, machine, near
        self.files = world.path("sources")
        if not os.path.exists(self.files):
            write_sources(self.files)
        for server in (vsftpd, machine):
            shutil.copytree(self.files, server.file(), dirs_exist_ok=True)

    def source(self, number):
        return os.path.join(self.files, str(number))

    def all(self):
        tls, active = ["--ssl-reqd", "-k"], ["-P", "-"]
        return {
            "curl": self.both(self.curl, NEAR_PORT),
            "curl, no coding": self.both(self.curl, RAW),
            "curl, active mode": self.both(self.curl, RAW, active),
            "curl, explicit TLS": self.both(self.curl, TLS, tls),
            "lftp mirror": self.both(self.mirror),
            "resumed (REST)": self.both(self.resume),
            "APPE": {"up": self.append},
            "LIST": {"down": self.list},
            "MLSD": {"down": self.list_for_machines},
            "after ABOR": self.both(self.abort),
            "forward": self.both(self.web),
            "copy --gateway": self.both(self.copy_by_gateway),
            "copy --peer": self.both(self.copy_by_peer),
            "known content": self.both(self.known),
            "text": self.both(self.text),
        }

    @staticmethod
    def both(move, *more):
        return {"up": lambda number: move(number, True, *more), "down": lambda number: move(number, False, *more)}

    def place(self, kind, number):
        """Returns a path for a downloaded file, and a name for an uploaded file."""
        name = f"{self.near}-{kind}-{number}"
        return self.world.path("back", name), name

    def call(self, *command, env=None):
        done = self.world.run(*command, capture_output=True, text=True, timeout=120, env=env)
        if done.returncode != 0:
            raise Failure(f"exit code {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")

    def curl(self, number, is_upload, port, more=(), source=None):
        source = number if source is None else source
        back, name = self.place(f"curl{port}{''.join(more)}-{source}", number)
        url = f"ftp://127.0.0.1:{port}/files"
        if is_upload:
            self.call("curl", "-sS", "--fail", *more, "-T", self.source(source), f"{url}/{name}")
            assert_same(self.source(source), self.vsftpd.file(name))
        else:
            self.call("curl", "-sS", "--fail", *more, "-o", back, f"{url}/{source}")
            assert_same(self.source(source), back)

    def mirror(self, number, is_upload):
        back, name = self.place("mirror", number)
        folder = f"folder{number}"
        move = f"mirror -R {self.source(folder)} {name}" if is_upload else f"mirror {folder} {back}"
        self.call("lftp", "-c", "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit true; "
                  f"open -p {NEAR_PORT} -u anonymous,x 127.0.0.1; cd files; {move}")
        arrived = self.vsftpd.file(name) if is_upload else back
        for file in range(FOLDER_FILES):
            assert_same(os.path.join(self.source(folder), str(file)), os.path.join(arrived, str(file)))

    def resume(self, number, is_upload):
        _, name = self.place("resumed", number)
        whole = content(self.source(number))
        offset = len(whole) // 2
        with self.client(RAW, self.vsftpd) as ftp:
            if is_upload:
                ftp.storbinary(f"STOR {name}", io.BytesIO(whole[:offset]))
                ftp.storbinary(f"STOR {name}", io.BytesIO(whole[offset:]), rest=offset)
                assert_same(self.source(number), self.vsftpd.file(name))
            else:
                assert fetched(ftp, f"RETR {number}", rest=offset) == whole[offset:], "other contents"

    def append(self, number):
        _, name = self.place("appended", number)
        whole = content(self.source(number))
        third = len(whole) // 3
        with self.client(RAW, self.vsftpd) as ftp:
            for part in (whole[:third], whole[third:2 * third], whole[2 * third:]):
                ftp.storbinary(f"APPE {name}", io.BytesIO(part))
        assert_same(self.source(number), self.vsftpd.file(name))

    def list(self, number):
        with self.client(NEAR_PORT, self.vsftpd) as ftp:
            lines = []
            ftp.retrlines(f"LIST folder{number}", lines.append)
        self.check_listing(number, {line.split()[-1]: int(line.split()[4]) for line in lines})

    def list_for_machines(self, number):
        with self.client(MACHINE, self.machine) as ftp:
            facts = dict(ftp.mlsd(f"folder{number}"))
        self.check_listing(number, {name: int(fact["size"]) for name, fact in facts.items() if fact["type"] == "file"})

    def check_listing(self, number, sizes):
        folder = self.source(f"folder{number}")
        expected = {name: os.path.getsize(os.path.join(folder, name)) for name in os.listdir(folder)}
        assert sizes == expected, f"{sizes}, not {expected}"

    def abort(self, number, is_upload):
        """Stops a transfer with ABOR, and makes another transfer in the same session."""
        _, name = self.place("aborted", number)
        with talk.Client(self.world, "127.0.0.1", NEAR_PORT, timeout=60) as client:
            client.log_in(self.vsftpd.user, self.vsftpd.password)
            client.ask("CWD files", 250)
            client.ask("TYPE I", 200)
            with client.connect(client.passive()) as data:
                client.ask(f"STOR {name}" if is_upload else "RETR large", 125, 150)
                if is_upload:
                    data.sendall(bytes(ABORTED_BYTES))
                else:
                    data.recv(1 << 16)
                client.send("ABOR")
            # The final reply of the transfer arrives first, then the reply to ABOR. vsftpd may send a single reply.
            replies = [client.reply()]
            if replies[0].code not in (225, 226) or "bort" not in replies[0]:
                replies.append(client.reply())
            assert replies[-1].code in (225, 226), replies
            whole = content(self.source(number))
            if is_upload:
                client.upload(f"STOR {name}", whole)
                assert_same(self.source(number), self.vsftpd.file(name))
            else:
                assert client.download(f"RETR {number}") == whole, "other contents"

    def web(self, number, is_upload):
        back, name = self.place("web", number)
        url = f"http://127.0.0.1:{FORWARD_WEB}"
        if is_upload:
            self.call("curl", "-sS", "--fail", "-T", self.source(number), f"{url}/{name}")
            assert_same(self.source(number), self.vsftpd.file(name))
        else:
            self.call("curl", "-sS", "--fail", "-o", back, f"{url}/{number}")
            assert_same(self.source(number), back)

    def copy_by_gateway(self, number, is_upload):
        self.copy("gateway", number, is_upload, self.world.longhaul, "--gateway", f"127.0.0.1:{CHOICE}")

    def copy_by_peer(self, number, is_upload):
        """Copies with a mover that is a near gateway itself, of the same release as the pair's near gateway."""
        key = f"{KEY}{'up' if is_upload else 'down'}{number}"
        self.copy("peer", number, is_upload, self.world.programs["a"], "--peer", f"{self.world.keys['b']}@{ADDRESS_B}:4810",
                  "--key", self.world.path(f"{key}.key"))

    def copy(self, kind, number, is_upload, program, *way):
        back, name = self.place(f"copy-{kind}", number)
        home = self.world.path(f"home-{'up' if is_upload else 'down'}-{name}")
        os.mkdir(home)
        url = f"ftp://anonymous@{ADDRESS_B}//files"
        ends = [self.source(number), f"{url}/{name}"] if is_upload else [f"{url}/{number}", back]
        self.call(program, "copy", *ends, *way, env={**os.environ, "LONGHAUL_PASSWORD": "x", "HOME": home})
        assert_same(self.source(number), self.vsftpd.file(name) if is_upload else back)

    def known(self, number, is_upload):
        """Moves a file with the same contents each time. After the first transfer, both gateways have its chunks."""
        self.curl(number, is_upload, NEAR_PORT, source="known")

    def text(self, number, is_upload):
        self.curl(number, is_upload, NEAR_PORT, source=f"text{number}")

    def client(self, port, server):
        """Returns a session of Python's ftplib in the server's folder."""
        with self.world.entered("a"):
            ftp = Client(self.world)
            ftp.connect("127.0.0.1", port)
        ftp.login(server.user, server.password)
        ftp.cwd("files")
        ftp.voidcmd("TYPE I")
        return ftp


class Client(ftplib.FTP):
    """An FTP client that makes its sockets in site a."""

    def __init__(self, world):
        self.world = world
        super().__init__(timeout=60)

    def ntransfercmd(self, *arguments):
        with self.world.entered("a"):
            return super().ntransfercmd(*arguments)


def fetched(ftp, command, rest=None):
    parts = []
    ftp.retrbinary(command, parts.append, rest=rest)
    return b"".join(parts)


def write_sources(folder):
    """Writes numbered files, folders and texts, a large file, and a file that all transfers of known content use."""
    os.makedirs(folder)
    dice = random.Random(47)
    for number in range(TRANSFERS):
        # The last file is so large that its transfer takes many round trips.
        size = LARGE if number == TRANSFERS - 1 else dice.randrange(1, SIZE_MAX)
        make_file(os.path.join(folder, str(number)), size)
        os.mkdir(os.path.join(folder, f"folder{number}"))
        for file in range(FOLDER_FILES):
            path = os.path.join(folder, f"folder{number}", str(file))
            with open(path, "wb") as out:
                out.write(dice.randbytes(dice.randrange(100_000)))
            os.chmod(path, 0o644)
        with open(os.path.join(folder, f"text{number}"), "w") as text:
            text.writelines(f"{line} of text {number}, {dice.randrange(1000)}\n" for line in range(dice.randrange(50_000)))
    make_file(os.path.join(folder, "known"), SIZE_MAX)
    make_file(os.path.join(folder, "large"), LARGE)


@pytest.fixture(scope="module")
def programs(world, options):
    if options.previous is None:
        pytest.skip("no program of the previous release: --previous")
    return {"new": world.longhaul, "previous": os.path.abspath(options.previous)}


@pytest.fixture(scope="module")
def table():
    """Yields the numbers of successful and failed transfers by kind, way and direction. Prints them at the end."""
    counts = {}
    yield counts
    print(f"\n{'kind':20} {'way':4} {'near to far':16} {'done':>5} {'failed':>6}")
    for (kind, way, direction), (done, failed) in counts.items():
        print(f"{kind:20} {way:4} {direction:16} {done:5} {failed:6}")
    done, failed = (sum(count[at] for count in counts.values()) for at in (0, 1))
    print(f"{'all':42} {done:5} {failed:6}")


@pytest.fixture(scope="module", params=DIRECTIONS)
def direction(request):
    return request.param


@pytest.fixture(scope="module")
def running(world, programs):
    """Starts the servers of site b: vsftpd, a server that supports MLSD, and a web server with vsftpd's files."""
    started = {**servers.start_all(world, names=["vsftpd"])}
    try:
        started |= servers.start_all(world, names=["pyftpdlib"])
    except servers.Missing as missing:
        pytest.skip(str(missing))
    vsftpd = started["vsftpd"]
    world.start("web", "b", "/usr/bin/python3", "-c", WEB, ADDRESS_B, str(WEB_PORT), vsftpd.file())
    world.allowed += [started["pyftpdlib"].place(), f"{ADDRESS_B}:{WEB_PORT}"]
    return started


@pytest.fixture(scope="module")
def movers(world):
    """Returns the public keys of the movers that are near gateways themselves. Each mover is a separate peer."""
    names = [f"{KEY}{way}{number}" for way in ("up", "down") for number in range(TRANSFERS)]
    return {name: world.keygen(name) for name in names}


@pytest.fixture(scope="module")
def kinds(world, running, movers, programs, direction):
    """Yields the kinds of transfers through a pair with empty chunk stores."""
    near, far = DIRECTIONS[direction]
    world.programs = {"a": programs[near], "b": programs[far]}
    shutil.rmtree(world.path("back"), ignore_errors=True)
    os.makedirs(world.path("back"))
    stores = {site: world.path(f"store-{near}-{site}") for site in "ab"}
    for folder in stores.values():
        os.makedirs(folder)
    store = {site: f'[store]\nfolder = "{folder}"\n' for site, folder in stores.items()}
    machine = running["pyftpdlib"]
    world.stop_pair()
    world.gateway("b", store["b"] + "".join(f'[[peer]]\nname = "{mover}"\npublic_key = "{key}"\n'
                                            for mover, key in movers.items()))
    world.gateway("a", store["a"] + (
        f'[[ftp]]\nlisten = "127.0.0.1:{RAW}"\ntarget = "{ADDRESS_B}:21"\ncompress = "off"\ndedup = "off"\n'
        f'[[ftp]]\nlisten = "127.0.0.1:{TLS}"\ntarget = "{ADDRESS_B}:21"\n'
        'tls = { mode = "explicit", require_reuse = false }\n'
        f'[[ftp]]\nlisten = "127.0.0.1:{MACHINE}"\ntarget = "{machine.place()}"\n'
        f'[[forward]]\nlisten = "127.0.0.1:{FORWARD_WEB}"\ntarget = "{ADDRESS_B}:{WEB_PORT}"\n'))
    world.connected()
    yield Kinds(world, running["vsftpd"], machine, near).all()
    world.stop_pair()


def move(start, number):
    """Moves one file. Returns the reason of a failure, or None."""
    try:
        start(number)
    except (AssertionError, Failure, OSError, EOFError, ftplib.Error, subprocess.TimeoutExpired) as error:
        return f"{number}: {type(error).__name__}: {error}"[:500]
    return None


def test_files_move_through_a_pair_of_releases(world, kinds, direction, table):
    errors = collections.defaultdict(list)
    for kind, ways in kinds.items():
        for way, start in ways.items():
            with concurrent.futures.ThreadPoolExecutor(WORKERS) as workers:
                results = list(workers.map(lambda number: move(start, number), range(TRANSFERS)))
            failed = [result for result in results if result is not None]
            table[kind, way, direction] = (len(results) - len(failed), len(failed))
            if failed:
                errors[f"{kind} {way}"] = failed[:3]
    for what, failed in errors.items():
        print(what, *failed, sep="\n  ")
    assert not errors, f"{sum(count for _, count in table.values())} failed: {list(errors)}"
    for site in "ab":
        status = world.status(site)
        assert status["sessions_open"] == 0
        assert "panicked" not in world.log(f"gateway-{site}")
    if direction == "new to previous":
        # The far gateway refused the latest protocol version.
        assert "speaks an older version" in world.log("gateway-a")
    optimiser = [world.status(site)["optimiser"] for site in "ab"]
    assert sum(it["deduplication_saved_bytes"] for it in optimiser) > SIZE_MAX, optimiser
