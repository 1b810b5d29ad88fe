"""`longhaul jobs` with a real NATS server.

One, two and four workers move 2,000 files. Other tests kill workers and the NATS server during a job, and submit jobs
that no worker can do.

No file is lost. Every file that is visible under its final name is complete. The list of jobs contains each dead letter
with its reason. The module prints a table of rates.
"""

import json
import os
import random
import shutil
import socket
import threading
import time

import pytest

import servers
from world import Path

PATH = Path(rate="1 Gbit/s", rtt="20ms", loss="0.1%")
FILES, FILES_QUICK = 2000, 300
BYTES_MAX = 60_000
NATS = "nats://127.0.0.1:4222"
pytestmark = pytest.mark.needs("nats-server")


class Fleet:
    """A NATS server and workers, all in site a."""

    def __init__(self, world, server):
        self.world, self.server = world, server
        world.environment = {"LONGHAUL_NATS": NATS, "LONGHAUL_PASSWORD": server.password,
                             "HOME": world.path("home")}

    def start_nats(self):
        self.world.start("nats", "a", "nats-server", "-a", "127.0.0.1", "-p", "4222", "-js", "-sd",
                         self.world.path("nats"))
        def answers():
            ran = self.jobs("ls", check=False)
            return ran.returncode == 0 or "there is no pool" in ran.stderr
        self.world.wait(answers, "the server of NATS answers")

    def jobs(self, *arguments, check=True):
        ran = self.world.run(self.world.longhaul, "jobs", *arguments, capture_output=True, text=True,
                             env={**os.environ, **self.world.environment})
        assert ran.returncode == 0 or not check, f"{arguments}: {ran.stderr}"
        return ran

    def submit(self, *arguments):
        return self.jobs("submit", *arguments).stdout.strip()

    def show(self, job):
        return json.loads(self.jobs("show", "--json", job).stdout)

    def wait(self, job, state="done", seconds=600):
        self.world.wait(lambda: self.show(job)["state"] == state, f"the job is {state}", seconds)

    def worker(self, name, *more):
        self.world.start(name, "a", self.world.longhaul, "jobs", "worker", "--name", name, *more)

    def url(self, folder):
        return f"ftp://{self.server.user}@{self.server.place()}/{self.server.folder}/{folder}"


@pytest.fixture(scope="module")
def fleet(world):
    fleet = Fleet(world, servers.start_all(world, names=["vsftpd"])["vsftpd"])
    fleet.start_nats()
    return fleet


