"""Real SFTP, scp and rsync clients with real SSH servers through a pair of gateways.

Every client uploads, downloads, lists, resumes, renames and deletes files, and sets their attributes, if it has the
operation. The contents must agree.

If a client fails, the test repeats the attempt without the gateways. If the client also fails directly, the fault is in
the client or the server, and the test counts as skipped. If the program lacks `[[ssh]]`, every test runs directly.

The module writes the table to target/conformance-ssh.md. `--write` also writes it to docs/ssh-clients.md.
"""

import os
import shutil
import subprocess

import pytest

import pages
import ssh_servers
import ssh_world
from files import assert_same, make_file
from ssh_clients import CLIENTS, Cell, Unsupported, missing_program
from world import ADDRESS_B, ROOT, Failure, Missing, Path

PATH = Path("300 Mbit/s", "10ms", "0%")
SERVERS = list(ssh_servers.STARTS)
KIB = 1024
# Sizes near the request sizes: 32 KiB of most clients, 255 KiB of OpenSSH.
SIZES = [0, 1, 32 * KIB - 1, 32 * KIB, 32 * KIB + 1, 255 * KIB - 1, 255 * KIB, 255 * KIB + 1, 10 * KIB * KIB]
LISTED = 250
RESUMED_BYTES, RESUMED_AT = 3_000_000, 1_000_001
LARGE_BYTES, LARGE_TAIL = (4 << 30) + 1_000_000, 1_000_000
MODE, MODIFIED = 0o640, 1577934245
# Every byte that a name may contain.
BYTES = [byte for byte in range(1, 256) if byte != ord("/")]
QUICK_BYTES = [0x01, 0x09, 0x0a, 0x0d, 0x1b, *range(0x20, 0x2f), 0x3a, 0x3b, 0x3f, 0x40, 0x5b, 0x5c, 0x60, 0x7c, 0x7e, 0x7f, 0x80,
               0xa0, 0xc3, 0xe9, 0xfe, 0xff]
# Clients that move a whole file of more than 4 GiB, with OpenSSH as the server.
WHOLE = ["sftp", "scp -O", "rsync", "lftp"]
FIRST_PORT = ssh_world.FIRST_PORT


def require_same(cell, one, other, what):
    cell.require(os.path.exists(other), f"{what}: no file")
    try:
        assert_same(one, other)
    except AssertionError as error:
        cell.require(False, f"{what}: {os.path.basename(other)}: {str(error).rpartition(': ')[2]}")


def make_there(cell, name, size):
    """Makes a file at the server, and returns its path."""
    path = cell.server.file(name)
    make_file(path, size)
    give(cell, path)
    return path


def give(cell, path):
    """Makes the server's user the owner of a file or a folder."""
    owner = os.stat(cell.server.file()).st_uid
    os.chown(path, owner, owner)


def put(cell, client, options):
    names = [f"size{size}" for size in SIZES]
    for name, size in zip(names, SIZES):
        make_file(cell.here(name), size)
    client.put(cell, *names)
    for name in names:
        require_same(cell, cell.here(name), cell.server.file(name), "put")
    cell.require(cell.status == 0, "put: all files are there")


def get(cell, client, options):
    names = [f"size{size}" for size in SIZES]
    for name, size in zip(names, SIZES):
        make_there(cell, name, size)
    client.get(cell, *names)
    for name in names:
        require_same(cell, cell.server.file(name), cell.got(name), "get")
    cell.require(cell.status == 0, "get: all files are there")


def listing(cell, client, options):
    wanted = {b"file %d" % number if number % 2 else b"file-%d" % number for number in range(LISTED)}
    if isinstance(client, type(CLIENTS["psftp"])):
        # psftp prints listings for people, so its parser takes the last word of a line as the name.
        wanted = {name.replace(b" ", b"_") for name in wanted}
    for name in wanted:
        open(cell.server.file(name), "w").close()
    listed = [os.path.basename(name) for name in client.listing(cell)]
    lost, more = wanted - set(listed), [name for name in listed if name not in wanted]
    cell.require(not lost and not more and len(listed) == LISTED and cell.status == 0,
                 f"list: {len(lost)} of {LISTED} names are missing, {len(more)} are others, such as {more[:2]}")


