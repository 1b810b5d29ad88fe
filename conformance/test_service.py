"""The gateway as a service of systemd.

A separate systemd boots site a from a bare root folder, and starts the gateway with `packaging/longhaul.service`.

Client and near gateway share one machine, and so do server and far gateway. The client connects to 127.0.0.1:21. The
far gateway also connects to 127.0.0.1:21, an address that it lists in `allow`.
"""

import subprocess
import time

import pytest

import servers
from files import assert_same, make_file
from machine import UID, Machine
from world import Missing

SIZE = 20_000_000
# Path of the program on the machine.
PROGRAM = "/usr/local/bin/longhaul"
# `RestartSec` of the unit, and the time within which a restart would happen.
RESTART_S, PATIENCE_S = 2, 5

pytestmark = pytest.mark.needs("curl", "systemctl", "unshare", "nsenter")


@pytest.fixture(scope="module")
def server(world):
    """Starts a server that only its own machine can reach, and the far gateway."""
    server = servers.start_vsftpd(world, address="127.0.0.1")
    world.allowed.append(server.place("127.0.0.1"))
    world.gateway("b")
    return server


@pytest.fixture(scope="module")
def machine(world, server):
    world.write_config("a", '[[ftp]]\nlisten = "127.0.0.1:21"\ntarget = "127.0.0.1:21"\n')
    try:
        with Machine(world) as machine:
            world.connected()
            yield machine
    except Missing as missing:
        pytest.skip(f"there is no {missing}")


@pytest.fixture
def config(world, machine):
    """Yields the valid configuration. At the end, restores it and restarts the service."""
    with open(world.path("a.toml")) as file:
        config = file.read()
    yield config
    machine.write(config)
    machine.systemctl("reset-failed", "longhaul")
    machine.systemctl("restart", "longhaul")
    world.connected()


def assert_transfers(world, server):
    """Checks that a file goes up and down through 127.0.0.1 on both machines."""
    local, back = world.path("local"), world.path("back")
    make_file(local, SIZE)
    curl = ["curl", "-sS", "--max-time", "60", "--user", "anonymous:x"]
    world.run(*curl, "-T", local, "ftp://127.0.0.1/files/file", check=True)
    world.run(*curl, "-o", back, "ftp://127.0.0.1/files/file", check=True)
    assert_same(local, server.file("file"))
    assert_same(local, back)


def test_it_runs_after_the_boot(world, machine, server):
    assert machine.show("ActiveState") == "active"
    assert machine.show("UnitFileState") == "enabled"
    assert_transfers(world, server)


def test_it_runs_as_a_user_of_its_own_on_port_21(machine):
    uid = machine.run("ps", "-o", "uid=", "-p", machine.show("MainPID")).strip()
    assert uid == str(UID)
    assert ":21 " in machine.run("ss", "-Hltn")


def test_its_state_is_its_own_and_its_configuration_is_not(machine):
    enter = ["nsenter", "-t", machine.show("MainPID"), "-m"]
    assert "a.key.replay" in machine.run("ls", "/var/lib/longhaul")
    machine.run(*enter, "touch", "/var/lib/longhaul/probe")
    assert "probe" in machine.run("ls", "/var/lib/longhaul"), "the machine must see the file that the service wrote"
    machine.run("rm", "/var/lib/longhaul/probe")
    # In the service's mount namespace, the file system is read-only even for root.
    assert "Read-only" in machine.run(*enter, "touch", "/etc/longhaul/probe")
    assert machine.run("stat", "-c", "%u", "/etc/longhaul", "/etc/longhaul/gateway.toml").split() == ["0", "0"]


def test_killed_it_is_back(world, machine, server):
    pid = machine.show("MainPID")
    machine.systemctl("kill", "-s", "KILL", "longhaul")
    world.wait(lambda: machine.show("MainPID") not in ("0", pid) and world.is_connected(),
               "back after kill -9", 30)
    assert_transfers(world, server)


def test_a_changed_rate_is_taken_on_at_reload(world, machine, config):
    pid = machine.show("MainPID")
    machine.write(config.replace("[link]\n", '[link]\nrate_max = "50 Mbit/s"\n', 1))
    machine.systemctl("reload", "longhaul")
    world.wait(lambda: "configuration read again" in machine.log(), "the reload of the configuration")
    assert machine.show("ActiveState") == "active"
    assert machine.show("MainPID") == pid, "the process must be the same"


def test_a_newer_program_takes_over_at_reload_and_no_transfer_is_cut(world, machine, server):
    old, starts = machine.show("MainPID"), machine.show("NRestarts")
    local, back = world.path("slow"), world.path("slow-back")
    make_file(local, SIZE // 10)
    curl = ["curl", "-sS", "--max-time", "60", "--user", "anonymous:x", "--limit-rate", "400k"]
    world.run(*curl[:-2], "-T", local, "ftp://127.0.0.1/files/slow", check=True)
    transfer = subprocess.Popen(world.inside("a", *curl, "-o", back, "ftp://127.0.0.1/files/slow"))
    time.sleep(1)
    # A package manager replaces the program in the same way.
    machine.run("sh", "-c", f"cp {PROGRAM} {PROGRAM}.new && mv {PROGRAM}.new {PROGRAM}")
    machine.systemctl("reload", "longhaul")
    world.wait(lambda: machine.show("MainPID") not in ("0", old), "systemd knows another process")
    assert machine.show("ActiveState") == "active"
    assert_transfers(world, server)
    assert transfer.wait(60) == 0
    assert_same(local, back)
    world.wait(lambda: old not in machine.run("pgrep", "-x", "longhaul").split(), "the old process to end", 20)
    assert machine.show("NRestarts") == starts, "systemd must not have restarted the service"
    # systemd watches and restarts the new process.
    new = machine.show("MainPID")
    time.sleep(1)
    machine.systemctl("kill", "-s", "KILL", "--kill-who=main", "longhaul")
    world.wait(lambda: machine.show("MainPID") not in ("0", new) and world.is_connected(), "back after kill -9", 30)
    assert_transfers(world, server)


def test_a_wrong_configuration_fails_with_its_place_and_is_not_tried_again(world, machine, config):
    # After any other end of the gateway, systemd restarts it within `PATIENCE_S`.
    starts = machine.show("NRestarts")
    machine.systemctl("kill", "-s", "KILL", "longhaul")
    begun = time.monotonic()
    world.wait(lambda: machine.show("NRestarts") != starts, "a killed gateway is tried again")
    assert RESTART_S <= time.monotonic() - begun + 1 < PATIENCE_S

    machine.write(config.replace("[link]", "[lnik]", 1))
    machine.systemctl("restart", "longhaul")
    world.wait(lambda: machine.show("ActiveState") == "failed", "a wrong configuration fails")
    starts = machine.show("NRestarts")
    time.sleep(PATIENCE_S)
    assert machine.show("ActiveState") == "failed"
    assert machine.show("NRestarts") == starts
    assert "gateway.toml:3:2" in machine.log(), "the log has its line and column"


def test_it_stops_in_order(world, machine, config):
    assert machine.show("ActiveState") == "active"
    machine.systemctl("stop", "longhaul")
    assert machine.show("ActiveState") == "inactive"
    assert machine.show("Result") == "success"
