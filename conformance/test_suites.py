"""Third-party test suites through a pair of gateways.

A test that passes directly must also pass through the pair in strict and in fast mode. `deviations` contains the known
exceptions and their reasons.

`--write` writes the counts and the deviations into docs/results/suites.md.
"""

import functools
import os
import shutil

import pytest

import deviations
import pages
import suites
from suites import PYFTPDLIB
from world import Missing, Path

PATH = Path("1 Gbit/s", "0ms", "0%")

# The suite, its title, whether clients log in first, and whether they use TLS.
RUNS = {
    "test_ftplib": ("test_ftplib", "CPython 3.11 `test_ftplib`", False, False),
    "test_ftplib logged in": ("test_ftplib", "`test_ftplib`, logged in first", True, False),
    "test_ftplib TLS": ("test_ftplib, TLS", "`test_ftplib`, its TLS classes", False, True),
    "test_functional": ("test_functional", f"pyftpdlib {PYFTPDLIB} `test_functional`", False, False),
    "test_functional_ssl": ("test_functional_ssl", f"pyftpdlib {PYFTPDLIB} `test_functional_ssl`", False,
                            True),
}
# The run in which the known faults appear.
FAULTS_RUN = "test_functional"
WAYS = {"directly": (suites.SERVER, suites.SERVER), **suites.NEAR_PORTS}


class Table:
    """The verdicts of each test, by run and way. A run starts when its verdicts are first requested."""

    def __init__(self, world, sources):
        self.world, self.sources, self.verdicts = world, sources, {}

    def of(self, run, way):
        if (run, way) not in self.verdicts:
            suite, _, login, tls = RUNS[run]
            folder = self.world.path("scratch") if suite.startswith("test_ftplib") else self.sources
            os.makedirs(folder, exist_ok=True)
            self.verdicts[run, way] = suites.best_of_three(self.world, suite, folder, WAYS[way][tls], login)
        return self.verdicts[run, way]

    def deviations(self, run, way):
        """Returns the tests that pass only directly. The values are the first lines of their errors."""
        through = self.of(run, way)
        return {name: through[name][1].partition("\n")[0]
                for name, (verdict, *_) in self.of(run, "directly").items()
                if verdict == "passed" and through[name][0] != "passed"}


@pytest.fixture(scope="module")
def table(world, options):
    try:
        # The suites write into their folders, so they run in a copy.
        sources = shutil.copytree(suites.unpack(), world.path("sources"))
    except Missing as missing:
        pytest.skip(str(missing))
    suites.start_pair(world)
    table = Table(world, sources)
    yield table
    if options.write:
        write(table)


@pytest.mark.parametrize("way", suites.NEAR_PORTS)
@pytest.mark.parametrize("run", RUNS)
def test_what_passes_directly_passes_through_the_pair_or_is_known(table, run, way):
    direct = [verdict for verdict, *_ in table.of(run, "directly").values()]
    assert direct.count("passed") > len(direct) // 2, "the suite itself runs"
    unknown = {name: why for name, why in table.deviations(run, way).items()
               if not deviations.known(name) and not deviations.fault(name)}
    assert not unknown


# The mark is not strict, because one of the faults is intermittent. The run counts an expected failure as skipped.
@pytest.mark.xfail(reason="a known fault, not mended yet", strict=False)
@pytest.mark.parametrize("way", suites.NEAR_PORTS)
@pytest.mark.parametrize("fault", deviations.FAULTS)
def test_no_fault_is_left(table, fault, way):
    found = [name for name in table.of(FAULTS_RUN, way) if name.endswith(f".{fault}")]
    assert found, "the suite has this test"
    left = [name for name in found if name in table.deviations(FAULTS_RUN, way)]
    assert not left, deviations.FAULTS[fault]


def write(table):
    rows, grouped = [], {}
    for run, (_, title, _, _) in RUNS.items():
        for way in WAYS:
            verdicts = [verdict for verdict, *_ in table.of(run, way).values()]
            rows.append((title, way, *(verdicts.count(v) for v in ("passed", "failed", "skipped"))))
        found = {way: table.deviations(run, way) for way in suites.NEAR_PORTS}
        for name in functools.reduce(dict.__or__, found.values()):
            why = deviations.known(name) or f"a fault: {deviations.fault(name) or 'not known'}"
            ways = " and ".join(way for way in found if name in found[way])
            grouped.setdefault((why, ways), []).append(f"`{name}` ({title})")
    lines = ["The servers and clients of a suite run beside a pair of gateways. A failed test runs two more times.", "",
             *pages.table(["suite", "through", "passed", "failed", "skipped"], rows), "",
             "Tests that pass directly and fail through the pair:", ""]
    for (why, ways), names in grouped.items():
        lines += [f"- {ways}: {why}", *(f"  - {name}" for name in names)]
    pages.write("suites", "Third-party suites", "conformance suites -- --write", lines)