def make_tree(folder, count, dice):
    shutil.rmtree(folder, ignore_errors=True)
    for number in range(count):
        path = os.path.join(folder, f"{number % 20:02}", f"file {number:05}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(dice.randbytes(dice.randrange(BYTES_MAX)))


def tree(folder):
    found = {}
    for above, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(above, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = file.read()
    return found


def test_files_by_one_two_and_four_workers(world, fleet, options):
    count = FILES_QUICK if options.quick else FILES
    source = world.path("source")
    make_tree(source, count, random.Random(3))
    wanted = tree(source)
    rows = []
    for workers in [1, 2, 4]:
        names = [f"worker{number}" for number in range(workers)]
        for name in names:
            fleet.worker(name, "--slots", "1")
        # The workers start to request work within this second.
        time.sleep(1)
        folder = f"rates{workers}"
        begun = time.monotonic()
        job = fleet.submit("--transfers", "4", source, fleet.url(folder))
        fleet.wait(job)
        took = time.monotonic() - begun
        for name in names:
            world.stop(name)
        assert tree(fleet.server.file(folder)) == wanted
        shutil.rmtree(fleet.server.file(folder))
        rows.append((workers, took, count / took))
        with open("/proc/loadavg") as file:
            rows[-1] += (file.read().split()[0],)
    print("\n| workers | seconds | files a second | load |\n|---|---|---|---|")
    for workers, took, rate, load in rows:
        print(f"| {workers} | {took:.1f} | {rate:.0f} | {load} |")


class Watch:
    """A thread that repeatedly checks the files at the server. Each file under its final name must be complete."""

    def __init__(self, folder, wanted):
        self.folder, self.wanted, self.wrong, self.seen, self.is_over = folder, wanted, [], set(), False
        self.looks = 0
        self.thread = threading.Thread(target=self.run)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *error):
        self.is_over = True
        self.thread.join()

    def run(self):
        while not self.is_over:
            for above, _, names in os.walk(self.folder):
                for name in names:
                    path = os.path.join(above, name)
                    below = os.path.relpath(path, self.folder)
                    if name.endswith(".part"):
                        continue
                    size = os.stat(path).st_size
                    self.seen.add(below)
                    if below not in self.wanted or size != len(self.wanted[below]):
                        self.wrong.append((below, size))
            self.looks += 1
            time.sleep(0.05)


def test_nothing_is_lost_when_workers_and_the_server_are_killed(world, fleet, options):
    count = FILES_QUICK if options.quick else FILES
    dice = random.Random(5)
    source = world.path("source")
    make_tree(source, count, dice)
    wanted = tree(source)
    for name in ["one", "two"]:
        fleet.worker(name, "--slots", "2", "--bwlimit", "8M")
    there = fleet.server.file("killed")
    job = fleet.submit("--transfers", "2", source, fleet.url("killed"))
    kills, had_work = 0, 0
    with Watch(there, wanted) as watch:
        for victim in ["one", "nats", "two", "one", "nats"]:
            time.sleep(dice.uniform(0.5, 2.5))
            shown = fleet.show(job)
            if shown["state"] not in ("queued", "listing", "running"):
                break
            had_work += any(claim["worker"] == victim and claim["is_held"] for claim in shown["claims"])
            world.kill(victim)
            kills += 1
            time.sleep(dice.uniform(0.1, 2))
            if victim == "nats":
                fleet.start_nats()
            else:
                fleet.worker(victim, "--slots", "2", "--bwlimit", "8M")
        begun = time.monotonic()
        fleet.wait(job)
        waited = time.monotonic() - begun
    assert kills >= 3, "the job ended before anything was killed"
    assert had_work > 0, "no worker had work when it was killed"
    assert watch.looks > 100 and watch.seen, "the watch found no file at the server"
    assert not watch.wrong, watch.wrong[:5]
    found = tree(there)
    assert found == wanted, f"{len(found)} of {len(wanted)} files; parts: {[it for it in found if 'part' in it][:5]}"
    shown = fleet.show(job)
    assert shown["wanted"] == shown["moved"], shown
    print(f"\n{kills} kills, {had_work} of workers with work; {watch.looks} looks; {count} files whole, none lost, no part left; the last ones {waited:.0f} s after the last kill")
    for name in ["one", "two"]:
        world.stop(name)


def test_what_nobody_can_do_is_listed_with_its_reason(world, fleet):
    source = world.path("small")
    make_tree(source, 40, random.Random(7))
    with world.entered("a"):
        publish("job.default.x.order", b"\xff poison")
    missing = fleet.submit(fleet.url("missing"), world.path("here"))
    good = fleet.submit(source, fleet.url("good"))
    fleet.worker("one", "--attempts", "2")
    fleet.wait(good)
    assert tree(fleet.server.file("good")) == tree(source)
    fleet.wait(missing, "failed", 60)
    listed = fleet.jobs("ls").stdout
    print(f"\n{listed}")
    assert "the message cannot be read" in listed
    assert f"{missing}.order: there is no such file" in listed
    os.makedirs(fleet.server.file("missing"))
    with open(fleet.server.file("missing/a"), "wb") as file:
        file.write(b"a")
    fleet.jobs("retry", missing)
    fleet.wait(missing)
    assert tree(world.path("here")) == {"a": b"a"}
    world.stop("one")


def publish(subject, payload):
    """Publishes a message at the NATS server. The caller must have entered site a."""
    with socket.create_connection(("127.0.0.1", 4222)) as nats:
        nats.sendall(b'CONNECT {"verbose":false}\r\n' + f"PUB {subject} {len(payload)}\r\n".encode() + payload + b"\r\nPING\r\n")
        heard = b""
        while b"PONG" not in heard:
            heard += nats.recv(4096)
