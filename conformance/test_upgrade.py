"""Upgrades without interruption: the programs of both gateways are replaced repeatedly while files move in every way.

The near gateway and the far gateway are upgraded alternately, each to the other of two builds. Both have chunk stores.
In each round one transfer of each kind begins, and lasts for several rounds. Some sessions stay open from the first
round to the last, and new sessions open continuously.

At the end every hash agrees, no control connection was lost, and every new session was answered soon. Each gateway has
one process left.
"""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import statistics
import subprocess
import time

import pytest

import servers
import talk
from files import assert_same, make_file
from world import ADDRESS_B, CLIENT, NEAR_PORT, Failure, Path

# With a loss of 0.1 %, two of a thousand new sessions wait up to 130 ms for a retransmission.
PATH = Path(rate="300 Mbit/s", rtt="20ms")
ROUNDS, ROUNDS_QUICK = 20, 4
ROUND_S = 3.0
# A transfer takes 15 s, which is five rounds.
SIZE, RATE_BYTES = 1_500_000, 100_000
ANSWER_MAX_S = 0.1
# Time for which an old process without sessions may exist. Peers that have not detected the new process may still send
# to the old process.
END_MAX_S = 10

TLS_PORT, TRANSPARENT, WEB = 2131, 2125, 2132
WEB_PORT = 8000
KEY = "mover"

PACED = os.path.join(os.path.dirname(__file__), "paced.py")

pytestmark = pytest.mark.needs("curl", "nft")


class Gateway:
    """A gateway whose program is replaced while it runs."""

    def __init__(self, world, site, builds):
        self.world, self.site, self.builds = world, site, builds
        # The program has a folder of its own, as an installed program has.
        folder = world.path(f"program-{site}")
        os.mkdir(folder)
        self.program = os.path.join(folder, "longhaul")
        self.count = 0
        self.install()
        world.start(f"gateway-{site}", site, self.program, "gateway", "--config", world.path(f"{site}.toml"))
        world.wait(lambda: world.status(site) is not None, f"gateway {site} up")

    def install(self):
        """Replaces the present build by the next build, as a package does."""
        fresh = f"{self.program}.new"
        shutil.copy(self.builds[self.count % len(self.builds)], fresh)
        os.rename(fresh, self.program)
        self.count += 1

    def processes(self):
        """Returns the ids of the gateway's processes, in the order of their start."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as file:
                if file.read().split(b"\0")[:2] == [self.program.encode(), b"gateway"]:
                    found.append(int(name))
        return sorted(found, key=start_of)

    def upgrade(self, by_signal):
        """Installs the next build, and makes it take over. Returns the seconds that the takeover took."""
        self.install()
        before = self.processes()[-1]
        begun = time.monotonic()
        if by_signal:
            os.kill(before, signal.SIGHUP)
            self.world.wait(lambda: self.newest() not in (None, before), f"another process at {self.site}", 30)
        else:
            done = self.world.run(self.world.longhaul, "upgrade", "--json", "--config", self.world.path(f"{self.site}.toml"),
                                  site=self.site, capture_output=True, text=True)
            assert done.returncode == 0, done.stdout + done.stderr
        return time.monotonic() - begun

    def newest(self):
        """Returns the id of the newest process that took over according to the log, or None."""
        up = [line for line in self.world.log(f"gateway-{self.site}").splitlines() if "replaced this one" in line]
        return int(up[-1].split("pid=")[1].split()[0]) if up else None

    def end(self):
        for pid in self.processes():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGTERM)
        self.world.wait(lambda: not self.processes(), f"the processes of gateway {self.site} to end", 30)


def start_of(pid):
    """Returns the start time of a process in clock ticks since boot, or 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rsplit(")", 1)[1].split()[19])
    except OSError:
        return 0


