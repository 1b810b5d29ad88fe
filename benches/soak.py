"""Long runs of ordinary work: many file transfers, and then many FTP commands, by sessions that stay logged in.

`cargo xtask soak` runs this bench. It counts failures by kind, and samples the memory and the descriptors of both
gateways. Steady growth of these samples indicates a leak. `--seconds` limits each of the two parts. A part that reaches
the limit reports its work up to this time.
"""

import collections
import ftplib
import hashlib
import io
import os
import random
import threading
import time

import bench
import pages
import servers
from world import NEAR_PORT, Path

BYTES_MIN, BYTES_MAX = 10_000, 100_000
KEPT = 8
SAMPLE_S = 5
# Share of the samples that the slopes ignore, because buffers grow after the start without a leak.
SETTLED_SHARE = 0.2
# Maximum growth in an hour. A leak of a thousandth of a descriptor or of 25 bytes in each transfer exceeds it.
GROWTH_MAX_KIB, GROWTH_MAX_DESCRIPTORS = 3000, 10
COMMANDS = ["NOOP", "PWD", "TYPE I", "SYST", "SIZE f0", "MDTM f0", "CWD files", "CWD .."]


class Tally:
    """Counters of the work of all sessions."""

    def __init__(self, most):
        self.lock, self.most = threading.Lock(), most
        self.begun = self.done = 0
        self.failures = collections.Counter()

    def take(self):
        """Returns whether a further piece of work remains, and counts it as begun."""
        with self.lock:
            if self.begun >= self.most:
                return False
            self.begun += 1
            return True

    def add(self, failure=None):
        with self.lock:
            if failure is None:
                self.done += 1
            else:
                self.failures[failure] += 1


class Session:
    """A client that stays logged in, and logs in again after a failure."""

    def __init__(self, world, server, number, deadline):
        self.world, self.server, self.number, self.deadline = world, server, number, deadline
        self.dice, self.ftp, self.kept = random.Random(number), None, {}
        self.made = 0

    def run(self, tally, step):
        with self.world.entered("a"):
            while time.monotonic() < self.deadline and tally.take():
                try:
                    self.log_in()
                    step()
                    tally.add()
                except (ftplib.Error, OSError, EOFError) as error:
                    kind = str(error)[:80] if isinstance(error, ftplib.Error) else f"{type(error).__name__} {error}"[:80]
                    tally.add(kind)
                    self.ftp = None
            self.leave()

    def log_in(self):
        if self.ftp is None:
            self.ftp = ftplib.FTP(timeout=60)
            self.ftp.connect("127.0.0.1", NEAR_PORT)
            self.ftp.login(self.server.user, self.server.password)
            folder = f"{self.server.folder}/s{self.number}"
            try:
                self.ftp.cwd(folder)
            except ftplib.error_perm:
                self.ftp.mkd(folder)
                self.ftp.cwd(folder)

    def leave(self):
        if self.ftp is not None:
            try:
                self.ftp.quit()
            except (ftplib.Error, OSError, EOFError):
                pass
            self.ftp = None

    def transfer(self):
        """Uploads a file, which may replace an older file, or downloads a file and compares its contents."""
        if len(self.kept) < KEPT or self.dice.random() < 0.5:
            name = f"f{self.made % KEPT}"
            self.made += 1
            content = self.dice.randbytes(self.dice.randint(BYTES_MIN, BYTES_MAX))
            self.kept.pop(name, None)
            self.ftp.storbinary(f"STOR {name}", io.BytesIO(content))
            self.kept[name] = hashlib.sha256(content).digest()
        else:
            name = self.dice.choice(sorted(self.kept))
            got = hashlib.sha256()
            self.ftp.retrbinary(f"RETR {name}", got.update)
            if got.digest() != self.kept[name]:
                raise OSError(f"{name} has other contents")

    def command(self):
        line = self.dice.choice(COMMANDS)
        try:
            self.ftp.sendcmd(line)
        except ftplib.error_perm:
            # The server refuses these commands if the file or folder does not exist.
            if line.split()[0] not in ("SIZE", "MDTM", "CWD"):
                raise


