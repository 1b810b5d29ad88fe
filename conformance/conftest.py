"""Options and fixtures of the conformance tests.

Each module has a world of its own. The module's `PATH` defines the emulated path. A test is skipped if this machine
lacks a program that the test needs. If a test fails, its report contains the last lines of each log of its world.
"""

import dataclasses
import glob
import os
import shutil

import pytest

import servers
from world import PROGRAM, ROOT, Missing, Path, World

LOG_LINES = 25


def pytest_addoption(parser):
    group = parser.getgroup("longhaul")
    group.addoption("--longhaul", default=PROGRAM, help="program under test")
    group.addoption("--previous", help="program of the previous release")
    group.addoption("--quick", action="store_true", help="use smaller files and fewer repetitions")
    group.addoption("--write", action="store_true", help="write tables and pictures into docs/")
    group.addoption("--keep", action="store_true", help="keep the folders of the worlds")
    group.addoption("--gateways", default=os.path.join(ROOT, "target", "release", "examples", "dashboard"),
                    help="program that runs the gateways of the dashboard tests")
    for option in ("rate", "rtt", "loss"):
        group.addoption(f"--{option}", help="value for the emulated path, instead of the module's value")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(programs): skip the test if one of the programs is missing")


def pytest_sessionstart(session):
    program = session.config.getoption("longhaul")
    if not session.config.option.collectonly and not os.path.exists(program):
        raise pytest.UsageError(f"{program} does not exist: cargo build --release -p longhaul")


def pytest_runtest_setup(item):
    if os.geteuid() != 0:
        pytest.skip("needs root, for network namespaces")
    programs = {"ip", "vsftpd", "openssl"}
    for marker in item.iter_markers("needs"):
        programs.update(marker.args)
    if missing := sorted(program for program in programs if shutil.which(program) is None):
        pytest.skip(f"not installed: {', '.join(missing)}")


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    world = getattr(item, "funcargs", {}).get("world")
    if report.failed and world is not None:
        for path in sorted(glob.glob(world.path("*.log"))):
            with open(path, errors="replace") as log:
                lines = log.read().splitlines()[-LOG_LINES:]
            if lines:
                report.sections.append((f"end of {os.path.basename(path)}", "\n".join(lines)))


@pytest.fixture(scope="session")
def options(pytestconfig):
    return pytestconfig.option


@pytest.fixture(scope="module")
def world(request, options):
    """Yields the module's world, without servers and gateways."""
    path = getattr(request.module, "PATH", Path())
    given = {name: getattr(options, name) for name in ("rate", "rtt", "loss") if getattr(options, name)}
    with World(options.longhaul, dataclasses.replace(path, **given), options.keep) as world:
        yield world


@pytest.fixture(scope="module")
def vsftpd(world):
    """Starts vsftpd in site b at port 21."""
    return servers.start_vsftpd(world)


@pytest.fixture(scope="module")
def start_servers(world):
    """Returns a function that starts servers as `servers.start_all` does.

    The function skips the test if a server is not available.
    """
    def start(**more):
        try:
            return servers.start_all(world, **more)
        except Missing as missing:
            pytest.skip(str(missing))
    return start
