"""The archive for other distributions: its program runs without other files, and resolves the names of servers.

The variable LONGHAUL_PACKAGES names a folder with packages that are already built.
"""

import glob
import os
import socket
import struct
import subprocess
import threading

import pytest

import servers
from files import assert_same, make_file
from world import ADDRESS_B, NEAR_PORT, ROOT

SIZE = 20_000_000
NAME = "far.example"

pytestmark = pytest.mark.needs("curl")


@pytest.fixture(scope="module")
def program(world):
    """Unpacks the archive into the world's folder, and returns the path of the program below this folder.

    The folder is the root directory of the processes that run the program.
    """
    folder = os.environ.get("LONGHAUL_PACKAGES")
    if folder is None:
        subprocess.run(["cargo", "xtask", "package"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
        folder = os.path.join(ROOT, "target", "packages")
    archive = max(glob.glob(os.path.join(folder, "longhaul-*-linux-*.tar.gz")), key=os.path.getmtime)
    subprocess.run(["tar", "-xzf", archive, "-C", world.folder], check=True)
    [folder] = glob.glob(world.path("longhaul-*-linux-*"))
    return f"/{os.path.basename(folder)}/longhaul"


def alone(world, site, *command):
    return world.run("chroot", world.folder, *command, site=site, capture_output=True, text=True)


class Names(threading.Thread):
    """A name server that answers every request for an IPv4 address with `ADDRESS_B`."""

    def __init__(self, world, site):
        super().__init__(daemon=True)
        self.asked = 0
        with world.entered(site):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.socket.bind(("127.0.0.1", 53))

    def run(self):
        while True:
            question, client = self.socket.recvfrom(512)
            self.asked += 1
            name_end = question.index(b"\0", 12) + 5
            kind = struct.unpack("!H", question[name_end - 4:name_end - 2])[0]
            answer = b""
            if kind == 1:
                address = bytes(int(part) for part in ADDRESS_B.split("."))
                answer = struct.pack("!HHHIH", 0xC00C, 1, 1, 60, 4) + address
            head = question[:2] + struct.pack("!HHHHH", 0x8180, 1, int(bool(answer)), 0, 0)
            self.socket.sendto(head + question[12:name_end] + answer, client)


def test_it_has_what_a_reader_looks_for(world, program):
    folder = os.path.dirname(world.folder + program)
    for name in ["README.md", "LICENSE", "packaging/longhaul.service", "docs/operating.md", "docs/tutorials/two-sites.md", "docs/how-to/upgrade.md", "examples/site-a.toml", "man/longhaul.1", "completions/longhaul.bash"]:
        assert os.path.exists(os.path.join(folder, name)), (name, os.listdir(folder))
    print(f"{os.path.getsize(world.folder + program) / 1e6:.1f} MB")


def test_it_moves_a_file_where_there_is_nothing_else(world, program):
    server = servers.start_vsftpd(world)
    os.makedirs(world.path("etc"))
    with open(world.path("etc", "resolv.conf"), "w") as file:
        file.write("nameserver 127.0.0.1\n")
    names = Names(world, "a")
    names.start()
    world.far_host = NAME
    made = alone(world, "a", program, "keygen", "/another.key")
    assert made.returncode == 0, made.stderr
    for site in "ba":
        world.write_config(site)
        world.start(f"gateway-{site}", site, "chroot", world.folder, program, "gateway", "--config", f"/{site}.toml")
    world.connected()
    assert names.asked > 0
    local, back = world.path("local"), world.path("back")
    make_file(local, SIZE)
    curl = ["curl", "-sS", "--max-time", "60", "--user", f"{server.user}:{server.password}"]
    world.run(*curl, "-T", local, f"ftp://127.0.0.1:{NEAR_PORT}/{server.folder}/file", check=True)
    world.run(*curl, "-o", back, f"ftp://127.0.0.1:{NEAR_PORT}/{server.folder}/file", check=True)
    assert_same(local, back)
    said = alone(world, "a", program, "status")
    assert said.returncode == 0 and "site-b" in said.stdout, said.stdout + said.stderr
