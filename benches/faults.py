"""Faults in the midst of transfers: what the client saw, what was lost, how long until new transfers succeed.

`cargo xtask faults`. Each fault hits an upload and a download by curl that are under way through a pair. Nothing may be lost
that a client was told is done; everything works again afterwards, without help but for what the table names.
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
# Of the far gateway.
NAME = "far.test"
# How long clients are waited for once the fault is over.
CLIENT_S = 900
RECOVERY_S = 120
# Of the file system of the disk that fills up.
DISK = 60_000_000
# Debian's package has it there, for each architecture.
FAKETIME = glob.glob("/usr/lib/*/faketime/libfaketime.so.1")


class Site:
    """What a trial needs to know of the pair, and how it is put right again."""

    def __init__(self, world, server):
        self.world, self.server = world, server
        self.undo = contextlib.ExitStack()

    def process(self, site):
        return self.world.processes[f"gateway-{site}"]

    def arrived(self):
        """The bytes of the upload and of the download that are there."""
        paths = [self.server.file("up"), self.world.path("back")]
        return [os.path.getsize(path) if os.path.exists(path) else 0 for path in paths]

    def signal(self, site, number):
        self.process(site).send_signal(number)

    def restart(self, site):
        """Ends a gateway, unless it has ended, and starts it by the same files."""
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
    """Waits, and makes sure that nothing arrives once what was on its way has."""
    time.sleep(min(3, seconds / 2))
    before = site.arrived()
    time.sleep(seconds - min(3, seconds / 2))
    happened(site.arrived() == before, f"nothing arrives: {before}, {site.arrived()}")


def happened(condition, what):
    """A fault that has no effect shows nothing."""
    if not condition:
        raise Failure(f"the fault did not happen: {what}")


def killed(which):
    def hit(site):
        site.world.kill(f"gateway-{which}")
        time.sleep(2)
        return lambda: site.world.start_gateway(which)
    return hit


def stopped(which):
    """In order, as its service manager does."""
    def hit(site):
        site.world.stop(f"gateway-{which}")
        return lambda: site.world.start_gateway(which)
    return hit


def server_killed(site):
    found = subprocess.run(["ip", "netns", "pids", site.world.sites["b"]], check=True, capture_output=True, text=True)
    # Each session is a process of its own.
    for pid in found.stdout.split():
        with contextlib.suppress(OSError):
            with open(f"/proc/{pid}/comm") as file:
                if file.read().strip() == "vsftpd":
                    os.kill(int(pid), signal.SIGKILL)
    site.world.processes["vsftpd"].wait()
    time.sleep(2)
    return lambda: servers.start_vsftpd(site.world)


def names_gone(site):
    """The peer's name has no address any more, and the peer is started anew: the link has to be connected again."""
    hosts = hosts_of(site.world)
    with open(hosts, "w") as file:
        file.write("127.0.0.1 localhost\n")
    asked = site.world.run("getent", "hosts", NAME, capture_output=True)
    happened(asked.returncode != 0, "the name has no address")
    site.restart("b")

    def end():
        # It works without the name.
        site.world.connected()
        name_peer(site.world)
    return end


def hosts_of(world):
    """What site a takes for /etc/hosts."""
    return os.path.join("/etc/netns", world.sites["a"], "hosts")


def name_peer(world):
    os.makedirs(os.path.dirname(hosts_of(world)), exist_ok=True)
    with open(hosts_of(world), "w") as file:
        file.write(f"127.0.0.1 localhost\n{ADDRESS_B} {NAME}\n")


