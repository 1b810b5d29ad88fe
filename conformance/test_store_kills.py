"""Gateways with chunk stores that are killed during transfers, and restart with their stores.

Files share blocks, so the gateways send most of their chunks as references. In each round a transfer begins, and one of
the gateways is killed at a random moment. The gateway restarts with the same store, and the transfer is repeated.

If curl or the server reports success, the file is complete. The repeated transfer succeeds. At the end both stores are
verified. The variable LONGHAUL_SEED selects other moments and files.
"""

import json
import os
import random
import re
import shutil
import subprocess
import time

import pytest

import servers
from files import content
from world import NEAR_PORT, Path

PATH = Path(rate="200 Mbit/s", rtt="20ms", loss="0.1%")
SEED = int(os.environ.get("LONGHAUL_SEED", 20261127))
KILLS, KILLS_QUICK = 20, 4
# The file of a round: blocks that occur repeatedly, some new blocks, and a run of zeros.
BLOCKS, BLOCK_BYTES = 160, 100_000
ZEROS = 2_000_000
# In most rounds, curl limits the rate, and a transfer takes four seconds. During the last two seconds, a download is in
# buffers. The other rounds use the full rate of the path and many new blocks, so that a store is killed while it
# writes.
PACES = {
    "slow": {"rate": "4M", "new_share": 0.2, "moment_max_s": 1.5},
    "fast": {"rate": "1G", "new_share": 0.9, "moment_max_s": 0.4},
}
# The peer detects a killed gateway within this time, or when the gateway restarts.
PATIENCE_S = 60

URL = f"ftp://127.0.0.1:{NEAR_PORT}/files"

pytestmark = pytest.mark.needs("curl")


