#!/usr/bin/env python3
"""The sessions of the middlebox study, directly and through a pair, side by side: none may fail.

`longhaul probe compare ftp` over an emulated WAN of 100 ms and 0.1 % loss: sessions arrive at random, every
other one goes through the pair, each has 35 commands and four transfers of files. `--write` puts page and
summary into docs/results; with `--records` also a line of JSON for each session, compressed.
"""

import gzip
import json
import os
import shutil
import statistics

import pages
from world import ADDRESS_B, DOOR, ROOT, check, main


def job(world, args):
    sessions = 50 if args.quick else args.sessions
    world.gateway("b")
    world.gateway("a")
    world.connected()
    records, page = world.path("sessions.jsonl"), world.path("page.html")
    path = f"{args.rate}, RTT {args.rtt}, loss {args.loss} each way"
    done = world.run(
        world.longhaul, "probe", "compare", "ftp", "--direct", f"{ADDRESS_B}:21",
        "--through", f"127.0.0.1:{DOOR}", "--folder", "files", "--count", str(sessions),
        "--rate", str(args.arrivals), "--out", records, "--page", page,
        "--title", "FTP sessions, directly and through a pair of gateways",
        "--note", f"The path: {path}; server vsftpd.",
        "--note", f"{sessions} sessions each way by turns, {args.arrivals} arrivals a second at random, "
                  "35 commands and 4 transfers of 100 kB each.", timeout=1800)
    check(done.returncode in (0, 1), "the probe ran")
    with open(records) as lines:
        done = [json.loads(line) for line in lines]
    check(len(done) == 2 * sessions, f"{2 * sessions} sessions have records")
    rows = []
    for side in ("direct", "through"):
        mine = [session for session in done if session["side"] == side]
        commands = [command for session in mine for command in session["commands"]]
        files = [command for command in commands if command.get("data", {}).get("is_file")]
        failed = [session for session in mine if "failure" in session]
        plain = [command["replied_us"] - command["sent_us"] for command in commands
                 if "data" not in command and "replied_us" in command]
        moved = [command["data"]["final_us"] - command["sent_us"] for command in files
                 if "final_us" in command["data"]]
        whole = [session["ended_us"] for session in mine if "failure" not in session]
        rows.append((side, len(mine), len(commands), len(files), len(failed), *(
            f"{value / 1e6:.3f}" for times in (plain, moved, whole)
            for value in (statistics.median(times), quantile(times, 0.99)))))
    if args.write:
        pages.write("probe-ftp", "FTP sessions, directly and through a pair", [
            f"{path}; vsftpd; sessions by turns, {args.arrivals} arrivals a second at random. With plots: "
            "[page](probe-ftp.html).", "",
            *pages.table(["", "sessions", "commands", "files", "failed", "response, s", "99 %",
                          "file, s", "99 %", "session, s", "99 %"], rows)])
        shutil.copyfile(page, result("probe-ftp.html"))
        if args.records:
            with open(records, "rb") as file, gzip.open(result("probe-ftp.jsonl.gz"), "wb") as out:
                out.write(file.read())
    check(all(row[4] == 0 for row in rows), "no session fails")
    check(not os.listdir(world.server_file(".")), "nothing is left on the server")


def quantile(values, share):
    return sorted(values)[max(0, -int(-share * len(values) // 1) - 1)]


def result(name):
    return os.path.join(ROOT, "docs", "results", name)


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="100ms", loss="0.1%")
    parser.add_argument("--sessions", type=int, default=1250)
    parser.add_argument("--arrivals", type=float, default=9, help="of both ways together, a second")
    parser.add_argument("--write", action="store_true", help="write into docs/results")
    parser.add_argument("--records", action="store_true", help="with --write, also all records")


if __name__ == "__main__":
    main(job, __doc__, extend=extend)
