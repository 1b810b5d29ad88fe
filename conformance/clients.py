"""FTP clients: programs from Debian's packages, and libraries.

Each client uploads, lists, downloads, renames and deletes a file, if it has the command. A client that fails reports
the reason.
"""

import ftplib
import functools
import json
import os
import shutil
import subprocess

from files import digest
from world import ROOT, Failure

# Crate whose example `suppaftp` is the client of the library suppaftp.
SUPPAFTP_CRATE = "longhaul-eval"


class Cell:
    """One client with one server: the address for connections, and the paths of the files."""

    def __init__(self, world, server, host, port, active, tls):
        self.world, self.server, self.host, self.port = world, server, host, port
        self.active, self.tls = active, tls
        self.local, self.back = world.path("local"), world.path("back", "up")
        self.home = world.path("client-home")
        self.said = ""

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
            raise Failure(f"{what}: {' / '.join(last)}")

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
    """Returns a function that drives a client of the BSD family, which reads commands from its input."""
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
    # gftp-text lists a folder only once, so the session that uploaded a file does not find the file. A second session
    # downloads it.
    cell.run("gftp-text", cell.url(), text=f"lcd {cell.home}\nput up\nquit\n")
    cell.uploaded()
    cell.run("gftp-text", cell.url(), text="\n".join([
        "ls", f"lcd {os.path.dirname(cell.back)}", "get up", "rename up renamed", "delete renamed",
        "quit", ""]))
    cell.downloaded()
    cell.require("up" in cell.said, "listing")
    cell.gone()


def python_ftplib(cell):
    # This thread makes the sockets in site a, so the client needs no process of its own.
    with cell.world.entered("a"):
        ftp = ftplib.FTP_TLS(timeout=30) if cell.tls else ftplib.FTP(timeout=30)
        ftp.connect(cell.host, cell.port)
        with ftp:
            ftp.login(cell.server.user, cell.server.password)
            ftp.cwd(cell.server.folder)
            if cell.tls:
                ftp.prot_p()
            ftp.set_pasv(not cell.active)
            with open(cell.local, "rb") as file:
                ftp.storbinary("STOR up", file)
            cell.uploaded()
            cell.require("up" in ftp.nlst(), "listing")
            ftp.voidcmd("TYPE I")
            cell.require(ftp.size("up") == os.path.getsize(cell.local), "size")
            with open(cell.back, "wb") as file:
                ftp.retrbinary("RETR up", file.write)
            cell.downloaded()
            ftp.sendcmd("MDTM up")
            if "MLST" in ftp.sendcmd("FEAT"):
                cell.require("up" in dict(ftp.mlsd()), "MLSD")
            ftp.rename("up", "renamed")
            ftp.delete("renamed")
    cell.gone()


def suppaftp(cell):
    cell.run(suppaftp_program(), cell.host, str(cell.port), cell.server.user, cell.server.password,
             cell.server.folder, "active" if cell.active else "passive",
             "tls" if cell.tls else "plain", cell.local, cell.back)
    cell.downloaded()
    cell.gone()


@functools.cache
def suppaftp_program():
    """Builds the client of the library suppaftp once, and returns the path of the program."""
    built = subprocess.run(
        ["cargo", "build", "--quiet", "-p", SUPPAFTP_CRATE, "--example", "suppaftp",
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
    "Python ftplib": python_ftplib,
    "suppaftp": suppaftp,
}

# Clients that the tests also run with TLS.
WITH_TLS = ("curl", "lftp", "Python ftplib", "suppaftp")

# Program that each client needs. Python's ftplib needs none.
PROGRAMS = {"curl": "curl", "wget": "wget", "lftp": "lftp", "ncftp": "ncftpput", "gftp-text": "gftp-text",
            "tnftp": "tnftp", "inetutils-ftp": "inetutils-ftp", "suppaftp": "cargo"}


def attempt(cell, client):
    """Runs a client. Returns the reason of a failure, or None."""
    shutil.rmtree(os.path.dirname(cell.back), ignore_errors=True)
    os.makedirs(os.path.dirname(cell.back))
    os.makedirs(cell.home, exist_ok=True)
    for name in ("up", "renamed"):
        if os.path.exists(cell.server.file(name)):
            os.remove(cell.server.file(name))
    try:
        CLIENTS[client](cell)
    except (Failure, OSError, EOFError, ftplib.Error) as error:
        return str(error) or type(error).__name__
    except subprocess.TimeoutExpired:
        return "does not end"
    return None
