"""Options and fixtures: each module has a world of its own, on the path that its `PATH` names.

What is missing on this machine skips the tests that need it. When a test fails, the last lines of its gateways'
and servers' logs stand beside its error.
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
    group.addoption("--longhaul", default=PROGRAM, help="the program to be tested")
    group.addoption("--previous", help="the program of the previous release")
    group.addoption("--quick", action="store_true", help="files a tenth as large")
    group.addoption("--write", action="store_true", help="write the tables into docs/")
    group.addoption("--keep", action="store_true", help="leave the folders of worlds behind")
    group.addoption("--gateways", default=os.path.join(ROOT, "target", "release", "examples", "dashboard"),
                    help="the gateways whose dashboard is tested")
    for option in ("rate", "rtt", "loss"):
        group.addoption(f"--{option}", help="of the emulated path, in place of the module's")


def pytest_configure(config):
    config.addinivalue_line("markers", "needs(programs): skipped where one of them is missing")


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
    """The module's world, without server and gateways."""
    path = getattr(request.module, "PATH", Path())
    given = {name: getattr(options, name) for name in ("rate", "rtt", "loss") if getattr(options, name)}
    with World(options.longhaul, dataclasses.replace(path, **given), options.keep) as world:
        yield world


@pytest.fixture(scope="module")
def vsftpd(world):
    """The server of site b at its usual port."""
    return servers.start_vsftpd(world)


@pytest.fixture(scope="module")
def start_servers(world):
    """Starts servers as `servers.start_all` does; the test is skipped where they cannot be had."""
    def start(**more):
        try:
            return servers.start_all(world, **more)
        except Missing as missing:
            pytest.skip(str(missing))
    return start
