"""The main job: vsftpd behind a pair of gateways, with curl, lftp and Python's ftplib as clients.

The tests log in, list a folder, and move 1 GB in both directions and a file over 4 GiB. They resume transfers with
REST, also beyond 4 GiB, append with APPE, and move several files at once. Every hash must agree.
"""

import contextlib
import ftplib
import os
import shutil

import pytest

from files import assert_same, make_file
from world import ADDRESS_B, CHOICE, NEAR_PORT

URL = f"ftp://127.0.0.1:{NEAR_PORT}/files"
GIGABYTE, OVER_4_GIB = 1_000_000_000, (4 << 30) + 123_456_789
# Bytes at the end of a file that a resumed transfer moves.
REST = 50_000_000
BLOCK = 1 << 20

pytestmark = pytest.mark.needs("curl", "lftp")


class Curl:
    def __init__(self, world):
        self.world = world

    def run(self, *arguments):
        done = self.world.run("curl", "-sS", "--fail", *arguments, check=True, capture_output=True,
                              text=True)
        return done.stdout

    def names(self):
        return [line.split()[-1] for line in self.run(f"{URL}/").splitlines()]

    def up(self, path, name, at=0):
        self.run(*(["-C", "-"] if at else []), "-T", path, f"{URL}/{name}")

    def down(self, name, path, at=0):
        self.run(*(["-C", "-"] if at else []), "-o", path, f"{URL}/{name}")

    def append(self, path, name):
        self.run("-a", "-T", path, f"{URL}/{name}")


class Lftp:
    def __init__(self, world):
        self.world = world

    def run(self, script):
        done = self.world.run("lftp", "-c", f"set net:max-retries 1; set cmd:fail-exit true; "
                              f"open -p {NEAR_PORT} 127.0.0.1; user anonymous x; cd files; {script}",
                              check=True, capture_output=True, text=True)
        return done.stdout

    def names(self):
        return self.run("cls -1").split()

    def up(self, path, name, at=0):
        self.run(f"put {'-c ' if at else ''}{path} -o {name}")

    def down(self, name, path, at=0):
        self.run(f"get {'-c ' if at else ''}{name} -o {path}")


class Ftplib:
    def __init__(self, world):
        self.world = world

    @contextlib.contextmanager
    def session(self):
        with self.world.entered("a"), ftplib.FTP(timeout=120) as ftp:
            ftp.connect("127.0.0.1", NEAR_PORT)
            ftp.login()
            ftp.cwd("files")
            yield ftp

    def names(self):
        with self.session() as ftp:
            lines = []
            ftp.retrlines("LIST", lines.append)
            names = ftp.nlst()
            assert len(lines) == len(names), "LIST and NLST must return the same number of names"
            return names

    def up(self, path, name, at=0):
        with self.session() as ftp, open(path, "rb") as file:
            file.seek(at)
            ftp.storbinary(f"STOR {name}", file, BLOCK, rest=at or None)

    def down(self, name, path, at=0):
        with self.session() as ftp, open(path, "ab" if at else "wb") as file:
            ftp.retrbinary(f"RETR {name}", file.write, BLOCK, at or None)

    def append(self, path, name):
        with self.session() as ftp, open(path, "rb") as file:
            ftp.storbinary(f"APPE {name}", file, BLOCK)


CLIENTS = {"curl": Curl, "lftp": Lftp, "ftplib": Ftplib}


@pytest.fixture(scope="module", autouse=True)
def pair(world, vsftpd):
    world.pair()


@pytest.fixture(autouse=True)
def emptied(vsftpd):
    yield
    vsftpd.empty()


@pytest.fixture(params=CLIENTS)
def client(request, world):
    return CLIENTS[request.param](world)


@pytest.fixture(scope="module")
def gigabyte(world, options):
    path = world.path("gigabyte")
    make_file(path, GIGABYTE // (10 if options.quick else 1))
    yield path
    os.remove(path)


@pytest.fixture(scope="module")
def large(world, options):
    """Makes a file over 4 GiB. Yields its path and a path for a copy."""
    path, copy = world.path("large"), world.path("large-copy")
    make_file(path, OVER_4_GIB // (10 if options.quick else 1))
    yield path, copy
    os.remove(path)


def test_a_client_lists_a_folder(vsftpd, client):
    make_file(vsftpd.file("hello"), 1000)
    assert client.names() == ["hello"]


def test_a_login_that_names_its_server_gets_there(world, vsftpd):
    make_file(vsftpd.file("hello"), 1000)
    chosen = world.run("curl", "-sS", "-u", f"anonymous@{ADDRESS_B}:x",
                       f"ftp://127.0.0.1:{CHOICE}/files/", check=True, capture_output=True, text=True)
    assert "hello" in chosen.stdout


def test_a_gigabyte_goes_up_and_down_unchanged(world, vsftpd, client, gigabyte):
    back = world.path("back")
    client.up(gigabyte, "gigabyte")
    assert_same(gigabyte, vsftpd.file("gigabyte"))
    client.down("gigabyte", back)
    assert_same(gigabyte, back)
    os.remove(back)


def test_a_file_over_4_gib_goes_up_by_curl_and_down_by_lftp(world, vsftpd, large, options):
    if options.quick:
        pytest.skip("--quick makes it smaller")
    path, back = large
    Curl(world).up(path, "large")
    assert_same(path, vsftpd.file("large"))
    Lftp(world).down("large", back)
    assert_same(path, back)
    os.remove(back)


def test_a_download_resumes_near_the_end_of_a_large_file(vsftpd, client, large):
    path, back = large
    shutil.copyfile(path, vsftpd.file("large"))
    shutil.copyfile(path, back)
    at = os.path.getsize(path) - REST
    os.truncate(back, at)
    client.down("large", back, at)
    assert_same(path, back)
    os.remove(back)


def test_an_upload_resumes_near_the_end_of_a_large_file(vsftpd, client, large):
    path, _ = large
    there = vsftpd.file("large")
    shutil.copyfile(path, there)
    at = os.path.getsize(path) - REST
    os.truncate(there, at)
    shutil.chown(there, "ftp")
    client.up(path, "large", at)
    assert_same(path, there)


@pytest.mark.parametrize("name", ["curl", "ftplib"])
def test_appe_appends_to_what_is_there(world, vsftpd, name):
    client = CLIENTS[name](world)
    first, second, whole = world.path("first"), world.path("second"), world.path("whole")
    make_file(first, 3_000_000)
    make_file(second, 2_000_000)
    with open(whole, "wb") as out:
        for part in (first, second):
            with open(part, "rb") as file:
                shutil.copyfileobj(file, out)
    client.append(first, "appended")
    client.append(second, "appended")
    assert_same(whole, vsftpd.file("appended"))


def test_sixteen_files_go_up_and_down_eight_at_once(world, vsftpd, options):
    many, back = world.path("many"), world.path("many-back")
    os.makedirs(many)
    names = [f"file {number}" for number in range(16)]
    for number, name in enumerate(names):
        make_file(os.path.join(many, name), 20_000_000 // (10 if options.quick else 1) + number)
    Lftp(world).run(f"mirror -R -P 8 {many} many")
    Lftp(world).run(f"mirror -P 8 many {back}")
    for name in names:
        assert_same(os.path.join(many, name), vsftpd.file(f"many/{name}"))
        assert_same(os.path.join(many, name), os.path.join(back, name))
