"""The packages as an operator installs them, on two machines with Debian 12 and a systemd of their own.

The tests run the three commands of the README, move a file and purge the packages. The purge leaves no file behind.

debootstrap makes the machines once, and an archive beside the build keeps them. The variable LONGHAUL_PACKAGES names a
folder with packages that are already built.
"""

import glob
import os
import re
import subprocess
import time

import pytest

import servers
from files import assert_same, make_file
from machine import Installed
from world import ADDRESS_B, ROOT

SIZE = 20_000_000

pytestmark = pytest.mark.needs("curl", "debootstrap", "dpkg-deb", "lintian", "nsenter", "unshare")


@pytest.fixture(scope="module")
def packages():
    folder = os.environ.get("LONGHAUL_PACKAGES")
    if folder is None:
        subprocess.run(["cargo", "xtask", "package"], cwd=ROOT, check=True, stdin=subprocess.DEVNULL)
        folder = os.path.join(ROOT, "target", "packages")
    found = sorted(glob.glob(os.path.join(folder, "*.deb")))
    assert len(found) == 2, found
    return found


@pytest.fixture(scope="module")
def server(world):
    return servers.start_vsftpd(world)


@pytest.fixture(scope="module")
def sites(world, packages):
    """Installs both packages on a machine in each site, and yields the two machines."""
    with Installed(world, "a") as near, Installed(world, "b") as far:
        for machine in (near, far):
            machine.install(packages)
        yield near, far


def test_lintian_finds_no_error(packages):
    ran = subprocess.run(["lintian", "--fail-on", "error", "--no-tag-display-limit", *packages],
                         capture_output=True, text=True)
    print(ran.stdout)
    assert ran.returncode == 0, ran.stdout


def test_the_unit_is_exposed_to_little(sites):
    told = sites[0].run("systemd-analyze", "security", "longhaul", "--no-pager")
    level = float(re.search(r"Overall exposure level for longhaul.service: ([0-9.]+)", told).group(1))
    print(f"exposure {level}")
    assert level <= 2.0, told


def test_the_three_commands_of_the_readme_make_a_pair(world, sites, server):
    near, far = sites
    begun = time.monotonic()
    told = far.run("longhaul", "setup", "far", "--allow", server.place(), "--endpoint", f"{ADDRESS_B}:4810")
    invite = told.strip().splitlines()[-1]
    assert invite.startswith("longhaul-invite-1-"), told
    told = near.run("longhaul", "setup", "near", "--invite-file", "-", "--target", server.place(), told=invite + "\n")
    assert "is up" in told, told
    status = near.run("longhaul", "status")
    seconds = time.monotonic() - begun
    print(f"from setup far to status: {seconds:.1f} s")
    assert "far" in status and " up" in status, status
    assert seconds < 60
    assert near.show("ActiveState") == "active" and near.show("UnitFileState") == "enabled"
    local, back = world.path("local"), world.path("back")
    make_file(local, SIZE)
    curl = ["curl", "-sS", "--max-time", "60", "--user", f"{server.user}:{server.password}"]
    world.run(*curl, "-T", local, f"ftp://127.0.0.1/{server.folder}/file", check=True)
    world.run(*curl, "-o", back, f"ftp://127.0.0.1/{server.folder}/file", check=True)
    assert_same(local, back)


def test_the_doctor_finds_nothing(sites):
    for machine in sites:
        told = machine.run("longhaul", "doctor")
        assert "WRONG" not in told and "ok" in told, told


def test_it_is_back_after_a_restart_and_a_reload_and_is_watched(sites):
    near, _ = sites
    near.systemctl("restart", "longhaul")
    assert near.show("ActiveState") == "active"
    near.systemctl("reload", "longhaul")
    assert near.show("ActiveState") == "active"
    assert near.show("Type") == "notify" and near.show("WatchdogUSec") == "30s"


def test_a_newer_package_takes_over_and_no_transfer_is_cut(world, sites, server, packages):
    local, back = world.path("slow"), world.path("slow-back")
    make_file(local, SIZE // 5)
    url = f"ftp://127.0.0.1/{server.folder}/slow"
    curl = ["curl", "-sS", "--max-time", "100", "--user", f"{server.user}:{server.password}"]
    world.run(*curl, "-T", local, url, check=True)
    transfer = subprocess.Popen(world.inside("a", *curl, "--limit-rate", "200k", "-o", back, url))
    time.sleep(1)
    before = [machine.show("MainPID") for machine in sites]
    for machine in sites:
        # The package manager treats a reinstallation of the same version as an upgrade.
        machine.install(packages, "--reinstall")
    for machine, pid in zip(sites, before):
        world.wait(lambda machine=machine, pid=pid: machine.show("MainPID") not in ("0", pid), "another process", 20)
        assert machine.show("ActiveState") == "active" and machine.show("NRestarts") == "0"
    assert transfer.wait(100) == 0
    assert_same(local, back)
    for machine, pid in zip(sites, before):
        world.wait(lambda machine=machine, pid=pid: pid not in machine.run("pgrep", "-x", "longhaul").split(),
                   "the old process to end", 20)


def test_the_laboratory_is_called_by_its_own_name(sites):
    near, _ = sites
    assert "emulated" in near.run("longhaul", "wan", "--help")


def test_man_pages_and_completions_are_there(sites):
    near, _ = sites
    for path in ["usr/share/man/man1/longhaul.1.gz", "usr/share/man/man1/longhaul-setup.1.gz",
                 "usr/share/bash-completion/completions/longhaul"]:
        assert os.path.exists(near.file(path)), path


def test_a_purge_leaves_nothing(sites):
    for machine in sites:
        machine.purge()
        left = machine.changes()
        assert left == [], left
        assert "longhaul" not in machine.read("etc/passwd") + machine.read("etc/group")
        assert machine.show("LoadState") == "not-found"
