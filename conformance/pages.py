"""Pages of results: the command, the machine and the tables of a run."""

import os
import platform
import time

from world import ROOT


def load():
    """Returns the load average of the machine, because some results depend on it."""
    minute, five, _ = os.getloadavg()
    return f"load average {minute:.1f} (1 min), {five:.1f} (5 min) of {os.cpu_count()} processors"


def write(name, title, command, lines):
    """Writes docs/results/NAME.md with the command, the date, the machine and the lines."""
    kernel = ".".join(platform.release().split(".")[:2])
    write_text(os.path.join("docs", "results", f"{name}.md"), [
        f"# {title}", "",
        f"`cargo xtask {command}`, {time.strftime('%Y-%m-%d')}, Linux {kernel}, {load()}.",
        "[Measuring](../measuring.md) explains the columns.", "", *lines])


def write_text(path, lines):
    """Writes a file. `path` is relative to the root of the repository."""
    with open(os.path.join(ROOT, path), "w") as page:
        page.write("\n".join([*lines, ""]))
    print(f"written: {path}")


def table(head, rows):
    """Returns the lines of a Markdown table."""
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head),
            *("| " + " | ".join(str(cell) for cell in row) + " |" for row in rows)]