class Gauge(threading.Thread):
    """A thread that samples the memory and the descriptors of both gateways."""

    def __init__(self, world):
        super().__init__(daemon=True)
        self.world, self.ended, self.samples = world, threading.Event(), []

    def run(self):
        begun = time.monotonic()
        while not self.ended.wait(SAMPLE_S):
            at = {"s": time.monotonic() - begun}
            for site in "ab":
                pid = self.world.processes[f"gateway-{site}"].pid
                at[f"memory {site}"] = self.world.memory_kib(site)
                at[f"descriptors {site}"] = len(os.listdir(f"/proc/{pid}/fd"))
            self.samples.append(at)

    def slope_per_hour(self, what):
        """Returns the growth of a value in an hour, by least squares over the samples after the start."""
        settled = self.samples[int(len(self.samples) * SETTLED_SHARE):]
        times, values = [it["s"] for it in settled], [it[what] for it in settled]
        if len(settled) < 3:
            return 0.0
        time_mean, value_mean = sum(times) / len(times), sum(values) / len(values)
        spread = sum((it - time_mean) ** 2 for it in times)
        return 3600 * sum((t - time_mean) * (v - value_mean) for t, v in zip(times, values)) / spread


def phase(world, server, args, name, most, step):
    tally, begun = Tally(most), time.monotonic()
    gauge = Gauge(world)
    gauge.start()
    deadline = begun + args.seconds
    sessions = [Session(world, server, number, deadline) for number in range(args.sessions)]
    threads = [threading.Thread(target=session.run, args=(tally, getattr(session, step))) for session in sessions]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        threads[0].join(60)
        for thread in threads:
            thread.join(0.1 if thread.is_alive() else 0)
        print(f"  {name}: {tally.done} of {most} in {time.monotonic() - begun:.0f} s, "
              f"{sum(tally.failures.values())} failed", flush=True)
    gauge.ended.set()
    took = time.monotonic() - begun
    slopes = {what: gauge.slope_per_hour(what) for what in gauge.samples[0] if what != "s"} if gauge.samples else {}
    lasts = gauge.samples[-1] if gauge.samples else {}
    return tally, took, slopes, lasts


def measure(world, args):
    server = servers.start_vsftpd(world)
    world.pair()
    part = 100 if args.quick else 1
    rows, missed, failures = [], [], []
    for name, most, step in [("transfers", args.transfers // part, "transfer"),
                             ("commands", args.commands // part, "command")]:
        tally, took, slopes, lasts = phase(world, server, args, name, most, step)
        failed = sum(tally.failures.values())
        rows.append((name, tally.done, failed, f"{took:.0f}", f"{tally.done / took:.0f}",
                     *[f"{lasts.get(f'memory {site}', 0) / 1024:.1f} ({slopes.get(f'memory {site}', 0):+.0f})" for site in "ab"],
                     *[f"{lasts.get(f'descriptors {site}', 0)} ({slopes.get(f'descriptors {site}', 0):+.1f})" for site in "ab"]))
        failures += [f"- {name}, {count} times: `{kind}`" for kind, count in tally.failures.items()]
        if tally.done + failed < most:
            print(f"  {name}: ended after {args.seconds} s")
        if failed:
            missed.append(f"{failed} {name} failed: {dict(tally.failures)}")
        for site in "ab" if took > 300 else "":
            if slopes[f"memory {site}"] > GROWTH_MAX_KIB:
                missed.append(f"{name}: the memory of gateway {site} grows by "
                              f"{slopes[f'memory {site}']:.0f} KiB an hour")
            if slopes[f"descriptors {site}"] > GROWTH_MAX_DESCRIPTORS:
                missed.append(f"{name}: the descriptors of gateway {site} grow by "
                              f"{slopes[f'descriptors {site}']:.0f} an hour")
    titles = ["", "done", "failed", "seconds", "a second", "near: MiB (KiB an hour)", "far: MiB (KiB an hour)",
              "near: descriptors (an hour)", "far: descriptors (an hour)"]
    table = pages.table(titles, rows)
    print("\n".join(table))
    bench.write(args, "soak", "Soak", [
        f"{args.sessions} sessions of Python's ftplib use a pair of gateways in fast mode. The path has {args.path}, "
        f"and the server is vsftpd. The files have {BYTES_MIN // 1000} to {BYTES_MAX // 1000} KB. The bench compares "
        "each download with the upload. The table shows memory and descriptors at the end. In brackets it shows their "
        "growth, by least squares without the first fifth of the samples.", "", *table, "",
        *(failures or ["No failure occurred."])])
    bench.require_none(missed)


def extend(parser):
    parser.add_argument("--sessions", type=int, default=32)
    parser.add_argument("--transfers", type=int, default=121_000)
    parser.add_argument("--commands", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1800, help="time limit for each of the two parts")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path(rate="1 Gbit/s", rtt="20ms", loss="0.1%"), extend=extend)