class Transfer:
    """A slow transfer in progress."""

    def __init__(self, world, kind, number, is_upload, command, source, arrives_at, site="a", env=None):
        self.name = f"{kind} {number} {'up' if is_upload else 'down'}"
        self.source, self.arrives_at = source, arrives_at
        self.process = subprocess.Popen(world.inside(site, *command), text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, env=env)

    def finish(self):
        said, _ = self.process.communicate(timeout=60)
        assert self.process.returncode == 0, f"{self.name}: exit code {self.process.returncode}: {said.strip()[-400:]}"
        assert_same(self.source, self.arrives_at)


class Kinds:
    """The kinds of transfers. Each starts a transfer."""

    def __init__(self, world):
        self.world = world
        self.source = world.path("source")
        make_file(self.source, SIZE)
        self.served = world.path("ftp", "files")
        shutil.copy(self.source, os.path.join(self.served, "source"))

    def all(self):
        listener, tls = f"ftp://127.0.0.1:{NEAR_PORT}", f"ftp://127.0.0.1:{TLS_PORT}"
        insecure = ["--ssl-reqd", "-k"]
        active = ["-P", "-"]
        return {
            "FTP, passive": lambda *it: self.curl(listener, *it),
            "FTP, active": lambda *it: self.curl(listener, *it, more=active),
            "FTP over TLS, passive": lambda *it: self.curl(tls, *it, more=insecure),
            "FTP over TLS, active": self.ftplib,
            "transparent": lambda *it: self.curl(f"ftp://{ADDRESS_B}", *it, site="c"),
            "forward": self.web,
            "mover, --gateway": lambda *it: self.copy(["--gateway", "127.0.0.1:2122"], *it),
            "mover, --peer": lambda *it: self.copy(
                ["--peer", f"{self.world.keys['b']}@{ADDRESS_B}:4810", "--key", self.world.path(f"{KEY}{it[1]}.key")], *it),
        }

    def curl(self, url, kind, number, is_upload, more=(), site="a"):
        name = f"{kind}-{number}".replace(" ", "-").replace(",", "")
        common = ["curl", "-sS", "--fail", "--limit-rate", str(RATE_BYTES), *more]
        if is_upload:
            arrives = os.path.join(self.served, name)
            command = [*common, "-T", self.source, f"{url}/files/{name}"]
        else:
            arrives = self.world.path(name)
            command = [*common, "-o", arrives, f"{url}/files/source"]
        return Transfer(self.world, kind, number, is_upload, command, self.source, arrives, site)

    def ftplib(self, kind, number, is_upload):
        name = f"ftplib-{number}"
        arrives = os.path.join(self.served, name) if is_upload else self.world.path(name)
        move = ["put", self.source, f"files/{name}"] if is_upload else ["get", arrives, "files/source"]
        verb, here, there = move
        command = ["/usr/bin/python3", PACED, verb, here, str(TLS_PORT), there, str(RATE_BYTES)]
        return Transfer(self.world, kind, number, is_upload, command, self.source, arrives)

    def web(self, kind, number, _is_upload):
        arrives = self.world.path(f"web-{number}")
        command = ["curl", "-sS", "--fail", "--limit-rate", str(RATE_BYTES), "-o", arrives, f"http://127.0.0.1:{WEB}/source"]
        return Transfer(self.world, kind, number, False, command, self.source, arrives)

    def copy(self, way, kind, number, is_upload):
        url = f"ftp://anonymous@{ADDRESS_B}//files"
        name = f"{kind}-{number}".replace(" ", "-").replace(",", "")
        if is_upload:
            arrives = os.path.join(self.served, name)
            places = [self.source, f"{url}/{name}"]
        else:
            arrives = self.world.path(name)
            places = [f"{url}/source", arrives]
        home = self.world.path(f"home-{name}")
        os.mkdir(home)
        env = {**os.environ, "LONGHAUL_PASSWORD": "x", "HOME": home}
        command = [self.world.longhaul, "copy", *places, *way, "--bwlimit", f"{8 * RATE_BYTES // 1000}K"]
        return Transfer(self.world, kind, number, is_upload, command, self.source, arrives, env=env)


