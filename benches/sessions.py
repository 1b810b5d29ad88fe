"""FTP sessions of 35 commands and four file transfers, alternately direct and through a pair: no session may fail.

The bench runs `longhaul probe compare ftp` over the emulated WAN. Sessions begin at random times. `--write` writes the
summary of the probe to docs/results/probe-ftp.md, and its page to probe-ftp.html. `--records` also writes a compressed
file with one line of JSON for each session.
"""

import gzip
import json
import os
import shutil
import subprocess

import bench
import servers
from world import NEAR_PORT, ROOT, Path

COMMANDS = 35
TIMEOUT_S = 3600


def measure(world, args):
    sessions = 100 if args.quick else args.sessions
    server = servers.start_vsftpd(world)
    world.pair()
    records, page = world.path("sessions.jsonl"), world.path("page.html")
    arrivals = (f"{sessions} sessions run directly, and as many through the pair, alternately. {args.arrivals:g} "
                f"sessions begin each second, at random times. Each has {COMMANDS} commands and 4 transfers of 100 kB.")
    done = world.run(
        world.longhaul, "probe", "compare", "ftp", "--direct", server.place(),
        "--through", f"127.0.0.1:{NEAR_PORT}", "--folder", "files", "--count", str(sessions),
        "--arrivals", str(args.arrivals), "--out", records, "--page", page,
        "--title", "FTP sessions, directly and through a pair of gateways",
        "--note", f"The path has {args.path} in each direction. The server is vsftpd.", "--note", arrivals,
        timeout=TIMEOUT_S, stdout=subprocess.PIPE, text=True)
    print(done.stdout, flush=True)
    # The exit code 1 means that a session failed. The records show which session failed.
    bench.require(done.returncode in (0, 1), f"the probe ended with {done.returncode}")
    with open(records) as lines:
        made = [json.loads(line) for line in lines]
    failures = [session["failure"] for session in made if "failure" in session]
    others = [session for session in made if len(session["commands"]) != COMMANDS]
    left = os.listdir(server.file())
    bench.write(args, "probe-ftp", "FTP sessions, directly and through a pair", [
        f"The path has {args.path} in each direction. The server is vsftpd. {arrivals} This [page](probe-ftp.html) "
        "shows the plots.", "", "```text",
        *done.stdout.rstrip().splitlines(), "```"])
    if args.write:
        shutil.copyfile(page, result("probe-ftp.html"))
        if args.records:
            with open(records, "rb") as file, gzip.open(result("probe-ftp.jsonl.gz"), "wb") as out:
                shutil.copyfileobj(file, out)
    bench.require(len(made) == 2 * sessions, f"{len(made)} sessions, not {2 * sessions}")
    bench.require(done.returncode == 0 and not failures, f"{len(failures)} sessions failed: {failures[:3]}")
    bench.require(not others, f"{len(others)} sessions without {COMMANDS} commands")
    bench.require(not left, f"files were left on the server: {' '.join(left[:3])}")


def result(name):
    return os.path.join(ROOT, "docs", "results", name)


def extend(parser):
    parser.add_argument("--sessions", type=int, default=1000,
                        help="number of direct sessions, and of sessions through the pair")
    parser.add_argument("--arrivals", type=float, default=9,
                        help="number of sessions that begin each second, direct and through the pair together")
    parser.add_argument("--records", action="store_true", help="with --write, also write all records")


if __name__ == "__main__":
    bench.main(measure, __doc__, Path("300 Mbit/s", "100ms", "0.1%"), extend=extend)
