"""`longhaul copy`, `sync`, `check` and `ls` with `sftp://` URLs and real SSH servers: directly, through an `[[ssh]]`
listener, and as a near gateway.

A tree goes up, is not moved a second time, and comes down again. A sync deletes files, and a killed upload is resumed.
The tests log in with passwords, keys and SSH agents.

The mover reports a wrong password and an unknown or changed host key. A server with such a host key gets no credential.
The process of `--peer` listens on no socket. A killed agent and a fleet with a killed worker copy each file once.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import time

import pytest

import ssh_servers
import ssh_world
from ssh_clients import MOVER_KEY as KEY
from test_mover import Mover, assert_same_tree, read_tree, write, write_tree
from world import ADDRESS_B, Failure, Missing, Path

PATH = Path(rate="1 Gbit/s", rtt="20ms", loss="0.1%")
SERVERS, WAYS = ["OpenSSH", "dropbear", "ProFTPD"], ["direct", "gateway", "peer"]
# Ports of the listeners with a target, and of the listener without a target.
PORTS, CHOICE_PORT = {"OpenSSH": 2361, "dropbear": 2362, "ProFTPD": 2363}, 2364
FILES, FILES_QUICK = 3000, 300
KILLS, JOB_FILES = 3, 60
NATS_PORT = 4223


class SftpMover(Mover):
    """The mover with one server, connected in one way (`direct`, `gateway` or `peer`)."""

    def __init__(self, place, server, way):
        super().__init__(place.world, server, way, tls=False, active=False)
        self.place, self.port = place, PORTS[server.name]
        # Home folder, environment and options of the next commands.
        self.home, self.environment, self.more = place.home, {"LONGHAUL_PASSWORD": server.password}, []

    def url(self, path):
        return f"sftp://{self.server.user}@{self.server.place()}/{self.server.folder}/{path}"

    def options(self):
        ways = {"direct": [], "gateway": ["--gateway", f"127.0.0.1:{self.port}"],
                "peer": ["--peer", f"{self.world.keys['b']}@{ADDRESS_B}:4810", "--key", self.world.path(f"{KEY}.key")]}
        return [*ways[self.way], *self.more]

    def start(self, command, *arguments):
        """Starts a command without waiting for its end, and returns its process."""
        return subprocess.Popen(
            self.world.inside("a", self.world.longhaul, command, *arguments, *self.options()), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
            env={**{name: value for name, value in os.environ.items() if name != "SSH_AUTH_SOCK"}, "HOME": self.home,
                 **self.environment})

    def failing(self, command, *arguments):
        """Runs a command that must fail with exit code 1. Returns its output."""
        process = self.start(command, *arguments, "--retries", "0")
        said = process.communicate(timeout=120)[0].decode(errors="replace")
        print(said)
        if process.returncode != 1:
            raise Failure(f"exit code {process.returncode}, not 1: {said[-500:]}")
        return said

    def succeeding(self, command, *arguments):
        process = self.start(command, *arguments)
        said = process.communicate(timeout=300)[0].decode(errors="replace")
        print(said)
        if process.returncode != 0:
            raise Failure(f"exit code {process.returncode}, not 0: {said[-500:]}")
        return said


class Place:
    """Servers, keys, gateways, and a home folder with the host keys of the servers and listeners."""

    def __init__(self, world):
        self.world, self.home = world, world.path("home")
        self.user_key, self.near_key = ssh_servers.make_user_key(world, "user"), ssh_servers.make_host_key(world, "near")
        self.servers = {}
        for name in SERVERS:
            try:
                self.servers[name] = ssh_servers.STARTS[name](world)
            except Missing as missing:
                print(f"{name}: {missing}")
        if "OpenSSH" in self.servers:
            ssh_servers.authorize(world, "openssh", ssh_servers.public_key(self.user_key))
        world.allowed = [server.place() for server in self.servers.values()]
        near = "".join(ssh_world.listener(PORTS[name], server.place(), host_key=self.near_key)
                       for name, server in self.servers.items())
        near += ssh_world.listener(CHOICE_PORT, host_key=self.near_key, clients=["127.0.0.0/8"])
        key = world.keygen(KEY)
        self.known = [server.known_host() for server in self.servers.values()]
        ssh_world.start_pair(world, near, self.known, peers=f'[[peer]]\nname = "{KEY}"\npublic_key = "{key}"\n')
        self.known += [self.line_of_listener(port) for port in (*PORTS.values(), CHOICE_PORT)]
        self.set_known_hosts(self.known)

    def line_of_listener(self, port, key=None):
        kind, key = ssh_servers.public_key(key or self.near_key).split()[:2]
        return f"[127.0.0.1]:{port} {kind} {key}\n"

    def set_known_hosts(self, lines):
        os.makedirs(os.path.join(self.home, ".ssh"), exist_ok=True)
        with open(self.known_hosts(), "w") as file:
            file.writelines(lines)

    def known_hosts(self):
        return os.path.join(self.home, ".ssh", "known_hosts")


@pytest.fixture(scope="module")
def place(world):
    return Place(world)


@pytest.fixture(params=WAYS)
def way(request):
    return request.param


@pytest.fixture(params=SERVERS)
def server(request, place):
    if request.param not in place.servers:
        pytest.skip(f"not installed: {request.param}")
    server = place.servers[request.param]
    server.empty()
    yield server
    server.empty()


@pytest.fixture
def mover(place, server, way):
    place.set_known_hosts(place.known)
    return SftpMover(place, server, way)


only_openssh = pytest.mark.parametrize("server", ["OpenSSH"], indirect=True)
only_direct = pytest.mark.parametrize("way", ["direct"], indirect=True)


def test_a_tree_goes_up_and_down_and_is_not_moved_twice(mover, world, options):
    top, back = os.fsencode(world.path("tree")), world.path("back")
    if not os.path.exists(top):
        write_tree(top, FILES_QUICK if options.quick else FILES)
        dice = random.Random(2)
        for name in [b"line\nbreak", b"return\rhere", b"caf\xe9"]:
            write(os.path.join(top, name), b"content", dice)
    shutil.rmtree(back, ignore_errors=True)
    expected = read_tree(top)
    files = sum(1 for content in expected.values() if content)
    source, url = os.fsdecode(top), mover.url("tree")
    for _ in range(2):
        result = mover.copy(source, url, "--empty-dirs")[-1]
        moved = files if result["moved"] else 0
        assert (result["moved"], result["same"], result["failed"]) == (moved, files - moved, 0)
        assert_same_tree(expected, read_tree(mover.server.file("tree")))
    assert moved == 0
    result = mover.copy(url, back, "--empty-dirs")[-1]
    assert (result["moved"], result["failed"]) == (files, 0)
    assert_same_tree(expected, read_tree(back))
    again = mover.copy(url, back, "--empty-dirs")[-1]
    assert (again["moved"], again["same"]) == (0, files)


def test_a_sync_deletes_and_a_check_agrees(mover, tmp_path):
    dice = random.Random(3)
    ours, theirs = os.fsencode(tmp_path / "ours"), os.fsencode(mover.server.file("tree"))
    for number in range(100):
        write(os.path.join(ours, b"%d/%d/file %d" % (number % 3, number % 11, number)), dice.randbytes(number), dice)
    source, url = os.fsdecode(ours), mover.url("tree")
    mover.run("sync", source, url)
    shutil.rmtree(os.path.join(ours, b"0"))
    shutil.rmtree(os.path.join(ours, b"2/3"))
    write(os.path.join(ours, b"2/3"), b"was a directory", dice)
    os.remove(os.path.join(ours, b"1/0/file 22"))
    write(os.path.join(ours, b"1/0/file 22/inside"), b"was a file", dice)
    expected = read_tree(ours)
    assert mover.run("check", source, url, code=1)[-1]["failed"] == 0
    result = mover.run("sync", "--delete", "--max-delete", "90%", source, url)[-1]
    assert result["failed"] == 0 and result["deleted"] > 0
    assert_same_tree(expected, read_tree(theirs))
    for arguments in [[], ["--checksum"]]:
        checked = mover.run("check", *arguments, source, url)[-1]
        assert (checked["same"], checked["differing"]) == (sum(1 for it in expected.values() if it), 0)
    listed = mover.run("ls", "-R", url)
    names = {os.fsencode(line["path"]) for line in listed if line["event"] == "entry"}
    assert names == {name.removeprefix(b"./") for name in expected}


@only_openssh
def test_a_killed_upload_and_a_killed_download_are_resumed(mover, tmp_path, options):
    size = 40_000_000 if options.quick else 400_000_000
    content, source, back = os.urandom(size), tmp_path / "film", tmp_path / "back"
    source.write_bytes(content)
    os.utime(source, (1_500_000_000, 1_500_000_000))
    for ends, copy in [((str(source), mover.url("film")), mover.server.file("film")),
                       ((mover.url("film"), str(back)), str(back))]:
        process = mover.start("copy", *ends, "--bwlimit", f"{size // 4_000_000}M")
        folder = os.path.dirname(copy)

        def grown():
            parts = [name for name in os.listdir(folder) if name.endswith(".part")]
            return sum(os.stat(os.path.join(folder, name)).st_size for name in parts) > size // 4
        try:
            mover.world.wait(grown, "a quarter is there", 60)
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate()
        time.sleep(1)
        assert not os.path.exists(copy)
        result = mover.copy(*ends)[-1]
        assert (result["moved"], result["failed"]) == (1, 0)
        assert result["bytes"] < size, "the copy began from the start"
        with open(copy, "rb") as file:
            assert file.read() == content
        assert int(os.stat(copy).st_mtime) == 1_500_000_000
        assert [name for name in os.listdir(folder) if name.endswith(".part")] == []


@only_openssh
def test_a_large_file_goes_up_and_down(mover, world, options, tmp_path):
    size = 50 if options.quick else 3_000
    path, back = world.path("large"), str(tmp_path / "large")
    with open(path, "wb") as file:
        for _ in range(size):
            file.write(os.urandom(1_000_000))
    mover.copy(path, mover.url("large"))
    mover.copy(mover.url("large"), back)
    for other in [mover.server.file("large"), back]:
        assert subprocess.run(["cmp", path, other]).returncode == 0
        os.remove(other)
    os.remove(path)


@only_openssh
def test_a_key_file_and_an_agent_log_in(mover, place, world, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"content")
    mover.environment = {}
    mover.more = ["--identity", place.user_key]
    mover.succeeding("copy", str(source), mover.url("by-file"))
    sock = str(tmp_path / "agent.sock")
    agent = subprocess.Popen(world.inside("a", "ssh-agent", "-D", "-a", sock), stdout=subprocess.DEVNULL)
    try:
        world.wait(lambda: ssh_world.is_agent_up(sock), "the agent is up")
        subprocess.run(["ssh-add", "-q", place.user_key], env={**os.environ, "SSH_AUTH_SOCK": sock}, check=True)
        mover.environment, mover.more = {"SSH_AUTH_SOCK": sock}, []
        mover.succeeding("copy", str(source), mover.url("by-agent"))
    finally:
        agent.kill()
        agent.wait()
    mover.environment = {}
    config = os.path.join(place.home, ".ssh", "config")
    with open(config, "w") as file:
        file.write(f"Host shortcut\n  HostName {ADDRESS_B}\n  Port {mover.server.port}\n  User {mover.server.user}\n"
                   f"  IdentityFile {place.user_key}\n")
    try:
        mover.succeeding("copy", str(source), f"sftp://shortcut/{mover.server.folder}/by-config")
    finally:
        os.remove(config)
    assert sorted(os.listdir(mover.server.file())) == ["by-agent", "by-config", "by-file"]


def test_a_wrong_password_is_named(mover, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"content")
    mover.environment = {"LONGHAUL_PASSWORD": "wrong-word"}
    said = mover.failing("copy", str(source), mover.url("file"))
    assert "log-in" in said and "LONGHAUL_PASSWORD" in said and "wrong-word" not in said
    mover.environment = {}
    said = mover.failing("copy", str(source), mover.url("file"))
    assert "password" in said
    assert os.listdir(mover.server.file()) == []


@only_openssh
@pytest.mark.parametrize("way", ["direct", "gateway"], indirect=True)
def test_an_unknown_and_a_changed_host_key_are_refused(mover, place, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"content")
    host_key = mover.server.host_key if mover.way == "direct" else place.near_key
    told = subprocess.run(["ssh-keygen", "-lf", f"{host_key}.pub"], capture_output=True, text=True, check=True).stdout
    fingerprint = told.split()[1]
    before = mover.world.log("openssh")
    place.set_known_hosts([])
    said = mover.failing("copy", str(source), mover.url("file"))
    assert fingerprint in said and "known_hosts" in said
    kind, key = ssh_servers.public_key(place.user_key).split()[:2]
    at = f"[{ADDRESS_B}]:{mover.server.port}" if mover.way == "direct" else f"[127.0.0.1]:{mover.port}"
    place.set_known_hosts([f"{at} {kind} {key}\n"])
    said = mover.failing("copy", str(source), mover.url("file"))
    assert "changed" in said and fingerprint in said
    after = mover.world.log("openssh")[len(before):]
    assert "password" not in after.lower()
    place.set_known_hosts([])
    mover.more = ["--host-key", fingerprint]
    mover.succeeding("copy", str(source), mover.url("file"))
    known = tmp_path / "known_hosts"
    known.write_text("".join(place.known))
    mover.more = ["--known-hosts", str(known)]
    mover.succeeding("copy", str(source), mover.url("again"))


@only_openssh
@only_direct
def test_a_listener_without_a_server_takes_the_url_and_a_listener_with_another_server_explains(mover, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(b"content")
    mover.way, mover.port = "gateway", CHOICE_PORT
    mover.succeeding("copy", str(source), mover.url("file"))
    mover.port = PORTS["OpenSSH"]
    other = mover.url("file").replace(str(mover.server.port), "2299")
    said = mover.failing("copy", str(source), other)
    assert "leads only to" in said and f"{ADDRESS_B}:2299" in said


@only_openssh
@pytest.mark.parametrize("way", ["peer"], indirect=True)
def test_the_far_gateway_checks_the_host_key_and_the_process_listens_nowhere(mover, place, world, tmp_path):
    source = tmp_path / "file"
    source.write_bytes(os.urandom(5_000_000))
    # The home folder has no host keys, because the far gateway checks the server's host key.
    place.set_known_hosts([])
    process = mover.start("copy", str(source), mover.url("file"), "--bwlimit", "1M")
    listening = []
    for _ in range(20):
        time.sleep(0.1)
        found = world.run("ss", "-ltnpH", capture_output=True, text=True).stdout
        listening += [line for line in found.splitlines() if f"pid={process.pid}," in line]
    assert process.poll() is None, "the copy must still run"
    said = process.communicate(timeout=120)[0]
    assert process.returncode == 0, said
    assert listening == []
    far = world.path("far.known_hosts")
    with open(far) as file:
        known = file.read()
    try:
        with open(far, "w") as file:
            file.write("")
        said = mover.failing("copy", str(source), mover.url("other"))
        assert "host key" in said
    finally:
        with open(far, "w") as file:
            file.write(known)


@only_openssh
def test_an_agent_copies_each_file_of_a_watched_folder_once(mover, place, world, tmp_path):
    dice = random.Random(5)
    source, calls, script = tmp_path / "hot", tmp_path / "calls", tmp_path / "on-file"
    source.mkdir()
    script.write_text(f'#!/bin/sh\necho "$LONGHAUL_PATH" >> {calls}\n')
    script.chmod(0o755)
    words = [word.removeprefix("--").replace("-", "_") for word in mover.options()]
    keys = "".join(f"{key} = {json.dumps(value)}\n" for key, value in zip(words[::2], mover.options()[1::2]))
    config = tmp_path / "jobs.toml"
    config.write_text(f'[agent]\nstate = {json.dumps(str(tmp_path / "state"))}\n[[job]]\nname = "hot"\n'
                      f'from = {json.dumps(str(source))}\nto = {json.dumps(mover.url("hot"))}\nwatch = true\nsettle = "1 s"\n'
                      f"remove_source = true\non_file = [{json.dumps(str(script))}]\n{keys}")
    expected, name = {}, f"agent-{mover.way}"
    with jobs_environment(world, place, mover):
        for _ in range(KILLS):
            world.start(name, "a", world.longhaul, "agent", "--config", str(config))
            for _ in range(JOB_FILES // KILLS):
                content = dice.randbytes(dice.choice([0, 100, 20_000, 3_000_000]))
                expected[f"file {len(expected):03}"] = content
                (source / f"file {len(expected) - 1:03}").write_bytes(content)
                time.sleep(0.1)
            world.kill(name)
        world.start(name, "a", world.longhaul, "agent", "--config", str(config))
        try:
            world.wait(lambda: not os.listdir(source), "the watched folder is empty", 60)
        finally:
            world.stop(name)
    assert contents(mover.server.file("hot")) == expected
    assert sorted(calls.read_text().splitlines()) == sorted(expected)


@only_openssh
@pytest.mark.needs("nats-server")
def test_a_fleet_copies_each_file_although_a_worker_is_killed(mover, place, world, tmp_path):
    dice = random.Random(6)
    source, back = tmp_path / "source", tmp_path / "back"
    source.mkdir()
    for number in range(4 * JOB_FILES):
        (source / f"file {number:03}").write_bytes(dice.randbytes(dice.randrange(200_000)))
    with jobs_environment(world, place, mover, LONGHAUL_NATS=f"nats://127.0.0.1:{NATS_PORT}"):
        nats, workers = f"nats-{mover.way}", [f"worker-{mover.way}-{number}" for number in range(3)]
        world.start(nats, "a", "nats-server", "-a", "127.0.0.1", "-p", str(NATS_PORT), "-js", "-sd", str(tmp_path / "nats"))

        def jobs(*arguments, check=True):
            ran = world.run(world.longhaul, "jobs", *arguments, capture_output=True, text=True,
                            env={**os.environ, **world.environment})
            assert ran.returncode == 0 or not check, f"{arguments}: {ran.stderr}"
            return ran.stdout.strip() if ran.returncode == 0 or "there is no pool" in ran.stderr else None
        try:
            world.wait(lambda: jobs("ls", check=False) is not None, "the server of NATS answers")
            # Two processes with the same key cannot be peers at the same time.
            running = workers[:1 if mover.way == "peer" else 2]
            for worker in running:
                world.start(worker, "a", world.longhaul, "jobs", "worker", "--name", worker)
            for ends in [(str(source), mover.url("fleet")), (mover.url("fleet"), str(back))]:
                job = jobs("submit", *mover.options(), *ends)
                if ends[0] == str(source):
                    time.sleep(0.5)
                    world.kill(workers[0])
                    world.start(workers[2], "a", world.longhaul, "jobs", "worker", "--name", workers[2])
                world.wait(lambda: json.loads(jobs("show", "--json", job))["state"] == "done", f"{ends} is done", 180)
            for worker in [*running[1:], workers[2]]:
                world.stop(worker)
        finally:
            world.stop(nats)
    expected = contents(source)
    assert contents(mover.server.file("fleet")) == expected
    assert contents(back) == expected


@contextlib.contextmanager
def jobs_environment(world, place, mover, **more):
    """Gives the agents and workers the home folder and the password, but no SSH agent."""
    before = world.environment
    world.environment = {**before, "HOME": place.home, "LONGHAUL_PASSWORD": mover.server.password, "SSH_AUTH_SOCK": "", **more}
    try:
        yield
    finally:
        world.environment = before


def contents(folder):
    """Returns the contents of the files in a folder, by name."""
    found = {}
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found
