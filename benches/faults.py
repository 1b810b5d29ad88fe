"""Faults during transfers: the outcome for the client, lost files, and the time until new transfers succeed.

`cargo xtask faults` runs this bench. Each fault occurs while curl runs an upload and a download through a pair of
gateways. The bench fails if a transfer that curl reported as done is incomplete or has wrong contents. New transfers
must succeed within 120 s after the end of the fault. The bench itself only ends each fault, and restarts programs that
the fault ended.
"""

import contextlib
import glob
import os
import re
import shutil
import signal
import subprocess
import time

import bench
import pages
import servers
from files import digest, make_file
from world import ADDRESS_B, NEAR_PORT, Failure, Path

SIZE, SMALL = 150_000_000, 100_000
# Host name of the far gateway.
NAME = "far.test"
# Timeout for the end of each client, in seconds. The bench waits after new transfers have succeeded.
CLIENT_S = 900
RECOVERY_S = 120
# Size of the server's file system, in bytes, in addition to two large files.
DISK = 60_000_000
# Path of the library in Debian's package, for each architecture.
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


class Site:
    """World and server of a trial, and operations on its gateways."""

    def __init__(self, world, server):
        self.world, self.server = world, server
        self.undo = contextlib.ExitStack()

    def process(self, site):
        return self.world.processes[f"gateway-{site}"]

    def arrived(self):
        """Returns the numbers of bytes of the upload and of the download that have arrived."""
        paths = [self.server.file("up"), self.world.path("back")]
        return [os.path.getsize(path) if os.path.exists(path) else 0 for path in paths]

    def signal(self, site, number):
        self.process(site).send_signal(number)

    def restart(self, site):
        """Stops a gateway if it still runs, and starts it again with the same files."""
        name = f"gateway-{site}"
        if self.process(site).poll() is None:
            self.world.stop(name)
        self.world.start_gateway(site)


def silence(seconds):
    def hit(site):
        site.world.wan("set", "--outage", "on")
        stands_still(site, seconds)
        return lambda: site.world.wan("set", "--outage", "off")
    return hit


def stands_still(site, seconds):
    """Waits for `seconds`. Checks that no bytes arrive after an initial time of at most 3 s.

    In the initial time, bytes that were in flight at the start of the fault may still arrive.
    """
    time.sleep(min(3, seconds / 2))
    before = site.arrived()
    time.sleep(seconds - min(3, seconds / 2))
    happened(site.arrived() == before, f"no bytes arrive: {before}, {site.arrived()}")


def happened(condition, what):
    """Raises `Failure` if `condition` is false, because a fault without effect tests nothing."""
    if not condition:
        raise Failure(f"the fault had no effect; expected effect: {what}")


def killed(which):
    def hit(site):
        site.world.kill(f"gateway-{which}")
        time.sleep(2)
        return lambda: site.world.start_gateway(which)
    return hit


def stopped(which):
    """Returns a fault that stops a gateway with SIGTERM, as a service manager does."""
    def hit(site):
        site.world.stop(f"gateway-{which}")
        return lambda: site.world.start_gateway(which)
    return hit


def server_killed(site):
    found = subprocess.run(["ip", "netns", "pids", site.world.sites["b"]], check=True, capture_output=True, text=True)
    # Each session of vsftpd has its own process.
    for pid in found.stdout.split():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() == "vsftpd":
                    os.kill(int(pid), signal.SIGKILL)
    site.world.processes["vsftpd"].wait()
    time.sleep(2)
    return lambda: servers.start_vsftpd(site.world)


def names_gone(site):
    """Removes the address of the far gateway's name and restarts the far gateway, so that the link must reconnect."""
    hosts = hosts_of(site.world)
    with open(hosts, "w") as file:
        file.write("127.0.0.1 localhost\n")
    asked = site.world.run("getent", "hosts", NAME, capture_output=True)
    happened(asked.returncode != 0, "the name has no address")
    site.restart("b")

    def end():
        # The link must reconnect without the name.
        site.world.connected()
        name_peer(site.world)
    return end