def resume(cell, client, options):
    make_file(cell.here("resumed"), RESUMED_BYTES)
    begin(cell, cell.here("resumed"), cell.server.file("resumed"))
    client.resume_put(cell, "resumed")
    require_same(cell, cell.here("resumed"), cell.server.file("resumed"), "resumed put")
    cell.require(cell.status == 0, "resumed put: the file is there")
    begin(cell, cell.here("resumed"), cell.got("resumed"))
    client.resume_get(cell, "resumed")
    require_same(cell, cell.here("resumed"), cell.got("resumed"), "resumed get")
    cell.require(cell.status == 0, "resumed get: the file is there")


def begin(cell, source, target):
    """Copies the first `RESUMED_AT` bytes of a file."""
    shutil.copyfile(source, target)
    os.truncate(target, RESUMED_AT)
    if target == cell.server.file("resumed"):
        give(cell, target)


def rename(cell, client, options):
    path = make_there(cell, "old", 40_000)
    shutil.copyfile(path, cell.here("new"))
    client.rename(cell, "old", "new")
    require_same(cell, cell.here("new"), cell.server.file("new"), "rename")
    cell.require(not os.path.exists(path) and cell.status == 0, "rename: the old name is gone")


def delete(cell, client, options):
    path = make_there(cell, "deleted", 40_000)
    client.delete(cell, "deleted")
    cell.require(not os.path.exists(path) and cell.status == 0, "delete")


def attributes(cell, client, options):
    make_file(cell.here("up"), 40_000)
    os.chmod(cell.here("up"), MODE)
    os.utime(cell.here("up"), (MODIFIED, MODIFIED))
    client.put_attributes(cell, "up")
    require_same(cell, cell.here("up"), cell.server.file("up"), "put with attributes")
    require_attributes(cell, cell.server.file("up"), "put")
    if type(client).get_attributes is type(client)._unsupported:
        return
    path = make_there(cell, "down", 40_000)
    os.chmod(path, MODE)
    os.utime(path, (MODIFIED, MODIFIED))
    client.get_attributes(cell, "down")
    require_same(cell, path, cell.got("down"), "get with attributes")
    require_attributes(cell, cell.got("down"), "get")


def require_attributes(cell, path, what):
    status = os.stat(path)
    cell.require(status.st_mode & 0o777 == MODE and int(status.st_mtime) == MODIFIED and cell.status == 0,
                 f"{what}: mode {status.st_mode & 0o777:o}, time {int(status.st_mtime)}")


def names(cell, client, options):
    """Moves a file for each byte that a name may contain, up and down.

    A name that is lost through the pair must also be lost directly.
    """
    values = QUICK_BYTES if options.quick else BYTES
    wanted = {b"n" + bytes([byte]) + b"m": b"%d" % byte for byte in values}
    os.mkdir(cell.here("tree"))
    for name, text in wanted.items():
        with open(os.fsencode(cell.here("tree")) + b"/" + name, "wb") as file:
            file.write(text)
    client.tree_put(cell, "tree")
    lost_up = lost(os.fsencode(cell.server.file("tree")), wanted)
    shutil.rmtree(cell.server.file("tree"), ignore_errors=True)
    shutil.copytree(os.fsencode(cell.here("tree")), os.fsencode(cell.server.file("tree")))
    for folder, _, files in os.walk(os.fsencode(cell.server.file("tree"))):
        for path in (folder, *(os.path.join(folder, file) for file in files)):
            give(cell, path)
    client.tree_get(cell, "tree")
    lost_down = lost(os.fsencode(cell.got("tree")), wanted)
    if lost_up or lost_down:
        raise Failure(f"names with these bytes are lost: up {lost_up or 'none'}, down {lost_down or 'none'}")