class Contents:
    """Files that consist of blocks from a growing pool."""

    def __init__(self, dice):
        self.dice, self.blocks = dice, [dice.randbytes(BLOCK_BYTES) for _ in range(BLOCKS // 2)]

    def next(self, new_share):
        parts = []
        for _ in range(BLOCKS):
            if self.dice.random() < new_share:
                self.blocks.append(self.dice.randbytes(BLOCK_BYTES))
            # New blocks also recur soon. Some blocks do not begin at a chunk boundary.
            block = self.dice.choice([self.blocks[-1], self.dice.choice(self.blocks)])
            parts.append(block[self.dice.randrange(3) * 1000:])
        parts.insert(self.dice.randrange(BLOCKS), bytes(ZEROS))
        return b"".join(parts)


class Round:
    """One file that moves up or down, several times if necessary."""

    def __init__(self, world, vsftpd, name, data, is_upload, rate="1G"):
        self.world, self.data, self.is_upload = world, data, is_upload
        there, here = vsftpd.file(name), world.path(name)
        self.source, self.arrives = (here, there) if is_upload else (there, here)
        with open(self.source, "wb") as file:
            file.write(data)
        os.chmod(self.source, 0o644)
        move = ["-T", here] if is_upload else ["-o", here]
        self.command = ["curl", "-sS", "--fail", "--limit-rate", rate, "--max-time", str(PATIENCE_S), *move,
                        f"{URL}/{name}"]

    def start(self):
        return subprocess.Popen(self.world.inside("a", *self.command), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def end(self, process):
        """Waits for a transfer.

        Returns whether curl reports success, and curl's output. After a success, the file must be complete.
        """
        said, _ = process.communicate(timeout=2 * PATIENCE_S)
        if process.returncode == 0:
            assert self.arrived() == self.data, (
                f"curl reports success for {len(self.arrived())} of {len(self.data)} bytes, or for other contents")
        return process.returncode == 0, said.strip()

    def arrived(self):
        return content(self.arrives) if os.path.exists(self.arrives) else b""

    def has_begun(self, process):
        """Returns a condition: some bytes have arrived, or the transfer has ended."""
        return lambda: process.poll() is not None or len(self.arrived()) > 0

    def forget(self):
        for path in (self.source, self.arrives):
            if os.path.exists(path):
                os.remove(path)


class Saved:
    """Bytes that deduplication saved at the near gateway. A restart of the gateway resets its counters."""

    def __init__(self, world):
        self.world, self.before = world, 0

    def now(self):
        return self.world.status("a")["optimiser"]["deduplication_saved_bytes"]

    def keep(self):
        """Keeps the count of a gateway that the test is about to kill."""
        self.before += self.now()

    def all(self):
        return self.before + self.now()


@pytest.fixture
def pair(world, vsftpd):
    """Starts two gateways with empty stores."""
    for site in "ba":
        folder = world.path(f"store-{site}")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        world.gateway(site, f'[store]\nfolder = "{folder}"\n')
    world.connected()
    yield
    world.stop_pair()


def begin_anew(world, sites):
    """Kills gateways, starts them again, and waits for their new link.

    Until then, the peer may treat the old link as up.
    """
    for site in sites:
        world.kill(f"gateway-{site}")
    for site in sites:
        world.start_gateway(site)
    for site in sites:
        world.wait(lambda site=site: world.status(site)["peers"][0]["state"] == "up", f"link of gateway {site}", 30)
    world.connected()


def verify(world, site):
    """Returns the report of `store verify` on each store of a site, the exit code and the error output."""
    done = world.run(world.longhaul, "store", "verify", "--json", "--config", world.path(f"{site}.toml"), site=site, capture_output=True,
                     text=True)
    return json.loads(done.stdout)["stores"], done.returncode, done.stderr


def has_all(world, site, count):
    """Returns whether the site's stores have more than `count` bytes on disk, and do not change."""
    before = world.status(site)["stores"]
    time.sleep(0.3)
    after = world.status(site)["stores"]
    return before == after and sum(store["disk_bytes"] for store in after) > count


def test_what_the_stores_have_outlives_a_kill_of_both(world, vsftpd, pair):
    dice, stored_bytes = random.Random(SEED), 0
    for is_upload in (True, False):
        data = dice.randbytes(BLOCKS * BLOCK_BYTES)
        one = Round(world, vsftpd, f"known-{is_upload}", data, is_upload)
        succeeded, said = one.end(one.start())
        assert succeeded, said
        stored_bytes += len(data)
        for site in "ab":
            world.wait(lambda site=site, count=stored_bytes: has_all(world, site, count), f"the chunks on the disk of gateway {site}")
        begin_anew(world, "ab")
        # The first transfer makes the server known to the restarted gateways. Only the second transfer counts.
        for _ in range(2):
            before = Saved(world).now()
            succeeded, said = one.end(one.start())
            assert succeeded, said
        assert Saved(world).now() - before > 0.9 * len(data)
        one.forget()
    world.stop_pair()
    assert_sound(world)


def test_what_arrives_is_whole_whichever_gateway_is_killed(world, vsftpd, pair, options, capsys):
    dice = random.Random(SEED)
    kills = KILLS_QUICK if options.quick else KILLS
    contents, saved, sizes_bytes = Contents(dice), Saved(world), {}
    cut = dict.fromkeys(["upload", "download"], 0)
    for number in range(kills):
        # The rounds combine both directions with both gateways.
        way, site = ["upload", "download"][number % 2], "ab"[number // 2 % 2]
        pace = PACES["fast" if number % 3 == 2 else "slow"]
        moment_s = dice.uniform(0, pace["moment_max_s"])
        told = f"seed {SEED}, round {number}: {way}, gateway {site} killed {moment_s:.2f} s after the first byte"
        one = Round(world, vsftpd, f"{way}-{number}", contents.next(pace["new_share"]), way == "upload", pace["rate"])
        sizes_bytes[f"{way}-{number}"] = len(one.data)
        process = one.start()
        world.wait(one.has_begun(process), f"{told}: the first byte", 30)
        time.sleep(moment_s)
        if site == "a":
            saved.keep()
        is_hit = process.poll() is None
        begin_anew(world, site)
        succeeded, said = one.end(process)
        assert succeeded or is_hit, f"{told}: the transfer ended before the kill, but failed: {said}"
        cut[way] += not succeeded
        succeeded, said = one.end(one.start())
        assert succeeded, f"{told}: repeated, {said}"
        one.forget()
    total = saved.all()
    world.stop_pair()
    with capsys.disabled():
        print(f"\n  {kills} kills, {cut['upload']} uploads and {cut['download']} downloads broken; "
              f"deduplication saved {total / 1e6:.0f} MB", flush=True)
    assert sum(cut.values()) >= kills // 2, f"seed {SEED}: too few transfers were cut: {cut}"
    assert total > 0, "the stores must be in use"
    taken = uploads(world)
    assert len(taken) >= kills // 2 and all(count == sizes_bytes[name] for name, count in taken), f"seed {SEED}: {taken}, {sizes_bytes}"
    assert_sound(world)


def uploads(world):
    """Returns the names and bytes of the uploads that the server reports as complete."""
    lines = [line for line in servers.transfers(world) if "OK UPLOAD" in line]
    found = [re.search(r'/files/(upload-\d+)", (\d+) bytes', line) for line in lines]
    return [(one[1], int(one[2])) for one in found if one]


def assert_sound(world):
    """Checks that no store is damaged, and that no gateway has panicked."""
    for site in "ab":
        stores, code, said = verify(world, site)
        assert stores and all(store["chunks"] > 0 for store in stores), (site, stores)
        damage = [(store["store"], store["damaged_chunks"], store["damaged_segments"], store["damage"]) for store in stores]
        assert code == 0, f"seed {SEED}, gateway {site}: {damage} {said}"
        assert "panicked" not in world.log(f"gateway-{site}"), f"seed {SEED}, gateway {site}"