class Prober:
    """A process that opens new sessions continuously.

    It records each session's start and the time to its first reply.
    """

    def __init__(self, world, site, host, port):
        self.world, self.place = world, (site, host, port)
        self.times_s, self.failures = [], []
        # The work of the test does not delay a separate process.
        parts = multiprocessing.get_context("fork")
        self.stopped, (self.results, results) = parts.Event(), parts.Pipe(duplex=False)
        self.process = parts.Process(target=self.run, args=(results,))
        self.process.start()

    def run(self, results):
        site, host, port = self.place
        while not self.stopped.wait(0.03):
            begun = time.monotonic()
            try:
                with talk.Client(self.world, host, port, site=site, timeout=10) as client:
                    assert client.greeting.code == 220, client.greeting
            except Exception as error:  # noqa: BLE001: the test reports it
                self.failures.append(repr(error))
            self.times_s.append((begun, time.monotonic() - begun))
        results.send((self.times_s, self.failures))

    def stop(self):
        self.stopped.set()
        self.times_s, self.failures = self.results.recv()
        self.process.join()

    def late(self):
        return [(begun, took) for begun, took in self.times_s if took > ANSWER_MAX_S]


@pytest.fixture(scope="module")
def network(world):
    """Starts an FTP server and a web server in site b, and adds a client in a site c behind site a."""
    # Without these settings, vsftpd makes a network namespace for each session. This takes longer than all other work
    # before a greeting.
    servers.start_vsftpd(world, isolate="NO", isolate_network="NO")
    world.add_client()
    world.start("web", "b", "/usr/bin/python3", "-m", "http.server", str(WEB_PORT), "--bind", ADDRESS_B, "--directory",
                world.path("ftp", "files"))
    world.allowed.append(f"{ADDRESS_B}:{WEB_PORT}")


@pytest.fixture(scope="module")
def builds(world, options):
    """Returns two builds: the tested program, and the program in LONGHAUL_OTHER or the development build.

    Returns only the tested program if the other build does not exist.
    """
    other = os.environ.get("LONGHAUL_OTHER") or os.path.join(os.path.dirname(os.path.dirname(world.longhaul)), "debug", "longhaul")
    return [world.longhaul, other] if os.path.exists(other) else [world.longhaul]


@pytest.fixture
def pair(world, network, builds):
    # Each mover that is a near gateway itself is a separate peer.
    keys = [world.keygen(f"{KEY}{number}") for number in range(ROUNDS)]
    stores = {site: world.path(f"store-{site}") for site in "ab"}
    for folder in stores.values():
        os.makedirs(folder)
    store = {site: f'[store]\nfolder = "{folder}"\n' for site, folder in stores.items()}
    world.write_config("b", store["b"] + "".join(f'[[peer]]\nname = "{KEY}{number}"\npublic_key = "{key}"\n'
                                    for number, key in enumerate(keys)))
    world.write_config("a", store["a"] + (
        f'[[ftp]]\nlisten = "127.0.0.1:{TLS_PORT}"\ntarget = "{ADDRESS_B}:21"\n'
        'tls = { mode = "explicit", require_reuse = false }\n'
        f'[[forward]]\nlisten = "127.0.0.1:{WEB}"\ntarget = "{ADDRESS_B}:{WEB_PORT}"\n'
        f'[[ftp]]\nlisten = "0.0.0.0:{TRANSPARENT}"\ntransparent = true\nclients = ["{CLIENT}"]\n'))
    with open(world.path("a.toml")) as file:
        text = file.read().replace("endpoint = ", f'serves = ["{ADDRESS_B}"]\nendpoint = ', 1)
    with open(world.path("a.toml"), "w") as file:
        file.write(text)
    far, near = Gateway(world, "b", builds), Gateway(world, "a", builds)
    world.connected()
    world.wait(lambda: "expires" in world.run("nft", "list", "ruleset", capture_output=True, text=True).stdout,
               "interception", 30)
    yield near, far
    near.end()
    far.end()


