#!/usr/bin/env python3
"""Real clients against real servers through a pair of gateways: passive and active, with TLS on
either leg, on both and on none.

Every client that can lists, uploads, downloads, renames and deletes; hashes must agree. A cell that
fails is tried again without the gateways: what fails directly too is the client's or the server's own.
`--write` puts the table into docs/clients.md.
"""

import functools
import json
import os
import shutil
import subprocess
import sys
import time

import servers as ftp_servers
from world import ADDRESS_B, ROOT, check, digest, main, make_file

FIRST_DOOR = 2130
SIZE = 300_000

FTPLIB = r"""
import ftplib, sys
host, port, user, password, folder, active, local, back, size, tls = sys.argv[1:11]
ftp = ftplib.FTP_TLS(timeout=30) if tls == "1" else ftplib.FTP(timeout=30)
ftp.connect(host, int(port)); ftp.login(user, password); ftp.cwd(folder)
if tls == "1": ftp.prot_p()
ftp.set_pasv(active == "0")
with open(local, "rb") as file: ftp.storbinary("STOR up", file)
assert "up" in ftp.nlst(), "listed"
ftp.voidcmd("TYPE I"); assert ftp.size("up") == int(size), "size"
with open(back, "wb") as file: ftp.retrbinary("RETR up", file.write)
ftp.sendcmd("MDTM up")
if "MLST" in ftp.sendcmd("FEAT"): assert "up" in dict(ftp.mlsd()), "MLSD"
ftp.rename("up", "renamed"); ftp.delete("renamed"); ftp.quit()
"""


class Cell:
    """One client against one server: where to connect, and the files."""

    def __init__(self, world, server, host, port, active, tls):
        self.world, self.server, self.host, self.port = world, server, host, port
        self.active, self.tls = active, tls
        self.local, self.back = world.path("local"), world.path("back", "up")
        self.home = world.path("client-home")

    def run(self, *command, text=None):
        done = self.world.run(
            *command, input=text, text=True, capture_output=True, timeout=60,
            cwd=os.path.dirname(self.back), env={**os.environ, "HOME": self.home, "TERM": "dumb"})
        self.said = (done.stdout + done.stderr).strip()
        return done

    def url(self, name=""):
        who = f"{self.server.user}:{self.server.password}"
        return f"ftp://{who}@{self.host}:{self.port}{self.server.folder.rstrip('/')}/{name}"

    def require(self, condition, what):
        if not condition:
            last = self.said.splitlines()[-3:]
            raise AssertionError(f"{what}: {' / '.join(last)}")

    def uploaded(self):
        path = self.server.file("up")
        self.require(os.path.exists(path) and digest(path) == digest(self.local), "upload")

    def downloaded(self):
        self.require(os.path.exists(self.back) and digest(self.back) == digest(self.local),
                     "download")

    def gone(self):
        left = [name for name in ("up", "renamed") if os.path.exists(self.server.file(name))]
        self.require(not left, "rename and delete")


def curl(cell):
    more = ["--ftp-port", "-"] if cell.active else []
    more += ["--ssl-reqd", "--insecure"] if cell.tls else []
    run = lambda *arguments: cell.run("curl", "-sS", "--max-time", "50", *more, *arguments)
    run("-T", cell.local, cell.url("up"))
    cell.uploaded()
    cell.require(" up" in run(cell.url()).stdout, "listing")
    run("-o", cell.back, cell.url("up"))
    cell.downloaded()
    folder = cell.server.folder.rstrip("/")
    run("-o", "/dev/null", "-Q", f"RNFR {folder}/up", "-Q", f"RNTO {folder}/renamed", "-Q",
        f"DELE {folder}/renamed", cell.url())
    cell.gone()


def wget(cell):
    shutil.copy(cell.local, cell.server.file("up"))
    os.chmod(cell.server.file("up"), 0o644)
    more = ["--no-passive-ftp"] if cell.active else []
    cell.run("wget", "-nv", "--tries=1", "--timeout=30", *more, "-O", cell.back, cell.url("up"))
    cell.downloaded()
    os.remove(cell.server.file("up"))


def lftp(cell):
    passive = "off" if cell.active else "on"
    tls = "true" if cell.tls else "false"
    cell.run("lftp", "-c", f"set net:max-retries 1; set net:timeout 20; set cmd:fail-exit true; "
             f"set ftp:passive-mode {passive}; set ftp:ssl-force {tls}; "
             f"set ftp:ssl-protect-data {tls}; set ssl:verify-certificate no; "
             f"open -p {cell.port} -u {cell.server.user},{cell.server.password} {cell.host}; "
             f"cd {cell.server.folder}; put {cell.local} -o up; cls; get up -o {cell.back}; "
             f"mv up renamed; rm renamed")
    cell.downloaded()
    cell.require("up" in cell.said, "listing")
    cell.gone()