def hosts_of(world):
    """Returns the path of the file that site a uses as /etc/hosts."""
    return os.path.join("/etc/netns", world.sites["a"], "hosts")


def name_peer(world):
    os.makedirs(os.path.dirname(hosts_of(world)), exist_ok=True)
    with open(hosts_of(world), "w") as file:
        file.write(f"127.0.0.1 localhost\n{ADDRESS_B} {NAME}\n")


def disk_full(folder):
    """Returns a fault that fills the file system of `folder` completely."""
    def hit(site):
        filler = os.path.join(folder(site), "filler")
        with open(filler, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                # If only a part fits, `write` returns the size of this part, and the next write fails.
                while file.write(bytes(1 << 20)):
                    pass
        happened(os.statvfs(folder(site)).f_bavail == 0, "the disk is full")
        time.sleep(5)
        return lambda: os.remove(filler)
    return hit


def clock(seconds):
    """Returns a fault that shifts the clocks of both gateways by `seconds`, and later resets them."""
    def hit(site):
        set_clock(site.world, seconds)
        time.sleep(10)
        # The status states the time of the last answer by the near gateway's clock.
        last = site.world.status("a")["peers"][0]["last_answer_unix_s"]
        happened(abs(last - time.time() - seconds) < 600,
                 f"the clock of the gateway differs by {last - time.time():+.0f} s")
        return lambda: set_clock(site.world, 0)
    return hit


def set_clock(world, ahead_s):
    # The rename replaces the file atomically, because the gateways read it at each query of the clock.
    with open(world.path("clock.new"), "w") as file:
        file.write(f"{ahead_s:+d}\n")
    os.rename(world.path("clock.new"), world.path("clock"))


def pair(world, has_false_clock):
    """Starts a new pair of gateways. With `has_false_clock` the gateways run under libfaketime."""
    set_clock(world, 0)
    world.environment = {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": world.path("clock"), "FAKETIME_NO_CACHE": "1",
                         "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if has_false_clock else {}
    world.pair()
    world.environment = {}


def peer_removed(site):
    """Removes the near gateway from the peers of the far gateway by a reload, and adds it again by another reload."""
    path = site.world.path("b.toml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\[\[peer\]\]\n(\w.*\n)+", "", text))
    reload(site, "b")
    site.world.wait(lambda: site.world.status("b")["peers"] == [], "the far gateway has no peers", 5)
    time.sleep(5)

    def end():
        with open(path, "w") as file:
            file.write(text)
        reload(site, "b")
    return end


def reload(site, which):
    site.world.run(site.world.longhaul, "reload", "--config", site.world.path(f"{which}.toml"), site=which, check=True,
                   stdout=subprocess.DEVNULL)


def mtu_shrinks(site):
    """Reduces the MTU of the interface of site a to 1300 bytes."""
    device = site.world.run("sh", "-c", f"ip -o route get {ADDRESS_B} | sed 's/.* dev \\([^ ]*\\).*/\\1/'",
                            capture_output=True, text=True, check=True).stdout.strip()
    site.world.ip("a", "link", "set", device, "mtu", "1300")
    time.sleep(10)
    return lambda: site.world.ip("a", "link", "set", device, "mtu", "1500")


def suspended(which):
    """Returns a fault that stops the process of a gateway for 30 s with SIGSTOP.

    The fault imitates a suspended machine, but all other processes continue.
    """
    def hit(site):
        site.signal(which, signal.SIGSTOP)
        stands_still(site, 30)
        return lambda: site.signal(which, signal.SIGCONT)
    return hit


def no_descriptors(which):
    def hit(site):
        pid = site.process(which).pid
        taken = len(os.listdir(f"/proc/{pid}/fd"))
        before = subprocess.run(["prlimit", f"--pid={pid}", "--nofile", "--noheadings", "-o", "SOFT"], check=True,
                                capture_output=True, text=True).stdout.strip()
        subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={taken}:"], check=True)
        refused = [site.world.run("curl", "-sS", "--max-time", "2", f"ftp://127.0.0.1:{NEAR_PORT}/files/", check=False,
                                  capture_output=True).returncode != 0 for _ in range(3)]
        happened(any(refused), "at least one of three clients fails")
        return lambda: subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={before}:"], check=True)
    return hit


def no_memory(which):
    """Returns a fault that denies further memory to a gateway until it ends.

    The bench then restarts the gateway, as a service manager does.
    """
    def hit(site):
        process = site.process(which)
        subprocess.run(["prlimit", f"--pid={process.pid}", "--data=1:"], check=True)
        # The gateway continues with its allocated memory. New sessions force it to request more.
        clients = [subprocess.Popen(site.world.inside("a", "curl", "-sS", "--max-time", "5", "-o", "/dev/null",
                                                      f"ftp://127.0.0.1:{NEAR_PORT}/files/down"), stderr=subprocess.DEVNULL)
                   for _ in range(30)]
        for client in clients:
            client.wait()
        happened(process.poll() is not None, "the gateway has ended")
        return lambda: site.world.start_gateway(which)
    return hit


FAULTS = [
    ("WAN silent for 5 s", silence(5)), ("WAN silent for 60 s", silence(60)), ("WAN silent for 9 min", silence(540)),
    ("near gateway killed", killed("a")), ("far gateway killed", killed("b")),
    ("near gateway stopped", stopped("a")), ("far gateway stopped", stopped("b")),
    ("FTP server killed", server_killed),
    ("DNS gone, far gateway started anew", names_gone),
    ("disk full at the server", disk_full(lambda site: site.server.home)),
    ("disk full at the near gateway", disk_full(lambda site: site.world.path("state-a"))),
    ("disk full at the far gateway", disk_full(lambda site: site.world.path("state-b"))),
    ("clocks a day ahead", clock(86_400)), ("clocks a day behind", clock(-86_400)),
    ("peer removed and added again", peer_removed),
    ("MTU shrinks to 1300", mtu_shrinks),
    ("near machine suspended for 30 s", suspended("a")), ("far machine suspended for 30 s", suspended("b")),
    ("near gateway out of descriptors", no_descriptors("a")), ("far gateway out of descriptors", no_descriptors("b")),
    ("near gateway gets no more memory", no_memory("a")), ("far gateway gets no more memory", no_memory("b")),
]


class Client:
    """A running transfer by curl."""

    def __init__(self, site, direction, source):
        self.direction, self.source = direction, source
        url = f"ftp://127.0.0.1:{NEAR_PORT}/files"
        if direction == "up":
            self.arrives_at, ends = site.server.file("up"), ["-T", source, f"{url}/up"]
        else:
            self.arrives_at, ends = site.world.path("back"), ["-o", site.world.path("back"), f"{url}/down"]
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.arrives_at)
        # The client has no timeout, so its time shows how fast the gateway reports the failure.
        self.process = subprocess.Popen(site.world.inside("a", "curl", "-sS", *ends), text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def is_under_way(self):
        return os.path.exists(self.arrives_at) and os.path.getsize(self.arrives_at) > SIZE // 10

    def outcome(self, since):
        """Returns the outcome as text, and whether curl reported success although the file is not complete."""
        try:
            said, _ = self.process.communicate(timeout=CLIENT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return f"no end within {CLIENT_S} s", False
        took = max(0.0, time.monotonic() - since)
        if self.process.returncode == 0:
            is_same = os.path.exists(self.arrives_at) and digest(self.arrives_at) == digest(self.source)
            return ("done, whole" if is_same else "done, NOT WHOLE"), not is_same
        said = (said.strip().splitlines() or [""])[-1].removeprefix("curl: ")
        return f"after {took:.1f} s: {said[:70]}", False


def recovered(site, source):
    """Returns the seconds until an upload and a download of a small file succeed."""
    begun = time.monotonic()
    url = f"ftp://127.0.0.1:{NEAR_PORT}/files/small"
    back = site.world.path("small-back")
    while time.monotonic() - begun < RECOVERY_S:
        # `--max-time` ends an attempt that receives no answer.
        up = site.world.run("curl", "-sS", "--max-time", "10", "-T", source, url, check=False, capture_output=True)
        down = site.world.run("curl", "-sS", "--max-time", "10", "-o", back, url, check=False, capture_output=True)
        if up.returncode == down.returncode == 0 and digest(back) == digest(source):
            return time.monotonic() - begun
        time.sleep(0.2)
    raise Failure(f"no transfer succeeds within {RECOVERY_S} s")


def trial(site, hit, large, small):
    clients = [Client(site, direction, large) for direction in ("up", "down")]
    site.world.wait(lambda: all(client.is_under_way() for client in clients), "both transfers run", 60)
    begun = time.monotonic()
    end = hit(site)
    end()
    over = time.monotonic()
    seconds = recovered(site, small)
    outcomes = [client.outcome(begun) for client in clients]
    # The next trial needs an empty server with the file of the download.
    site.server.empty()
    shutil.copy(large, site.server.file("down"))
    return over - begun, seconds, outcomes


def mount(stack, path, size):
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", path], check=True)
    stack.callback(subprocess.run, ["umount", "-l", path], check=False)


def measure(world, args):
    if not FAKETIME:
        print("libfaketime is missing, so the bench omits the faults of the clocks; install the package faketime")
    with contextlib.ExitStack() as stack:
        mount(stack, world.path("ftp"), 2 * SIZE + DISK)
        os.makedirs(world.path("ftp", "files"))
        shutil.chown(world.path("ftp", "files"), "ftp")
        server = servers.start_vsftpd(world)
        for which in "ab":
            # The file system contains the key of the gateway and the files beside the key.
            state = world.path(f"state-{which}")
            mount(stack, state, 4 << 20)
            key = world.path(f"{which}.key")
            shutil.move(key, os.path.join(state, f"{which}.key"))
            os.symlink(os.path.join(state, f"{which}.key"), key)
        name_peer(world)
        world.far_host = NAME
        stack.callback(shutil.rmtree, os.path.dirname(hosts_of(world)))
        site = Site(world, server)
        large, small = world.path("large"), world.path("small")
        make_file(large, SIZE)
        make_file(small, SMALL)
        shutil.copy(large, server.file("down"))
        rows, wrong = [], []
        for name, hit in FAULTS:
            is_clock = "clocks" in name
            if args.only not in name or args.quick and "9 min" in name or is_clock and not FAKETIME:
                continue
            try:
                pair(world, is_clock)
                lasted, seconds, ((up, up_lost), (down, down_lost)) = trial(site, hit, large, small)
            except (Failure, subprocess.SubprocessError, OSError) as error:
                rows.append((name, "-", f"{error}"[:100], "", "", ""))
                wrong.append(f"{name}: {error}")
                print(f"  {name}: {error}", flush=True)
                world.wan("set", "--outage", "off")
                continue
            lost = "nothing" if not (up_lost or down_lost) else "REPORTED AS DONE"
            rows.append((name, f"{lasted:.0f}", up, down, lost, f"{seconds:.1f}"))
            print("  {}: lasted {} s; up: {}; down: {}; lost: {}; works again after {} s".format(*rows[-1]), flush=True)
            if up_lost or down_lost:
                wrong.append(f"{name}: curl reported success, but the file is not complete")
        table = pages.table(["fault", "lasts, s", "upload", "download", "lost", "new transfers succeed after, s"], rows)
        bench.write(args, "faults", "Faults", [
            f"Each fault occurs during an upload and a download of {SIZE // 1_000_000} MB by curl through a pair of "
            f"gateways. The path has {args.path}, and the server is vsftpd. A fault begins when a tenth of each file "
            "has arrived. The last column counts from the end of the fault. The bench restarts a killed or stopped "
            "gateway with the same files, as a service manager does.", "", *table])
        bench.require_none(wrong)


def extend(parser):
    parser.add_argument("--only", default="", help="run only faults whose names contain this text")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path(rate="300 Mbit/s", rtt="40ms", loss="0.1%"), needs=["curl", "nft", "prlimit"],
               extend=extend)
