"""Exit statuses of SFTP clients after uploads and downloads that fail.

The faults are requests that the server refuses late, a full disk, an outage of the link, and killed gateways and
servers.

With `early = "held"`, no client exits with 0 if the file is incomplete. No client succeeds through the pair if it fails
directly. The table of exit statuses is in target/conformance-ssh-failures.md.
"""

import os
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

import pages
import ssh_servers
import ssh_world
from files import digest, make_file
from ssh_clients import CLIENTS, Cell, Unsupported, missing_program, ssh_options
from world import ADDRESS_B, ROOT, Path

sys.path.append(ssh_servers.LIBRARIES)
paramiko = pytest.importorskip("paramiko")

PATH = Path("100 Mbit/s", "100ms", "0%")
RTT_S = 0.1
PORT, FULL_PORT, FULL_SERVER_PORT = 2311, 2312, 2232
SIZE, CUT_SIZE, FULL_SIZE, FULL_TMPFS = 8_000_000, 30_000_000, 8_000_000, "4m"
OUTAGE_S = 5
# A client whose transfer is cut ends within this time after the restart of the gateway or the server.
END_MAX_S = 60
LATE = {"WRITEs fail from the middle on": {"fail_writes_from": SIZE // 2},
        "one WRITE fails in the middle": {"fail_write_at": SIZE // 2}, "last WRITE fails": {"fail_write_at": SIZE - 1},
        "CLOSE fails": {"fail_close": True}, "FSETSTAT fails": {"fail_fsetstat": True}}
SFTP_CLIENTS = [name for name, client in CLIENTS.items() if not client.is_exec]
QUICK_CLIENTS = ["sftp", "sshfs", "lftp", "curl", "rsync"]
CUTS = ["no packets for 5 s", "near gateway killed", "far gateway killed", "server killed"]


class FullServer(ssh_servers.SshServer):
    """OpenSSH with a folder on a small tmpfs, which is in the mount namespace of the server."""

    def __init__(self, world, server):
        super().__init__(server.name, server.port, server.home, server.host_key, os.path.join(server.folder, "full"))
        self.pid = world.processes["full"].pid

    def file(self, name=""):
        return os.path.join(f"/proc/{self.pid}/root", self.folder.lstrip("/"), name)

    def empty(self):
        for name in os.listdir(self.file()):
            os.remove(self.file(name))


class Place:
    """A server with faults, a server with a full disk, and their listeners."""

    def __init__(self, world):
        self.world = world
        self.server = ssh_servers.start_asyncssh(world, "failing", lenient=True)
        self.full = FullServer(world, ssh_servers.start_openssh(world, "full", FULL_SERVER_PORT, tmpfs=FULL_TMPFS))
        self.has_gateways = ssh_world.knows_ssh(world)
        # Outcomes of an upload and a download without a fault, by client and verb.
        self.controls = {}
        self.start_pair()

    def start_pair(self):
        if self.has_gateways:
            self.world.allowed = [self.server.place(), self.full.place()]
            ssh_world.start_pair(
                self.world, ssh_world.listener(PORT, self.server.place(), early="held")
                + ssh_world.listener(FULL_PORT, self.full.place(), early="held"),
                [self.server.known_host(), self.full.known_host()])

    def restart_server(self):
        ssh_servers.start_asyncssh(self.world, "failing", lenient=True)

    def cell(self, server, port):
        """Returns a cell that connects through the pair, or a direct cell if there is no pair."""
        return Cell(self.world, server, "127.0.0.1", port, 120) if self.has_gateways else self.direct(server)

    def direct(self, server):
        return Cell(self.world, server, ADDRESS_B, server.port, 120)


@pytest.fixture(scope="module")
def place(world):
    """Starts the servers and the pair.

    Fails if the gateways do not answer WRITEs early, because the tests would then prove nothing.
    """
    place = Place(world)
    if place.has_gateways:
        require_early_replies(world, place)
    return place


@pytest.fixture(scope="module")
def table():
    """Yields the outcomes through the pair and directly, by fault and client. Writes them at the end."""
    table = {}
    yield table
    clients = [client for client in CLIENTS if any(key[1] == client for key in table)]
    rows = [(what, *(table.get((what, client), "") for client in clients)) for what in dict.fromkeys(key[0] for key in table)]
    with open(os.path.join(ROOT, "target", "conformance-ssh-failures.md"), "w") as file:
        file.write("\n".join(["Exit status, and whether the file is whole: through the pair / directly.", "",
                              *pages.table(["", *clients], rows), ""]))


class Outcome:
    """A client's exit status, and whether the file is complete."""

    def __init__(self, cell, source, target, hung=False):
        self.status = None if hung else cell.status
        self.said = cell.said
        self.is_whole = os.path.exists(target) and digest(source) == digest(target)

    @property
    def lies(self):
        return self.status == 0 and not self.is_whole

    def __str__(self):
        return f"{'hangs' if self.status is None else self.status}{'' if self.is_whole else ', not whole'}"


def skip_missing(client, options, quick=QUICK_CLIENTS):
    if options.quick and client not in quick:
        pytest.skip("not with --quick")
    if missing := missing_program(client):
        pytest.skip(f"not here: {missing}")


def require_control(place, table, client, move):
    """Requires that the client succeeds through the pair without a fault.

    Otherwise its failures with a fault prove nothing.
    """
    if not place.has_gateways:
        return
    key = client, move.__name__
    if key not in place.controls:
        ssh_servers.set_faults(place.world, "failing")
        place.controls[key] = move(place.cell(place.server, PORT), client, SIZE)
        table[f"no fault, {move.__name__}", client] = str(place.controls[key])
    control = place.controls[key]
    assert control.status == 0 and control.is_whole, f"fails without a fault: {control}; {control.said[-300:]}"


def upload(cell, client, size, with_attributes=False):
    cell.fresh()
    make_file(cell.here("up"), size)
    verb = CLIENTS[client].put_attributes if with_attributes else CLIENTS[client].put
    try:
        verb(cell, "up")
    except subprocess.TimeoutExpired:
        return Outcome(cell, cell.here("up"), cell.server.file("up"), hung=True)
    return Outcome(cell, cell.here("up"), cell.server.file("up"))


@pytest.mark.parametrize("client", SFTP_CLIENTS)
@pytest.mark.parametrize("fault", LATE)
def test_an_upload_that_the_server_refuses_late_fails(world, place, table, options, fault, client):
    skip_missing(client, options, SFTP_CLIENTS)
    require_control(place, table, client, upload)
    ssh_servers.set_faults(world, "failing", **LATE[fault])
    try:
        with_attributes = fault == "FSETSTAT fails"
        direct = upload(place.direct(place.server), client, SIZE, with_attributes)
        if not place.has_gateways:
            table[fault, client] = f"- / {direct}"
            pytest.skip(f"directly: {direct}")
        through = upload(place.cell(place.server, PORT), client, SIZE, with_attributes)
    except Unsupported:
        pytest.skip(f"{client} sets no attributes")
    finally:
        ssh_servers.set_faults(world, "failing")
    table[fault, client] = f"{through} / {direct}"
    assert through.status is not None, f"hangs; directly: {direct}"
    assert not through.lies, f"exit status 0 for a file that is not whole; directly: {direct}; {through.said[-300:]}"
    assert through.status != 0 or direct.status == 0, f"exit status 0 through the pair; directly: {direct}"
    # OpenSSH ignores a failed WRITE if the next WRITE succeeds. Through the pair the upload may then fail, because the
    # failure applies to the handle.
    assert through.status == 0 or direct.status != 0 or direct.lies, (
        f"exit status {through.status}, 0 directly: {through.said[-300:]}")


@pytest.mark.parametrize("client", SFTP_CLIENTS)
def test_a_download_whose_reads_fail_is_no_success(world, place, table, options, client):
    skip_missing(client, options, SFTP_CLIENTS)
    require_control(place, table, client, download)
    ssh_servers.set_faults(world, "failing", fail_reads_from=SIZE // 2)
    try:
        direct = download(place.direct(place.server), client, SIZE)
        through = download(place.cell(place.server, PORT), client, SIZE) if place.has_gateways else direct
    finally:
        ssh_servers.set_faults(world, "failing")
    table["READs fail from the middle on", client] = f"{through if place.has_gateways else '-'} / {direct}"
    assert not through.is_whole, "the reads must fail"
    if through.lies and direct.lies:
        pytest.skip("lies directly, too")
    assert not through.lies, f"exit status 0 for a file that is not whole; directly: {direct}; {through.said[-300:]}"
    assert through.status is not None, f"hangs; directly: {direct}"


def download(cell, client, size):
    cell.fresh()
    make_file(cell.server.file("down"), size)
    try:
        CLIENTS[client].get(cell, "down")
    except subprocess.TimeoutExpired:
        return Outcome(cell, cell.server.file("down"), cell.got("down"), hung=True)
    return Outcome(cell, cell.server.file("down"), cell.got("down"))


@pytest.mark.parametrize("client", CLIENTS)
def test_an_upload_to_a_full_disk_fails(world, place, table, options, client):
    skip_missing(client, options, CLIENTS)
    outcome = upload(place.cell(place.full, FULL_PORT), client, FULL_SIZE)
    direct = upload(place.direct(place.full), client, FULL_SIZE) if place.has_gateways else outcome
    table["disk full", client] = f"{outcome if place.has_gateways else '-'} / {direct}"
    assert not outcome.is_whole, "the disk must be too small"
    if outcome.lies and direct.lies:
        pytest.skip("lies directly, too")
    assert not outcome.lies, f"exit status 0; directly: {direct}"
    assert outcome.status is not None, f"hangs; directly: {direct}"


# Faults of the destination of `scp -3`. The source is OpenSSH.
BETWEEN_FAULTS = {name: faults for name, faults in LATE.items() if name != "FSETSTAT fails"}


def copy_between(source, target, size):
    """Copies with `scp -3`: the client reads a file from one server and writes it to another. Returns the outcome."""
    source.fresh()
    target.fresh()
    made, copy = source.server.file("between"), target.server.file("between")
    make_file(made, size)
    places = [f"scp://{cell.user}@{cell.host}:{cell.port}/{cell.there('between')}" for cell in (source, target)]
    try:
        source.run("scp", "-3", "-q", *ssh_options(source), *places)
    except subprocess.TimeoutExpired:
        return Outcome(source, made, copy, hung=True)
    return Outcome(source, made, copy)


@pytest.mark.parametrize("fault", ["no fault", "disk full", *BETWEEN_FAULTS])
def test_a_copy_between_servers_is_whole_or_fails(world, place, table, options, fault):
    is_full = fault == "disk full"
    servers = [(place.server, PORT), (place.full, FULL_PORT)] if is_full else [(place.full, FULL_PORT), (place.server, PORT)]
    # The small disk must have room for the source file.
    size = FULL_SIZE if is_full else FULL_SIZE // 4
    faults = {name: value // 4 if name.startswith("fail_write") else value
              for name, value in BETWEEN_FAULTS.get(fault, {}).items()}
    ssh_servers.set_faults(world, "failing", **faults)
    try:
        through = copy_between(*(place.cell(*server) for server in servers), size)
        direct = copy_between(*(place.direct(server) for server, _ in servers), size) if place.has_gateways else through
    finally:
        ssh_servers.set_faults(world, "failing")
        place.full.empty()
    table[f"{fault}, from server to server", "scp"] = f"{through if place.has_gateways else '-'} / {direct}"
    assert through.status is not None, f"hangs; directly: {direct}"
    assert not direct.is_whole or fault in ("no fault", "CLOSE fails"), "the fault must have an effect"
    if fault == "no fault":
        assert through.status == 0 and through.is_whole, f"{through}; directly: {direct}; {through.said[-300:]}"
    if through.lies and direct.lies:
        pytest.skip("lies directly, too")
    assert not through.lies, f"exit status 0 for a file that is not whole; directly: {direct}; {through.said[-300:]}"
    assert through.status != 0 or direct.status == 0, f"exit status 0 through the pair; directly: {direct}"


class RawSftp:
    """An SFTP session whose requests a test sends one by one."""

    def __init__(self, world, host, port):
        with world.entered("a"):
            connection = socket.create_connection((host, port), 30)
        self.transport = paramiko.Transport(connection)
        self.transport.start_client(timeout=30)
        self.transport.auth_password(ssh_servers.USER, ssh_servers.PASSWORD)
        self.channel = self.transport.open_session()
        self.channel.settimeout(30)
        self.channel.invoke_subsystem("sftp")
        self.left = b""
        self.send(1, 3)
        self.reply()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.transport.close()

    def send(self, kind, *fields):
        """Sends a packet. A number becomes a field of 32 bits, and bytes become a string."""
        body = bytes([kind]) + b"".join(
            struct.pack(">I", field) if isinstance(field, int) else struct.pack(">I", len(field)) + field for field in fields)
        self.channel.sendall(struct.pack(">I", len(body)) + body)

    def reply(self):
        """Returns the type, the request number and the other bytes of the next packet."""
        while len(self.left) < 4 or len(self.left) < 4 + struct.unpack(">I", self.left[:4])[0]:
            more = self.channel.recv(65536)
            assert more, "the session ends"
            self.left += more
        end = 4 + struct.unpack(">I", self.left[:4])[0]
        packet, self.left = self.left[4:end], self.left[end:]
        return packet[0], struct.unpack(">I", packet[1:5])[0], packet[5:]

    def status(self):
        kind, request, rest = self.reply()
        assert kind == 101, f"packet {kind} is no status"
        return request, struct.unpack(">I", rest[:4])[0]

    def open(self, path):
        """Opens a file for writing. Returns its handle."""
        self.send(3, 1, os.fsencode(path), 2 | 8 | 16, 0)
        kind, _, rest = self.reply()
        assert kind == 102, f"OPEN is answered by packet {kind}"
        return rest[4:]

    def write(self, request, handle, offset, data):
        self.send(6, request, handle, offset >> 32, offset & 0xffffffff, data)

    def close(self, handle):
        self.send(4, 1, handle)
        return self.status()[1]


def require_early_replies(world, place):
    """Requires that the gateways answer all WRITEs except the newest before the server can answer.

    The answers to the newest WRITE and to CLOSE must wait for the server.
    """
    ssh_servers.set_faults(world, "failing")
    with RawSftp(world, "127.0.0.1", PORT) as sftp:
        handle = sftp.open(os.path.join(place.server.folder, "early"))
        begun = time.monotonic()
        for number in range(6):
            sftp.write(number, handle, number * 1000, bytes(1000))
        took = [(sftp.status(), time.monotonic() - begun) for _ in range(6)]
        begun = time.monotonic()
        assert sftp.close(handle) == 0
        closed = time.monotonic() - begun
    assert [status for status, _ in took] == [(number, 0) for number in range(6)]
    assert took[4][1] < RTT_S / 2, f"the first five WRITEs are not answered early: {took}"
    assert took[5][1] >= RTT_S * 0.9 and closed >= RTT_S * 0.9, f"the newest does not wait: {took}, CLOSE {closed:.3f} s"


@pytest.mark.parametrize("pause_ms", [0, 10], ids=["at once", "with pauses"])
@pytest.mark.parametrize("at", [0, 10, 50, 98, 99])
def test_a_write_that_fails_fails_the_newest_and_close(world, place, at, pause_ms):
    """One of a hundred WRITEs fails.

    If the gateway confirmed this WRITE early, a later WRITE and CLOSE report the failure.
    """
    if not place.has_gateways:
        pytest.skip("there are no gateways")
    count, size = 100, 32768
    place.server.empty()
    ssh_servers.set_faults(world, "failing", fail_write_at=at * size)
    try:
        with RawSftp(world, "127.0.0.1", PORT) as sftp:
            handle = sftp.open(os.path.join(place.server.folder, "failing"))
            for number in range(count):
                sftp.write(number, handle, number * size, bytes(size))
                time.sleep(pause_ms / 1000)
            statuses = dict(sftp.status() for _ in range(count))
            closed = sftp.close(handle)
    finally:
        ssh_servers.set_faults(world, "failing")
    failed = [number for number, status in sorted(statuses.items()) if status]
    print(f"WRITE {at} fails at the server; to the client fail {failed[:3]}..{failed[-3:]}, CLOSE {closed}")
    assert len(statuses) == count
    assert count - 1 in failed, "the newest WRITE carries the failure"
    assert failed == list(range(failed[0], count)), "every later WRITE fails, too"
    assert closed != 0, "CLOSE fails, too"


class Moving:
    """A transfer by a client in a thread. A fifth of the file has arrived."""

    def __init__(self, world, cell, client, is_upload):
        self.cell, self.hung = cell, False
        cell.fresh()
        self.source, self.target = (cell.here("moved"), cell.server.file("moved"))
        if not is_upload:
            self.source, self.target = cell.server.file("moved"), cell.got("moved")
        make_file(self.source, CUT_SIZE)
        folder = os.path.dirname(self.target)

        def move():
            try:
                (CLIENTS[client].put if is_upload else CLIENTS[client].get)(cell, "moved")
            except subprocess.TimeoutExpired:
                self.hung = True

        self.thread = threading.Thread(target=move)
        self.thread.start()
        # rsync and rclone give the file its final name at the end.
        arrived = lambda: sum(entry.stat().st_size for entry in os.scandir(folder))
        world.wait(lambda: not self.thread.is_alive() or arrived() > CUT_SIZE // 5, "a fifth of the transfer", 60)
        assert self.thread.is_alive(), f"the transfer ended before the fault: {cell.status}, {cell.said[-300:]}"

    def outcome(self):
        self.thread.join()
        return Outcome(self.cell, self.source, self.target, self.hung)


def cut(world, place, what):
    """Disturbs a transfer. Starts a killed process again after one second."""
    if what == "no packets for 5 s":
        world.wan("set", "--outage", "on")
        time.sleep(OUTAGE_S)
        world.wan("set", "--outage", "off")
    elif what == "server killed":
        world.kill("failing")
        time.sleep(1)
        place.restart_server()
    else:
        site = "a" if what.startswith("near") else "b"
        world.kill(f"gateway-{site}")
        time.sleep(1)
        world.start_gateway(site)
        world.connected()


def moved(world, place, client, what, is_upload, cell):
    moving = Moving(world, cell, client, is_upload)
    cut(world, place, what)
    begun = time.monotonic()
    moving.thread.join(END_MAX_S + 1)
    took = time.monotonic() - begun
    return moving.outcome(), took


@pytest.mark.parametrize("direction", ["upload", "download"])
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("what", CUTS)
def test_a_transfer_that_is_cut_fails_or_is_whole(world, place, table, options, what, client, direction):
    skip_missing(client, options)
    if not place.has_gateways and "gateway" in what:
        pytest.skip("there are no gateways")
    if world.processes["failing"].poll() is not None:
        place.restart_server()
    is_upload = direction == "upload"
    outcome, took = moved(world, place, client, what, is_upload, place.cell(place.server, PORT))
    table[f"{what}, {direction}", client] = f"{outcome}, {took:.0f} s"
    if outcome.lies and place.has_gateways and what == "server killed":
        direct, _ = moved(world, place, client, what, is_upload, place.direct(place.server))
        if direct.lies:
            pytest.skip("lies directly, too")
    assert not outcome.lies, f"exit status 0 for a file that is not whole: {outcome.said[-300:]}"
    assert outcome.status is not None and took <= END_MAX_S, f"does not end within {END_MAX_S} s"
    if what == CUTS[0]:
        assert outcome.status == 0 and outcome.is_whole, f"a pause ended the transfer: {outcome}; {outcome.said[-300:]}"