def ncftp(cell):
    mode = "-E" if cell.active else "-F"
    login = [mode, "-u", cell.server.user, "-p", cell.server.password, "-P", str(cell.port), "-t",
             "20", "-r", "1"]
    cell.run("ncftpput", "-C", *login, cell.host, cell.local,
             os.path.join(cell.server.folder, "up"))
    cell.uploaded()
    listed = cell.run("ncftpls", "-1", *login, f"ftp://{cell.host}{cell.server.folder.rstrip('/')}/")
    names = [os.path.basename(name) for name in listed.stdout.split()]
    cell.require("up" in names, "listing")
    cell.run("ncftpget", "-C", *login, cell.host, os.path.join(cell.server.folder, "up"), cell.back)
    cell.downloaded()
    os.remove(cell.server.file("up"))


def line_client(program, passive_on, passive_off):
    """A client of the BSD family, which reads commands from its input."""
    def drive(cell):
        mode = passive_off if cell.active else passive_on
        cell.run(program, "-n", "-v", *mode["options"], text="\n".join([
            f"open {cell.host} {cell.port}", f"user {cell.server.user} {cell.server.password}",
            *mode["commands"], "binary", f"cd {cell.server.folder}", f"put {cell.local} up", "ls",
            f"get up {cell.back}", "rename up renamed", "delete renamed", "quit", ""]))
        cell.downloaded()
        cell.require("up" in cell.said, "listing")
        cell.gone()
    return drive


def gftp(cell):
    config = os.path.join(cell.home, ".config", "gftp")
    os.makedirs(config, exist_ok=True)
    with open(os.path.join(config, "gftprc"), "w") as file:
        file.write(f"passive_transfer={0 if cell.active else 1}\nignore_pasv_address=0\n"
                   "network_timeout=20\nretries=1\nsleep_time=1\n")
    with open(cell.local, "rb") as one, open(os.path.join(cell.home, "up"), "wb") as other:
        shutil.copyfileobj(one, other)
    # It lists a folder once; what it has uploaded itself it does not find.
    cell.run("gftp-text", cell.url(), text=f"lcd {cell.home}\nput up\nquit\n")
    cell.uploaded()
    cell.run("gftp-text", cell.url(), text="\n".join([
        "ls", f"lcd {os.path.dirname(cell.back)}", "get up", "rename up renamed", "delete renamed",
        "quit", ""]))
    cell.downloaded()
    cell.require("up" in cell.said, "listing")
    cell.gone()


def ftplib(cell):
    cell.run("/usr/bin/python3", "-c", FTPLIB, cell.host, str(cell.port), cell.server.user,
             cell.server.password, cell.server.folder, str(int(cell.active)), cell.local, cell.back,
             str(SIZE), str(int(cell.tls)))
    cell.downloaded()
    cell.gone()


def suppaftp(cell):
    cell.run(suppaftp_program(), cell.host, str(cell.port), cell.server.user, cell.server.password,
             cell.server.folder, "active" if cell.active else "passive",
             "tls" if cell.tls else "plain", cell.local, cell.back)
    cell.downloaded()
    cell.gone()


@functools.cache
def suppaftp_program():
    """The library's client, an example of ours; built once."""
    built = subprocess.run(
        ["cargo", "build", "--quiet", "-p", "lab", "--example", "suppaftp",
         "--message-format", "json"], cwd=ROOT, check=True, capture_output=True, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines()]
    return next(m["executable"] for m in messages if m.get("executable"))


def mode(*options, commands=()):
    return {"options": options, "commands": commands}


CLIENTS = {
    "curl": curl,
    "wget": wget,
    "lftp": lftp,
    "ncftp": ncftp,
    "gftp-text": gftp,
    "tnftp": line_client("tnftp", mode(), mode("-A")),
    "inetutils-ftp": line_client("inetutils-ftp", mode("-p"), mode("-A")),
    "Python ftplib": ftplib,
    "suppaftp": suppaftp,
}


def attempt(cell, drive):
    """Returns why it failed, or None."""
    shutil.rmtree(os.path.dirname(cell.back), ignore_errors=True)
    os.makedirs(os.path.dirname(cell.back))
    os.makedirs(cell.home, exist_ok=True)
    for name in ("up", "renamed"):
        if os.path.exists(cell.server.file(name)):
            os.remove(cell.server.file(name))
    cell.said = ""
    try:
        drive(cell)
    except AssertionError as error:
        return str(error)
    except subprocess.TimeoutExpired:
        return "does not end"
    return None


