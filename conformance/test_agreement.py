"""Agreement of all views of a gateway after 5,000 transfers, of which one in five fails or is cut off.

The test adds up the transfer log, the metrics, the status and the dashboard, and compares the sums to the byte. It also
compares the packet counts of the gateways and the emulator.
"""

import collections
import ftplib
import io
import json
import random
import socket
import subprocess
import threading
import time
import urllib.request

import pytest

import servers
from world import NEAR_PORT, Path

PATH = Path(rate="1 Gbit/s", rtt="10ms", loss="0.5%")
TRANSFERS, TRANSFERS_QUICK = 5000, 500
SESSIONS = 16
BYTES_MAX = 60_000
LARGE_BYTES = 4_000_000
ADMIN = "127.0.0.1:9810"


class Client:
    """An FTP session that transfers files and fails on purpose."""

    def __init__(self, world, server, number, left):
        self.world, self.server, self.left = world, server, left
        self.dice = random.Random(number)
        self.folder = f"{server.folder}/c{number}"
        self.ftp = None
        # Counts of the client itself: transfers by outcome, and the bytes of complete transfers.
        self.seen = collections.Counter()

    def run(self):
        with self.world.entered("a"):
            while self.left.acquire(blocking=False):
                self.log_in()
                kind = self.dice.choices(["up", "down", "list", "missing", "forbidden", "cut"], [35, 35, 10, 8, 7, 5])[0]
                getattr(self, kind)()
            if self.ftp is not None:
                self.ftp.quit()

    def log_in(self):
        if self.ftp is not None:
            return
        self.ftp = ftplib.FTP(timeout=60)
        self.ftp.connect("127.0.0.1", NEAR_PORT)
        self.ftp.login(self.server.user, self.server.password)
        try:
            self.ftp.cwd(self.folder)
        except ftplib.error_perm:
            self.ftp.mkd(self.folder)
            self.ftp.cwd(self.folder)
            self.ftp.storbinary("STOR large", io.BytesIO(bytes(LARGE_BYTES)))
            self.seen["succeeded"] += 1
            self.seen["upload_bytes"] += LARGE_BYTES

    def up(self):
        content = self.dice.randbytes(self.dice.randrange(BYTES_MAX))
        self.ftp.storbinary(f"STOR f{self.dice.randrange(20)}", io.BytesIO(content))
        self.seen["succeeded"] += 1
        self.seen["upload_bytes"] += len(content)

    def down(self):
        got = []
        try:
            self.ftp.retrbinary(f"RETR f{self.dice.randrange(20)}", lambda part: got.append(len(part)))
        except ftplib.error_perm:
            self.seen["failed"] += 1
            return
        self.seen["succeeded"] += 1
        self.seen["download_bytes"] += sum(got)

    def list(self):
        got = []
        self.ftp.retrbinary("LIST", lambda part: got.append(len(part)))
        self.seen["succeeded"] += 1
        self.seen["download_bytes"] += sum(got)

    def missing(self):
        with pytest.raises(ftplib.error_perm):
            self.ftp.retrbinary("RETR nothing", lambda part: None)
        self.seen["failed"] += 1

    def forbidden(self):
        with pytest.raises(ftplib.error_perm):
            self.ftp.storbinary("STOR /above", io.BytesIO(b"x"))
        self.seen["failed"] += 1

    def cut(self):
        """Resets both connections during a download, without QUIT."""
        data = self.ftp.transfercmd("RETR large")
        data.recv(1000)
        for end in (data, self.ftp.sock):
            # With a linger time of 0 s, `close` resets the connection.
            end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            end.close()
        self.ftp.close()
        self.ftp = None
        self.seen["cut"] += 1


def fetch(world, path):
    with world.entered("a"), urllib.request.urlopen(f"http://{ADMIN}{path}", timeout=10) as answer:
        return answer.read().decode()


def logged(world):
    """Returns the sums of the transfer log."""
    with open(world.path("transfers.jsonl")) as log:
        lines = [json.loads(line) for line in log]
    return sums((line["succeeded"], line["direction"], line["bytes"]) for line in lines)


def sums(transfers):
    total = collections.Counter()
    for succeeded, direction, size in transfers:
        outcome = "succeeded" if succeeded else "failed"
        total[outcome] += 1
        total[f"{outcome}_{'upload' if direction == 'upload' else 'download'}_bytes"] += size
    return total