def lost(folder, wanted):
    """Returns the bytes whose files are missing or different, in hexadecimal and with ranges."""
    values = []
    for name, text in wanted.items():
        try:
            with open(os.path.join(folder, name), "rb") as file:
                arrived = file.read() == text
        except OSError:
            arrived = False
        values += [] if arrived else [int(text)]
    ranges = []
    for value in values:
        if ranges and ranges[-1][1] == value - 1:
            ranges[-1][1] = value
        else:
            ranges.append([value, value])
    return " ".join(f"{low:02x}" if low == high else f"{low:02x}-{high:02x}" for low, high in ranges)


def large(cell, client, options):
    """Resumes a file beyond 4 GiB near its end, in both directions, and checks its last bytes."""
    make_file(cell.path_of_tail, LARGE_TAIL)
    make_large(cell.here("large"), cell.path_of_tail)
    there, got = cell.server.file("large"), cell.got("large")
    make_large(there)
    give(cell, there)
    client.resume_put(cell, "large")
    require_tail(cell, there, "put")
    make_large(got)
    client.resume_get(cell, "large")
    require_tail(cell, got, "get")


def make_large(path, tail=None):
    with open(path, "wb") as file:
        file.truncate(LARGE_BYTES - LARGE_TAIL)
        if tail:
            file.seek(LARGE_BYTES - LARGE_TAIL)
            with open(tail, "rb") as source:
                file.write(source.read())


def require_tail(cell, path, what):
    cell.require(os.path.getsize(path) == LARGE_BYTES, f"{what} beyond 4 GiB: {os.path.getsize(path)} of {LARGE_BYTES} bytes")
    with open(path, "rb") as file, open(cell.path_of_tail, "rb") as tail:
        file.seek(LARGE_BYTES - LARGE_TAIL)
        cell.require(file.read() == tail.read() and cell.status == 0, f"{what} beyond 4 GiB")


OPERATIONS = {"put": put, "get": get, "list": listing, "resume": resume, "rename": rename, "delete": delete,
              "attributes": attributes, "names": names, "beyond 4 GiB": large}


class Place:
    """The available servers, and a listener for each server if the program has `[[ssh]]`."""

    def __init__(self, world):
        self.servers, self.missing, self.ports = {}, {}, {}
        for name, start in ssh_servers.STARTS.items():
            try:
                self.servers[name] = start(world)
            except Missing as missing:
                self.missing[name] = str(missing)
        self.has_gateways = ssh_world.knows_ssh(world)
        if self.has_gateways:
            near = ""
            for number, (name, server) in enumerate(self.servers.items()):
                self.ports[name] = FIRST_PORT + number
                near += ssh_world.listener(self.ports[name], server.place())
            world.allowed = [server.place() for server in self.servers.values()]
            ssh_world.start_pair(world, near, [server.known_host() for server in self.servers.values()])


@pytest.fixture(scope="module")
def place(world):
    return Place(world)


@pytest.fixture(scope="module")
def table(options):
    """Yields a dictionary of the verdict and the reason of a failure, by client, server and operation.

    Writes it at the end.
    """
    table = {}
    yield table
    lines = lines_of(table)
    path = os.path.join(ROOT, "target", "conformance-ssh.md")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write("\n".join([*lines, ""]))
    if options.write:
        pages.write_text("docs/ssh-clients.md", lines)


