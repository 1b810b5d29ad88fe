"""Faults during `longhaul copy`: the mover or the server is killed, connections are cut or stall, and sources change.

Some servers also limit the connections or lack commands. After each fault, every file that is visible under its final
name is complete. The next run completes the copy, and moves no complete file again.

Each fault happens at random moments, during uploads and downloads, with pyftpdlib as the server. The module prints one
line for each fault and direction.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import threading
import time

import pytest

from world import ADDRESS_B, Path

PATH = Path(rate="300 Mbit/s", rtt="20ms", loss="0.1%")
MOMENTS, MOMENTS_QUICK = 20, 2
# Sizes of the files in bytes. A run without a fault takes less than two seconds.
SIZES = [0, 1, 1000, 20_000, 700_000, 3_000_000, 9_000_000]
FILES = 42
CLEAN_S = 1.5
PORT = 2290

SERVER = r"""
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
address, port, home, lacks, most = sys.argv[1:6]
authorizer = DummyAuthorizer()
authorizer.add_user("joe", "secret", home, perm="elradfmwMT")
class Handler(FTPHandler):
    proto_cmds = {verb: what for verb, what in FTPHandler.proto_cmds.items() if verb not in lacks.split(",")}
    if "clock" in lacks:
        # MDTM reports the same wrong time for every file.
        def ftp_MDTM(self, path):
            self.respond("213 20200101000000")