def told(world):
    """Returns the sums of /status.json."""
    status = json.loads(fetch(world, "/status.json"))
    total = collections.Counter()
    for outcome in ("succeeded", "failed"):
        of = status[f"ftp_{outcome}"]
        total[outcome] = of["transfers"]
        for way in ("upload", "download"):
            total[f"{outcome}_{way}_bytes"] = of[f"{way}_bytes"]
    return total


def measured(world):
    """Returns the sums of /metrics."""
    total = collections.Counter()
    for line in fetch(world, "/metrics").splitlines():
        name, _, value = line.rpartition(" ")
        for outcome in ("succeeded", "failed"):
            if f'"{outcome}"' not in name:
                continue
            if name.startswith("longhaul_ftp_transfers_total{"):
                total[outcome] += int(float(value))
            for way in ("upload", "download"):
                if name.startswith(f"longhaul_ftp_{way}_bytes_total{{"):
                    total[f"{outcome}_{way}_bytes"] += int(float(value))
    return total


def shown(world):
    """Returns the sums of the dashboard's recent transfers, which it reads page by page."""
    transfers, before = [], ""
    while True:
        page = json.loads(fetch(world, f"/dashboard/recent?{before}"))["transfers"]
        if not page:
            return sums((it["succeeded"], it["direction"], it["bytes"]) for it in transfers)
        transfers += page
        before = f"before={page[-1]['number']}"


def on_the_wan(world):
    """Returns the link's packets and their bytes with IP headers from each site.

    The first list contains the emulator's counts, and the second list the gateways' counts. The link is idle meanwhile.
    """
    for _ in range(100):
        before = [link_counts(world, site) for site in "ab"]
        emulator = json.loads(subprocess.run([world.longhaul, "wan", "--name", world.name, "show", "--json"], check=True,
                                             capture_output=True).stdout)
        if before == [link_counts(world, site) for site in "ab"]:
            ways = [emulator[way]["counters"] for way in ("a_to_b", "b_to_a")]
            return [(it["sent"], it["sent_bytes"]) for it in ways], before
        time.sleep(0.1)
    raise AssertionError("the link is never idle")


def link_counts(world, site):
    peers = world.status(site)["peers"]
    datagrams = sum(peer["sent_datagrams"] for peer in peers)
    return datagrams, sum(peer["sent_bytes"] for peer in peers)


def test_all_views_agree(world, options):
    server = servers.start_vsftpd(world, max_clients=100, max_per_ip=100)
    world.pair(f'[log]\ntransfer_log = "{world.path("transfers.jsonl")}"\n')
    time.sleep(1)
    emulator_before, links_before = on_the_wan(world)
    count = TRANSFERS_QUICK if options.quick else TRANSFERS
    left = threading.Semaphore(count)
    clients = [Client(world, server, number, left) for number in range(SESSIONS)]
    errors = []

    def run(client):
        try:
            client.run()
        except BaseException as error:  # noqa: BLE001: the test reports it
            errors.append(repr(error))

    threads = [threading.Thread(target=run, args=[client]) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors[:3]
    world.wait(lambda: world.status("a")["sessions_open"] == world.status("b")["sessions_open"] == 0, "all sessions to end", 30)
    seen = sum((client.seen for client in clients), collections.Counter())
    wanted = seen["succeeded"] + seen["failed"] + seen["cut"]
    # A separate thread writes the log.
    world.wait(lambda: sum(logged(world)[it] for it in ("succeeded", "failed")) >= wanted, "the transfer log", 10)
    views = {"transfer log": logged(world), "/status.json": told(world), "/metrics": measured(world), "dashboard": shown(world)}
    for name, view in views.items():
        print(f"\n{name}: {dict(sorted(view.items()))}", end="")
    print(f"\nclients: {dict(seen)}")
    assert all(view == views["transfer log"] for view in views.values())
    log = views["transfer log"]
    assert log["succeeded"] == seen["succeeded"]
    assert log["failed"] == seen["failed"] + seen["cut"]
    for way in ("upload", "download"):
        assert log[f"succeeded_{way}_bytes"] == seen[f"{way}_bytes"]
    emulator, links = on_the_wan(world)
    for site, one, other, link, was in zip("ab", emulator, emulator_before, links, links_before):
        packets, size = one[0] - other[0], one[1] - other[1]
        datagrams, link_size = link[0] - was[0], link[1] - was[1]
        print(f"from site {site}: the emulator saw {packets} packets of {size} bytes; the gateway sent {datagrams} of {link_size}")
        assert packets == datagrams
        assert size == link_size, "the gateway must count IP headers"