def attempt(cell, client, operation, options):
    """Tries an operation. Returns the reason of a failure, or None."""
    cell.path_of_tail = cell.world.path("tail")
    cell.fresh()
    try:
        OPERATIONS[operation](cell, CLIENTS[client], options)
    except (Failure, OSError) as error:
        return str(error) or type(error).__name__
    except subprocess.TimeoutExpired:
        return f"does not end within {cell.timeout} s"
    finally:
        # These files are sparse, but a program that reads one gets 4 GiB.
        for name in ("large",):
            for path in (cell.here(name), cell.got(name), cell.server.file(name)):
                if os.path.exists(path):
                    os.remove(path)
    return None


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_does_through_the_pair_what_it_does_directly(world, place, table, options, client, server, operation):
    key = client, server, operation
    if missing := missing_program(client) or place.missing.get(server):
        table[key] = "not here", missing
        pytest.skip(f"not here: {missing}")
    seconds = 60 if options.quick else 240
    directly = lambda: attempt(Cell(world, place.servers[server], ADDRESS_B, place.servers[server].port, seconds), client,
                               operation, options)
    try:
        if not place.has_gateways:
            why = directly()
            table[key] = ("directly", None) if why is None else ("not directly either", why)
            if why is not None:
                pytest.skip(f"not directly either: {why}")
            return
        why = attempt(Cell(world, place.servers[server], "127.0.0.1", place.ports[server], seconds), client, operation, options)
        verdict = "yes"
        if why is not None:
            direct = directly()
            # For `names`, both attempts must lose the same names.
            is_same = direct == why or operation != "names" and direct is not None
            verdict = "not directly either" if is_same else "no"
            why = f"{why}; directly: {direct}" if direct is not None and direct != why else why
    except Unsupported:
        table[key] = "-", None
        pytest.skip(f"{client} has no such operation")
    table[key] = verdict, why
    if verdict == "not directly either":
        pytest.skip(f"not directly either: {why}")
    assert verdict == "yes", why


@pytest.mark.parametrize("client", WHOLE)
def test_a_file_beyond_4_gib_arrives_whole_up_and_down(world, place, options, client):
    if options.quick:
        pytest.skip("4 GiB take minutes: not with --quick")
    if missing := missing_program(client) or place.missing.get("OpenSSH"):
        pytest.skip(f"not here: {missing}")
    server = place.servers["OpenSSH"]
    where = ("127.0.0.1", place.ports["OpenSSH"]) if place.has_gateways else (ADDRESS_B, server.port)
    cell = Cell(world, server, *where, timeout=1800)
    cell.path_of_tail = world.path("tail")
    cell.fresh()
    make_file(cell.path_of_tail, LARGE_TAIL)
    make_large(cell.here("large"), cell.path_of_tail)
    CLIENTS[client].put(cell, "large")
    require_tail(cell, server.file("large"), "put")
    CLIENTS[client].get(cell, "large")
    require_tail(cell, cell.got("large"), "get")
    cell.fresh()


def lines_of(table):
    """Returns the table of clients and servers, and the list of failures."""
    clients = [client for client in CLIENTS if any(key[0] == client for key in table)]
    used = [server for server in SERVERS if any(key[1] == server for key in table)]

    def cell(client, server):
        found = {operation: table[client, server, operation][0] for operation in OPERATIONS
                 if (client, server, operation) in table}
        if not found or "not here" in found.values():
            return "not here" if found else ""
        words = []
        for verdict, word in (("no", "fails"), ("not directly either", "also fails directly"), ("-", "has no")):
            some = [operation for operation, what in found.items() if what == verdict]
            words += [f"{word}: {', '.join(some)}"] if some else []
        return "; ".join(words) or "yes"

    rows = [(client, *(cell(client, server) for server in used)) for client in clients]
    through = "directly, without gateways" if any(verdict == "directly" for verdict, _ in table.values()) else "through a pair"
    return ["# SFTP, scp and rsync clients and servers", "",
            f"The command `cargo xtask conformance ssh -- --write` writes this page. Each client ran {through}. The emulated WAN",
            f"has a round-trip time of {PATH.rtt}. The operations are {', '.join(OPERATIONS)}.", "",
            "SFTPGo is not in Debian, so the table has no column for it.", "",
            *pages.table(["client", *used], rows), "",
            *(f"- {client} and {server}, {operation}: {verdict}. Error: {why}"
              for (client, server, operation), (verdict, why) in table.items() if verdict in ("no", "not directly either"))]