def test_files_move_on_through_upgrades(world, pair, options):
    near, far = pair
    rounds = ROUNDS_QUICK if options.quick else ROUNDS
    kinds = Kinds(world).all()
    held = [talk.Client(world, "127.0.0.1", NEAR_PORT, timeout=20), talk.Client(world, ADDRESS_B, 21, site="c", timeout=20),
            talk.Client(world, "127.0.0.1", TLS_PORT, timeout=20)]
    held[2].begin_tls()
    for client in held:
        client.log_in("anonymous", "x")
    waiting = talk.Client(world, "127.0.0.1", 2122, timeout=20)
    transfers, took_s = [], []
    prober = Prober(world, "a", "127.0.0.1", NEAR_PORT)
    beside = Prober(world, "b", ADDRESS_B, 21)
    first, moments = time.monotonic(), []
    try:
        for number in range(rounds):
            begun = time.monotonic()
            for place, (kind, start) in enumerate(kinds.items()):
                transfers.append(start(kind, number, (number + place) % 2 == 0))
                # Many programs that start at once would delay everything.
                time.sleep(ROUND_S / 2 / len(kinds))
            gateway = [near, far][number % 2]
            moments.append(time.monotonic() - first)
            took_s.append(gateway.upgrade(by_signal=number % 4 >= 2))
            for client in held:
                client.ask("NOOP", 200)
            time.sleep(max(0, begun + ROUND_S - time.monotonic()))
    finally:
        prober.stop()
        beside.stop()
    errors = []
    for transfer in transfers:
        try:
            transfer.finish()
        except (AssertionError, Failure, OSError, subprocess.TimeoutExpired) as error:
            errors.append(f"{transfer.name}: {error}"[:400])
            print(errors[-1])
    processes = [len(near.processes()), len(far.processes())]
    # The session that has not logged in since the beginning can still log in.
    waiting.ask(f"USER anonymous@{ADDRESS_B}", 230, 331)
    waiting.ask("PASS x", 230, 202, 503)
    for client in [*held, waiting]:
        client.ask("PWD", 257)
        client.close()
    print(f"\n{rounds} upgrades of {1000 * statistics.median(took_s):.0f} ms (at most {1000 * max(took_s):.0f}) at "
          f"{[round(it, 1) for it in moments]} s; {len(transfers)} transfers of {len(kinds)} kinds, {len(errors)} failed; processes "
          f"before the last sessions ended: {processes}")
    for name, it in (("new sessions", prober), ("at the server itself", beside)):
        took = [1000 * took for _, took in it.times_s]
        late = [(round(begun - first, 2), round(1000 * took)) for begun, took in it.late()]
        print(f"{name}: {len(took)}, answered in {statistics.median(took):.0f} ms (at most {max(took):.0f}), {len(late)} later than "
              f"{1000 * ANSWER_MAX_S:.0f} ms (when, s, and how late, ms): {late}; {len(it.failures)} failed")
    assert not errors, f"{len(errors)} of {len(transfers)}: {errors[:5]}"
    assert not prober.failures, prober.failures[:5]
    assert not prober.late(), f"{len(prober.late())} of {len(prober.times_s)}"
    world.wait(lambda: len(near.processes()) == len(far.processes()) == 1, "the old processes to end", END_MAX_S)
    for site in "ab":
        status = world.status(site)
        assert status["sessions_open"] == 0
        # The newest process has the stores of its predecessor, with their chunks.
        assert sum(one["chunks"] for one in status["stores"]) > 0, status["stores"]
    assert sum(world.status(site)["optimiser"]["deduplication_saved_bytes"] for site in "ab") > SIZE
    assert "panicked" not in world.log("gateway-a") + world.log("gateway-b")
