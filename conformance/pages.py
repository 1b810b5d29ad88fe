"""Pages of results, for the scripts beside this file."""

import os
import platform
import sys
import time

from world import ROOT


def load():
    """How busy the machine is, for figures that depend on it."""
    minute, five, _ = os.getloadavg()
    return f"load average {minute:.1f} (1 min), {five:.1f} (5 min) of {os.cpu_count()} processors"


def write(name, title, lines):
    """Writes docs/results/NAME.md: what was run, where, and the lines."""
    script = os.path.splitext(os.path.basename(sys.argv[0]))[0]
    words = sys.argv[1:]
    # Which program is no part of what was measured.
    options = " ".join(word for before, word in zip(["", *words], words)
                       if word not in ("--write", "--longhaul") and before != "--longhaul")
    command = f"cargo xtask conformance {script} -- {options} --write".replace("  ", " ")
    path = os.path.join(ROOT, "docs", "results", f"{name}.md")
    kernel = ".".join(platform.release().split(".")[:2])
    with open(path, "w") as page:
        page.write("\n".join([
            f"# {title}", "", f"`{command}`, {time.strftime('%Y-%m-%d')}, Linux {kernel}, "
            f"{load()}.", "What the columns mean: [measuring](../measuring.md).", "", *lines, ""]))
    print(f"written: {os.path.relpath(path, ROOT)}")


def table(head, rows):
    """Lines of a table."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]