# Which speak TLS.
WITH_TLS = ("curl", "lftp", "Python ftplib", "suppaftp")

# TLS with the client, TLS with the server.
LEGS = {"none": (False, False), "client": (True, False), "server": (False, True),
        "both": (True, True)}


def job(world, args):
    plain, private = ftp_servers.start_all(world), ftp_servers.start_all(world, tls=True)
    sections, ports = "", {}
    for number, (legs, (client_tls, server_tls)) in enumerate(LEGS.items()):
        servers = private if server_tls else plain
        text, ports[legs] = ftp_servers.doors_of(servers, FIRST_DOOR + 10 * number, client_tls)
        sections += text
    world.far_allow = ", ".join(f'"{ADDRESS_B}:{server.port}"'
                                for servers in (plain, private) for server in servers.values())
    world.gateway("b")
    world.gateway("a", sections)
    world.connected()
    make_file(world.path("local"), SIZE)
    suppaftp_program()
    table, failed = {}, []
    for client, drive in CLIENTS.items():
        if args.client not in (None, client):
            continue
        for legs, (client_tls, server_tls) in LEGS.items():
            if client_tls and client not in WITH_TLS or args.legs not in (None, legs):
                continue
            for active in (False, True):
                row = {}
                for server in (private if server_tls else plain).values():
                    # Directly the client speaks TLS with a server that has it.
                    other = (private if client_tls else plain)[server.name]
                    row[server.name] = one(world, client, drive, server, other, active, client_tls,
                                           ports[legs][server.name], legs, failed)
                table[client, legs, active] = row
    if args.write:
        write(table, list(plain))
    for line in failed:
        print(f"FAILED: {line}")
    cells = [verdict for row in table.values() for verdict, _ in row.values()]
    print(f"{cells.count('yes')} of {len(cells)} cells pass, {len(failed)} fail through the gateways only")
    check(not failed, "no cell fails that passes directly")


def one(world, client, drive, server, other, active, tls, port, legs, failed):
    """Tries one cell. Returns its verdict, and why it is not yes."""
    begun = time.monotonic()
    why = attempt(Cell(world, server, "127.0.0.1", port, active, tls), drive)
    verdict = "yes"
    if why is not None:
        direct = attempt(Cell(world, other, ADDRESS_B, other.port, active, tls), drive)
        verdict = "no" if direct is None else "not directly either"
        if verdict == "no":
            failed.append(f"{client}, TLS {legs}, {'active' if active else 'passive'}, "
                          f"{server.name}: {why}")
    print(f"  {client:14} TLS {legs:6} {'active' if active else 'passive':8} {server.name:27} "
          f"{verdict:20} {time.monotonic() - begun:5.1f} s  {why or ''}", flush=True)
    return verdict, why


def write(table, servers):
    lines = ["# Clients and servers", "",
             "`cargo xtask conformance clients -- --write`: programs from Debian 12 through a pair of",
             "gateways over an emulated WAN of 20 ms. Each client uploads, lists, downloads, renames and",
             "deletes a file, and hashes are compared; wget downloads only, ncftp's commands neither",
             "rename nor delete. TLS is explicit; with TLS the servers demand it on data connections too,",
             "all but Pure-FTPd and pyftpdlib also that these resume the session of the control connection.",
             "FileZilla Server cannot be had on Debian: a script speaks as it does.",
             "", "| client | TLS with | data connections | " + " | ".join(servers) + " |",
             "|---|---|---|" + "---|" * len(servers)]
    notes = []
    for (client, legs, active), row in table.items():
        way = "active" if active else "passive"
        lines.append(f"| {client} | {legs} | {way} | "
                     + " | ".join(row[server][0] for server in servers) + " |")
        notes += [f"- {client}, TLS {legs}, {way}, {server}: {row[server][0]}: {row[server][1]}"
                  for server in servers if row[server][0] != "yes"]
    lines += ["", "FileZilla 3.63 in its window sends twenty files up and twenty down over its ten connections,",
              "without TLS and with TLS, against vsftpd and ProFTPD: `cargo xtask conformance filezilla`",
              "([picture](results/filezilla.png)).", ""]
    with open(os.path.join(ROOT, "docs", "clients.md"), "w") as file:
        file.write("\n".join([*lines, *notes, ""]))


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")
    parser.add_argument("--client", help="only this one")
    parser.add_argument("--legs", choices=LEGS, help="only this one")
    parser.add_argument("--write", action="store_true", help="write docs/clients.md")


if __name__ == "__main__":
    main(job, __doc__, "curl", "wget", "lftp", "ncftpput", "gftp-text", "tnftp", "inetutils-ftp",
         "openssl", extend=extend)
