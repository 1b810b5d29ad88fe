"""`longhaul agent` with real servers: three scheduled jobs and one watched folder, while the test kills and restarts
the agent.

No job copies a file twice, and no job misses a file. The agent runs a job's command once for each file, even if the
command hangs. The test removes arrived files of one job from the destination, as a program that processes them would.
The test takes ten minutes, or one minute with `--quick`.
"""

import collections
import json
import os
import random
import time

import pytest

import servers
from world import Path

PATH = Path(rate="1 Gbit/s", rtt="20ms", loss="0.1%")
SERVERS = ["vsftpd", "ProFTPD"]
SECONDS, SECONDS_QUICK = 600, 60
KILLS = 10
HANGS_S = 3
# Age at which the test processes an arrived file. If the agent is killed before it detects the arrival, the restarted
# agent must still find the file.
WORKED_ON_AFTER_S = 8

# The command appends one line for each call, in one write. It hangs if the file's name contains `hang`.
ON_FILE = """#!/bin/sh
echo "$LONGHAUL_JOB $LONGHAUL_PATH" >> {calls}
case "$LONGHAUL_PATH" in
    *hang*) exec sleep 30 ;;
esac
"""


class Job:
    def __init__(self, name, source, destination, moves_away):
        self.name, self.source, self.destination, self.moves_away = name, source, destination, moves_away
        self.put, self.taken = {}, collections.Counter()

    def add(self, dice):
        name = f"{len(self.put):05d}{' hang' if len(self.put) % 20 == 7 else ''}"
        content = dice.randbytes(dice.choice([0, 100, 20_000, 3_000_000]))
        path = os.path.join(self.source, name)
        # Every second file grows slowly.
        with open(path, "wb", buffering=0) as file:
            os.chmod(path, 0o644)
            file.write(content[:len(content) // 2])
            if len(self.put) % 2:
                time.sleep(0.05)
            file.write(content[len(content) // 2:])
        self.put[name] = content

    def collect(self):
        """Checks and counts the arrived files. If `moves_away` is set, removes them."""
        if not os.path.isdir(self.destination):
            return
        for name in os.listdir(self.destination):
            if ".part" in name or (self.taken[name] and not self.moves_away):
                continue
            path = os.path.join(self.destination, name)
            if time.time() - os.stat(path).st_ctime < WORKED_ON_AFTER_S:
                continue
            with open(path, "rb") as file:
                content = file.read()
            assert content == self.put[name], f"{self.name}: {name} has {len(content)} bytes of {len(self.put[name])}"
            self.taken[name] += 1
            if self.moves_away:
                os.remove(path)


@pytest.fixture(scope="module")
def running(world):
    return servers.start_all(world, names=SERVERS)


def test_nothing_is_taken_twice_and_nothing_is_missed(world, running, options):
    seconds = SECONDS_QUICK if options.quick else SECONDS
    dice = random.Random(11)
    calls, script = world.path("calls"), world.path("on-file")
    with open(script, "w") as file:
        file.write(ON_FILE.format(calls=calls))
    os.chmod(script, 0o755)
    vsftpd, proftpd = running["vsftpd"], running["ProFTPD"]
    here = {name: world.path(name) for name in ["pulled", "push", "nightly", "hot"]}
    for folder in here.values():
        os.makedirs(folder)
    for server, name in [(vsftpd, "out"), (proftpd, "in"), (vsftpd, "hot")]:
        os.makedirs(server.file(name), exist_ok=True)
        os.chmod(server.file(name), 0o777)
    url = lambda server, path: f"ftp://{server.user}@{server.place()}/{server.folder}/{path}"
    jobs = [
        Job("pull", vsftpd.file("out"), here["pulled"], True),
        Job("push", here["push"], proftpd.file("in"), False),
        Job("minutely", here["nightly"], vsftpd.file("minutely"), False),
        Job("hot", here["hot"], vsftpd.file("hot"), False),
    ]
    entries = [
        ("pull", url(vsftpd, "out"), here["pulled"], 'every = "2 s"\nsettle = "1 s"'),
        ("push", here["push"], url(proftpd, "in"), 'every = "3 s"\nsettle = "1 s"'),
        ("minutely", here["nightly"], url(vsftpd, "minutely"), 'cron = "*/20 * * * * *"\nsettle = "1 s"'),
        ("hot", here["hot"], url(vsftpd, "hot"), 'watch = true\nsettle = "1 s"\nremove_source = true'),
    ]
    netrc = world.path("netrc")
    with open(netrc, "w") as file:
        file.write(f"machine {vsftpd.place().split(':')[0]} login {proftpd.user} password {proftpd.password}\n")
        file.write(f"machine {vsftpd.place().split(':')[0]} login {vsftpd.user} password {vsftpd.password}\n")
    os.chmod(netrc, 0o600)
    config = world.path("jobs.toml")
    with open(config, "w") as file:
        file.write(f"[agent]\nstate = {json.dumps(world.path('state'))}\nlisten = \"127.0.0.1:9811\"\n")
        for name, source, destination, times in entries:
            file.write(f"[[job]]\nname = \"{name}\"\nfrom = {json.dumps(source)}\nto = {json.dumps(destination)}\n{times}\n"
                       f"netrc = {json.dumps(netrc)}\non_file = [{json.dumps(script)}]\non_file_timeout = \"{HANGS_S} s\"\n")

    start = lambda: world.start("agent", "a", world.longhaul, "agent", "--config", config)
    kills = sorted(dice.uniform(1, seconds - 5) for _ in range(KILLS))
    begun = time.monotonic()
    elapsed = lambda: time.monotonic() - begun
    start()
    killed = 0
    while elapsed() < seconds:
        dice.choice(jobs).add(dice)
        for job in jobs:
            job.collect()
        if kills and elapsed() > kills[0]:
            kills.pop(0)
            world.kill("agent")
            killed += 1
            start()
        time.sleep(dice.uniform(0.0, 0.4))

    def is_done():
        for job in jobs:
            job.collect()
        return all(set(job.taken) == set(job.put) for job in jobs) and called(calls).total() >= sum(
            len(job.put) for job in jobs)

    world.wait(is_done, "all files have arrived, and all commands were called", 180)
    time.sleep(5)
    is_done()
    counts = called(calls)
    print("\n| job | files | arrived | twice | called for | called twice |\n|---|---|---|---|---|---|")
    for job in jobs:
        mine = {path: count for (name, path), count in counts.items() if name == job.name}
        twice = [name for name, count in job.taken.items() if count > 1]
        called_twice = [path for path, count in mine.items() if count > 1]
        print(f"| {job.name} | {len(job.put)} | {len(job.taken)} | {len(twice)} | {len(mine)} | {len(called_twice)} |")
        assert not twice and not called_twice, (twice, called_twice)
        assert set(mine) == set(job.put)
    hung = sum(text.count(f"killed after {HANGS_S} s") for text in history(world.path("state", "history")))
    print(f"{killed} kills in {seconds} s; {hung} commands that hung were killed")
    assert hung > 0
    assert killed == KILLS
    assert not os.listdir(here["hot"]), "the agent must remove the sources in the hot folder"
    with open(world.path("agent.log"), errors="replace") as log:
        said = log.read()
    assert proftpd.password not in said.replace("netrc", "")
    world.kill("agent")


def history(folder):
    """Yields the history of each job and each day as text."""
    for job in os.listdir(folder):
        for day in os.listdir(os.path.join(folder, job)):
            with open(os.path.join(folder, job, day)) as file:
                yield file.read()


def called(path):
    """Returns the number of calls of the command, by job and path."""
    try:
        with open(path) as file:
            return collections.Counter(tuple(line.rstrip("\n").split(" ", 1)) for line in file)
    except FileNotFoundError:
        return collections.Counter()