def disk_full(folder):
    """The file system of `folder` takes nothing more."""
    def hit(site):
        filler = os.path.join(folder(site), "filler")
        with open(filler, "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                # A write that fits in part says so, and the next one fails.
                while file.write(bytes(1 << 20)):
                    pass
        happened(os.statvfs(folder(site)).f_bavail == 0, "the disk is full")
        time.sleep(5)
        return lambda: os.remove(filler)
    return hit


def clock(seconds):
    """The clock of both gateways jumps, and back."""
    def hit(site):
        set_clock(site.world, seconds)
        time.sleep(10)
        # What the near gateway takes for now.
        last = site.world.status("a")["peers"][0]["last_answer_unix_s"]
        happened(abs(last - time.time() - seconds) < 600, f"the clock of the gateway is {last - time.time():+.0f} s off")
        return lambda: set_clock(site.world, 0)
    return hit


def set_clock(world, ahead_s):
    # Whole or not at all: it is read at each look at the clock.
    with open(world.path("clock.new"), "w") as file:
        file.write(f"{ahead_s:+d}\n")
    os.rename(world.path("clock.new"), world.path("clock"))


def pair(world, has_false_clock):
    """Two gateways that have not been disturbed."""
    set_clock(world, 0)
    world.environment = {"LD_PRELOAD": FAKETIME[0], "FAKETIME_TIMESTAMP_FILE": world.path("clock"), "FAKETIME_NO_CACHE": "1",
                         "FAKETIME_DONT_FAKE_MONOTONIC": "1"} if has_false_clock else {}
    world.pair()
    world.environment = {}


def peer_removed(site):
    """The far gateway forgets the near one, and a reload has it know it again."""
    path = site.world.path("b.toml")
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(re.sub(r"\[\[peer\]\]\n(\w.*\n)+", "", text))
    reload(site, "b")
    site.world.wait(lambda: site.world.status("b")["peers"] == [], "the far gateway knows nobody", 5)
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
    """A link on the way takes 1300 bytes."""
    device = site.world.run("sh", "-c", f"ip -o route get {ADDRESS_B} | sed 's/.* dev \\([^ ]*\\).*/\\1/'",
                            capture_output=True, text=True, check=True).stdout.strip()
    site.world.ip("a", "link", "set", device, "mtu", "1300")
    time.sleep(10)
    return lambda: site.world.ip("a", "link", "set", device, "mtu", "1500")


def suspended(which):
    """As by the freezer: no process of the machine runs."""
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
        happened(any(refused), "a client finds no room")
        return lambda: subprocess.run(["prlimit", f"--pid={pid}", f"--nofile={before}:"], check=True)
    return hit


def no_memory(which):
    """The system gives the gateway no more memory, so that it ends; a service manager starts it again."""
    def hit(site):
        process = site.process(which)
        subprocess.run(["prlimit", f"--pid={process.pid}", "--data=1:"], check=True)
        # It goes on with what it has; new sessions make it ask for more.
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
    """A transfer by curl that is under way."""

    def __init__(self, site, direction, source):
        self.direction, self.source = direction, source
        url = f"ftp://127.0.0.1:{NEAR_PORT}/files"
        if direction == "up":
            self.arrives_at, ends = site.server.file("up"), ["-T", source, f"{url}/up"]
        else:
            self.arrives_at, ends = site.world.path("back"), ["-o", site.world.path("back"), f"{url}/down"]
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.arrives_at)
        # A client that never gives up shows how long the gateway takes.
        self.process = subprocess.Popen(site.world.inside("a", "curl", "-sS", *ends), text=True, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT)

    def is_under_way(self):
        return os.path.exists(self.arrives_at) and os.path.getsize(self.arrives_at) > SIZE // 10

    def outcome(self, since):
        """What it saw, whether something was lost that it was told is done."""
        try:
            said, _ = self.process.communicate(timeout=CLIENT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            return f"waited for {CLIENT_S} s", False
        took = max(0.0, time.monotonic() - since)
        if self.process.returncode == 0:
            is_same = os.path.exists(self.arrives_at) and digest(self.arrives_at) == digest(self.source)
            return ("done, whole" if is_same else "done, NOT WHOLE"), not is_same
        said = (said.strip().splitlines() or [""])[-1].removeprefix("curl: ")
        return f"after {took:.1f} s: {said[:70]}", False


def recovered(site, source):
    """Seconds until a small file goes up and comes back."""
    begun = time.monotonic()
    url = f"ftp://127.0.0.1:{NEAR_PORT}/files/small"
    back = site.world.path("small-back")
    while time.monotonic() - begun < RECOVERY_S:
        # One that finds nobody ends soon.
        up = site.world.run("curl", "-sS", "--max-time", "10", "-T", source, url, check=False, capture_output=True)
        down = site.world.run("curl", "-sS", "--max-time", "10", "-o", back, url, check=False, capture_output=True)
        if up.returncode == down.returncode == 0 and digest(back) == digest(source):
            return time.monotonic() - begun
        time.sleep(0.2)
    raise Failure(f"no transfer succeeds within {RECOVERY_S} s")


def trial(site, hit, large, small):
    clients = [Client(site, direction, large) for direction in ("up", "down")]
    site.world.wait(lambda: all(client.is_under_way() for client in clients), "both under way", 60)
    begun = time.monotonic()
    end = hit(site)
    end()
    over = time.monotonic()
    seconds = recovered(site, small)
    outcomes = [client.outcome(begun) for client in clients]
    # Whatever was told, what carries the final name of a finished upload is whole.
    site.server.empty()
    shutil.copy(large, site.server.file("down"))
    return over - begun, seconds, outcomes


def mount(stack, path, size):
    os.makedirs(path, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=755", "none", path], check=True)
    stack.callback(subprocess.run, ["umount", "-l", path], check=False)


def measure(world, args):
    if not FAKETIME:
        print("clocks are left out: there is no faketime")
    with contextlib.ExitStack() as stack:
        mount(stack, world.path("ftp"), 2 * SIZE + DISK)
        os.makedirs(world.path("ftp", "files"))
        shutil.chown(world.path("ftp", "files"), "ftp")
        server = servers.start_vsftpd(world)
        for which in "ab":
            # The key, and what is kept beside it.
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
            lost = "nothing" if not (up_lost or down_lost) else "TOLD AS DONE"
            rows.append((name, f"{lasted:.0f}", up, down, lost, f"{seconds:.1f}"))
            print("  {}: lasted {} s; up: {}; down: {}; lost: {}; works again after {} s".format(*rows[-1]), flush=True)
            if up_lost or down_lost:
                wrong.append(f"{name}: something was lost that was told as done")
        table = pages.table(["fault", "lasts, s", "upload", "download", "lost", "new transfers succeed after, s"], rows)
        bench.write(args, "faults", "Faults", [
            f"Each hits an upload and a download of {SIZE // 1_000_000} MB by curl through a pair, {args.path}, vsftpd, a tenth of "
            "each under way. The last column counts from the end of the fault. A gateway that was killed or stopped is started "
            "again by the same files, as its service does.", "", *table])
        bench.require_none(wrong)


def extend(parser):
    parser.add_argument("--only", default="", help="faults with this in their names")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path(rate="300 Mbit/s", rtt="40ms", loss="0.1%"), needs=["curl", "nft", "prlimit"],
               extend=extend)
