"""Common parts of the measuring scripts: arguments, the emulated world, and figures with their spread.

A script prints each figure as a median with the lowest and the highest value. It fails if a figure misses one of the
script's bounds. The world, the servers and the scripted client come from `conformance/`.
"""

import argparse
import math
import os
import shutil
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "conformance"))

import pages
from world import PROGRAM, Failure, Missing, Path, World


def main(measure, description, path=Path(), needs=(), extend=lambda parser: None):
    """Calls `measure` with a world on `path` and the arguments.

    Exits with 1 if the measurement fails. Exits with 2 if a program or the rights of root are missing.
    """
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longhaul", default=PROGRAM)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--write", action="store_true", help="write the results to a page in docs/results")
    parser.add_argument("--keep", action="store_true", help="keep the temporary folder")
    for option in ("rate", "rtt", "loss"):
        parser.add_argument(f"--{option}", default=getattr(path, option), help="value for the emulated path")
    extend(parser)
    args = parser.parse_args()
    args.path = Path(args.rate, args.rtt, args.loss)
    missing = [tool for tool in ("ip", "vsftpd", "openssl", *needs) if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        print(f"missing: {', '.join(missing)}" if missing else "network namespaces need root; run the command as root",
              file=sys.stderr)
        sys.exit(2)
    print(f"{args.path}; {pages.load()}", flush=True)
    begun = time.monotonic()
    try:
        with World(args.longhaul, args.path, args.keep) as world:
            measure(world, args)
    except Missing as error:
        print(f"missing: {error}", file=sys.stderr)
        sys.exit(2)
    except (Failure, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"FAILED after {time.monotonic() - begun:.0f} s: {error}")
        sys.exit(1)
    print(f"done in {time.monotonic() - begun:.0f} s")


def write(args, name, title, lines):
    """Writes docs/results/NAME.md if `--write` was given. The page states the command line."""
    if not args.write:
        return
    script = os.path.splitext(os.path.basename(sys.argv[0]))[0].replace("_", "-")
    words = sys.argv[1:]
    # The page omits the path of the program, because the path does not affect the figures.
    options = [word for before, word in zip(["", *words], words)
               if word not in ("--write", "--longhaul") and before != "--longhaul"]
    command = [script] if script in ("soak", "faults") else ["bench", script]
    pages.write(name, title, " ".join([*command, "--", *options, "--write"]), lines)


def require(condition, what):
    """Raises `Failure` with the text `what` if `condition` is false."""
    if not condition:
        raise Failure(what)


def require_none(missed):
    """Raises `Failure` if the list `missed` has entries."""
    require(not missed, f"missed: {'; '.join(missed)}")


def quantile(samples, share):
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def spread(samples, digits=1):
    """Returns the median, and the lowest and the highest sample in brackets."""
    return (f"{statistics.median(samples):.{digits}f} ({min(samples):.{digits}f}.."
            f"{max(samples):.{digits}f})")