Handler.authorizer = authorizer
server = FTPServer((address, int(port)), Handler)
server.max_cons_per_ip = int(most)
server.serve_forever()
"""


class Server:
    """A pyftpdlib server that may lack commands and limit the connections."""

    def __init__(self, world, lacks="", most=0):
        self.world, self.home, self.lacks, self.most = world, world.path("faulty"), lacks, most
        os.makedirs(self.home, exist_ok=True)

    def start(self):
        self.world.start("faulty", "b", "/usr/bin/python3", "-c", SERVER, ADDRESS_B, str(PORT), self.home,
                         self.lacks, str(self.most))
        self.world.wait(self.listens, "the server listens")

    def listens(self):
        return self.world.run("bash", "-c", f"exec 3<>/dev/tcp/{ADDRESS_B}/{PORT}", site="b",
                              stderr=subprocess.DEVNULL).returncode == 0

    def end(self):
        self.world.kill("faulty")

    def send(self, what):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.world.processes["faulty"].pid, what)


class Trial:
    """A tree at the source, a folder at the destination, and copies from the source to the destination."""

    def __init__(self, world, server, is_upload, dice):
        self.world, self.server, self.is_upload, self.dice = world, server, is_upload, dice
        self.local, self.remote = world.path("local"), os.path.join(server.home, "tree")
        for folder in (self.local, self.remote):
            shutil.rmtree(folder, ignore_errors=True)
        self.source, self.there = (self.local, self.remote) if is_upload else (self.remote, self.local)
        for number in range(FILES):
            self.write(f"{number % 5}/file {number}", dice.choice(SIZES))

    def write(self, name, size):
        path = os.path.join(self.source, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as file:
            file.write(self.dice.randbytes(size))
        when = self.dice.randrange(1_000_000_000, 1_700_000_000)
        os.utime(path, (when, when))

    def start(self, *more):
        """Starts a copy, and returns its process."""
        url = f"ftp://joe@{ADDRESS_B}:{PORT}/tree"
        ends = [self.local, url] if self.is_upload else [url, self.local]
        command = [self.world.longhaul, "copy", *ends, "--json", "--stall-timeout", "2s", "--retries", "3", *more]
        return subprocess.Popen(self.world.inside("a", *command), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env={**os.environ, "LONGHAUL_PASSWORD": "secret",
                                                "HOME": self.world.path("home")})

    def end(self, process):
        """Waits for a copy. Returns its exit code, the files that it has copied, and its error output."""
        printed, said = process.communicate(timeout=300)
        lines = [json.loads(line) for line in printed.splitlines() if line.endswith("}")]
        root = self.local if self.is_upload else "tree"
        copied = {line["path"].split(f"{root}/", 1)[-1] for line in lines if line.get("result") == "copied"}
        return process.returncode, copied, said

    def whole(self):
        """Returns the files that are visible at the destination, and checks that each of them is complete."""
        found = set()
        for folder, _, names in os.walk(self.there):
            for name in names:
                path = os.path.join(folder, name)
                below = os.path.relpath(path, self.there)
                if name.endswith(".part"):
                    continue
                with open(path, "rb") as ours, open(os.path.join(self.source, below), "rb") as theirs:
                    assert ours.read() == theirs.read(), f"{below} is visible and not whole"
                found.add(below)
        return found


def later(seconds, action):
    def run():
        time.sleep(seconds)
        action()
    thread = threading.Thread(target=run)
    thread.start()
    return thread


def cut(world):
    """Drops the packets of the present connections, as a firewall does that lost its state. New connections work."""
    shown = world.run("ss", "-tnH", "dst", ADDRESS_B, capture_output=True, text=True).stdout.splitlines()
    ports = [line.split()[3].rsplit(":", 1)[1] for line in shown]
    if ports:
        world.run("nft", "add", "table", "inet", "faults")
        world.run("nft", "add", "chain", "inet", "faults", "out",
                  "{ type filter hook output priority 0 ; }")
        world.run("nft", "add", "rule", "inet", "faults", "out", "tcp", "sport",
                  "{ " + ", ".join(ports) + " }", "drop")


def mended(world):
    world.run("nft", "delete", "table", "inet", "faults", stderr=subprocess.DEVNULL)


def killed(trial, moment):
    process = trial.start()
    time.sleep(moment)
    process.kill()
    trial.end(process)


def server_killed(trial, moment):
    process = trial.start()
    time.sleep(moment)
    trial.server.end()
    time.sleep(0.3)
    trial.server.start()
    trial.end(process)


def connections_cut(trial, moment):
    process = trial.start()
    cutting = later(moment, lambda: cut(trial.world))
    trial.end(process)
    cutting.join()
    mended(trial.world)


def stalled(trial, moment):
    process = trial.start()
    time.sleep(moment)
    trial.server.send(signal.SIGSTOP)
    time.sleep(4)
    trial.server.send(signal.SIGCONT)
    trial.end(process)


def refused(trial, _):
    trial.end(trial.start("--transfers", "8"))


def changed(trial, moment):
    process = trial.start()
    time.sleep(moment)
    trial.write("0/file 0", 9_000_000)
    trial.write("1/file 1", 5_000)
    trial.end(process)


# Faults by name: the function, the commands that the server lacks, and its maximum number of connections. 0 means no
# limit.
FAULTS = {
    "mover killed": (killed, "", 0),
    "server killed": (server_killed, "", 0),
    "connections cut": (connections_cut, "", 0),
    "data stalled": (stalled, "", 0),
    "421 at the fifth": (refused, "", 4),
    "source changed": (changed, "", 0),
    "killed, no REST": (killed, "REST", 0),
    "killed, no MLSD": (killed, "MLSD,MLST", 0),
    "killed, no SIZE": (killed, "SIZE", 0),
    "killed, clock": (killed, "clock,MLSD,MLST", 0),
}


@pytest.mark.needs("nft", "ss")
@pytest.mark.parametrize("is_upload", [True, False], ids=["up", "down"])
@pytest.mark.parametrize("fault", FAULTS, ids=[name.replace(" ", "-") for name in FAULTS])
def test_after_the_next_run_everything_is_whole(world, options, fault, is_upload):
    inflict, lacks, most = FAULTS[fault]
    dice = random.Random(f"{fault} {is_upload}")
    server = Server(world, lacks, most)
    server.start()
    runs = again = 0
    try:
        for _ in range(MOMENTS_QUICK if options.quick else MOMENTS):
            trial = Trial(world, server, is_upload, dice)
            inflict(trial, dice.uniform(0, CLEAN_S))
            # At the destination, a changed file may have its old or its new contents. The files before the next run are
            # therefore not checked.
            before = set() if fault == "source changed" else trial.whole()
            code, copied, said = trial.end(trial.start())
            assert code == 0, said[-500:]
            assert len(trial.whole()) == FILES
            runs += 1
            again += len(copied & before)
    finally:
        server.end()
    print(f"{fault}, {'up' if is_upload else 'down'}: {runs} of {runs} whole after the next run; "
          f"{again} files moved again that were whole")
    # If a server reports wrong times, the mover copies every file again.
    assert again == 0 or "clock" in lacks
