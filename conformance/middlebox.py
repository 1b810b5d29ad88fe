#!/usr/bin/env python3
"""Sessions of 35 commands, as the study of FTP middleboxes ran them: none may fail.

Ten at a time, every other one through the pair and the others directly, so that both see the same
machine and path: logins, listings, names, times, four transfers of 100 KB, in passive and in active
mode. `--write` puts the figures into docs/results/thousand-sessions.md.
"""

import math
import os
import statistics
import threading
import time

import pages
import talk
from world import ADDRESS_B, DOOR, Failure, check, main, make_file

FILE_BYTES = 100_000
COMMANDS = 35
STRICT_DOOR = 2130


class Session:
    """One session: what it asked, and what came."""

    def __init__(self, world, way, at, number, content):
        self.way, self.content = way, content
        self.world, self.at = world, at
        self.folder = f"session {number}"
        self.commands, self.failed, self.times = 0, [], 0

    def run(self):
        begun = time.perf_counter()
        try:
            self._script()
        except (Failure, OSError) as error:
            self.failed.append(str(error))
        self.seconds = time.perf_counter() - begun

    def _script(self):
        with talk.Client(self.world, *self.at) as client:
            try:
                self._say(client)
            finally:
                self.commands = client.commands

    def _say(self, client):
        ask, content = client.ask, self.content
        # vsftpd lets this user in without PASS.
        client.log_in("anonymous", "x")
        ask("SYST", 215)
        ask("FEAT", 211)
        ask("PWD", 257)
        ask("TYPE I", 200)
        ask("CWD files", 250)
        ask("PWD", 257)
        ask(f"MKD {self.folder}", 257)
        ask(f"CWD {self.folder}", 250)
        ask("PWD", 257)
        client.upload("STOR one", content)
        client.upload_actively("STOR two", content)
        if b"one" not in client.download("LIST"):
            raise talk.Unexpected("LIST: a name is missing")
        if client.download_actively("NLST").split() != [b"one", b"two"]:
            raise talk.Unexpected("NLST: other names came")
        for name in ("one", "two"):
            if ask(f"SIZE {name}", 213) != f"213 {len(content)}":
                raise talk.Unexpected(f"SIZE {name}: another size")
            self.times += ask(f"MDTM {name}", 213).startswith("213 20")
        ask("RNFR one", 350)
        ask("RNTO three", 250)
        if client.download("RETR three", "EPSV") != content:
            raise talk.Unexpected("RETR three: another file came")
        if client.download_actively("RETR two", "EPRT") != content:
            raise talk.Unexpected("RETR two: another file came")
        ask("MDTM one", 550)
        ask("NOOP", 200)
        for name in ("two", "three"):
            ask(f"DELE {name}", 250)
        ask("CDUP", 250)
        ask(f"RMD {self.folder}", 250)
        ask("QUIT", 221)


def job(world, args):
    sessions = 100 if args.quick else args.sessions
    source = world.path("content")
    make_file(source, FILE_BYTES)
    content = open(source, "rb").read()
    world.gateway("b")
    world.gateway("a", f'[[ftp]]\nlisten = "127.0.0.1:{STRICT_DOOR}"\ntarget = "{ADDRESS_B}:21"\n'
                       f'mode = "strict"\n')
    world.connected()
    ways = {"directly": (ADDRESS_B, 21), "fast": ("127.0.0.1", DOOR)}
    if args.strict:
        ways["strict"] = ("127.0.0.1", STRICT_DOOR)
    names = list(ways)
    left = [Session(world, names[n % len(names)], ways[names[n % len(names)]], n, content)
            for n in range(sessions)]
    done, lock = [], threading.Lock()

    def work():
        while True:
            with lock:
                if not left:
                    return
                session = left.pop(0)
            session.run()
            done.append(session)

    workers = [threading.Thread(target=work) for _ in range(args.at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()

    rows, failures = [], []
    for way in names:
        mine = [session for session in done if session.way == way]
        seconds = sorted(session.seconds for session in mine)
        failed = [why for session in mine for why in session.failed]
        failures += [f"{way}: {why}" for why in failed]
        rows.append((way, len(mine), sum(session.commands for session in mine), len(failed),
                     f"{sum(session.times for session in mine)} of {2 * len(mine)}",
                     f"{statistics.median(seconds):.2f}",
                     f"{seconds[math.ceil(0.95 * len(seconds)) - 1]:.2f}"))
        print("  {}: {} sessions, {} commands, {} failed, MDTM answered {}, median {} s, 95 % {} s"
              .format(*rows[-1]), flush=True)
    if args.write:
        pages.write("thousand-sessions", "Sessions of 35 commands", [
            f"{sessions} sessions, {args.at_once} at a time, by turns directly and through the pair; "
            f"{args.rate}, RTT {args.rtt}, loss {args.loss}, vsftpd, two files of {FILE_BYTES // 1000} KB "
            f"each way.", "",
            *pages.table(["through", "sessions", "commands", "failed", "MDTM answered", "median, s",
                          "95 %, s"], rows)])
    for why in failures[:20]:
        print(f"  {why}")
    check(all(session.commands == COMMANDS for session in done), f"each session had {COMMANDS} commands")
    check(not failures, "no command fails")
    check(not os.listdir(world.server_file(".")), "nothing is left on the server")


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="25ms", loss="0%")
    parser.add_argument("--sessions", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=10)
    parser.add_argument("--strict", action="store_true", help="a third way: strict mode")
    parser.add_argument("--write", action="store_true", help="write docs/results/thousand-sessions.md")


if __name__ == "__main__":
    main(job, __doc__, "openssl", extend=extend)
