"""What the measuring scripts share: their arguments, a world, and figures with their spread.

A script prints figures, medians with least and most, and fails where a bound of its own is missed. World, servers
and scripted client are those of `conformance/`.
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
    """Calls `measure` with a world on `path` and the arguments. Exits 1 if it fails, 2 if something is missing."""
    parser = argparse.ArgumentParser(description=description,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--longhaul", default=PROGRAM)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs")
    parser.add_argument("--write", action="store_true", help="write a page into docs/results")
    parser.add_argument("--keep", action="store_true", help="leave the folder behind")
    for option in ("rate", "rtt", "loss"):
        parser.add_argument(f"--{option}", default=getattr(path, option), help="of the emulated path")
    extend(parser)
    args = parser.parse_args()
    args.path = Path(args.rate, args.rtt, args.loss)
    missing = [tool for tool in ("ip", "vsftpd", "openssl", *needs) if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        print(f"missing: {', '.join(missing)}" if missing else "needs root, for network namespaces",
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
    """With `--write`: writes docs/results/NAME.md, with the command line as it was given."""
    if not args.write:
        return
    script = os.path.splitext(os.path.basename(sys.argv[0]))[0].replace("_", "-")
    words = sys.argv[1:]
    # Which program is no part of what was measured.
    options = [word for before, word in zip(["", *words], words)
               if word not in ("--write", "--longhaul") and before != "--longhaul"]
    command = [script] if script in ("soak", "faults") else ["bench", script]
    pages.write(name, title, " ".join([*command, "--", *options, "--write"]), lines)


def require(condition, what):
    """Fails unless what is measured is what should be."""
    if not condition:
        raise Failure(what)


def require_none(missed):
    """Fails if a bound was missed."""
    require(not missed, f"missed: {'; '.join(missed)}")


def quantile(samples, share):
    return sorted(samples)[max(0, math.ceil(share * len(samples)) - 1)]


def spread(samples, digits=1):
    """Median, least and most."""
    return (f"{statistics.median(samples):.{digits}f} ({min(samples):.{digits}f}.."
            f"{max(samples):.{digits}f})")
