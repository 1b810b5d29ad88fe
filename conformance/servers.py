"""FTP servers from Debian's packages for the scripts beside this file: each in site b, on a port of its
own, with a folder of its own that its one user may change.

The packages of servers exclude each other, so all but vsftpd are unpacked and not installed.
"""

import glob
import os
import shutil
import subprocess
import sys

from world import ADDRESS_B, ROOT, Failure

USER, PASSWORD = "joe", "secret"
UNPACKED = os.path.join(ROOT, "target", "servers")

# What the unpacked servers are linked with.
LIBRARIES = ["libhiredis0.14", "libmemcached11", "libmemcachedutil2", "libpcre2-posix3", "libsodium23"]

PYFTPDLIB = r"""
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler
from pyftpdlib.servers import FTPServer
address, port, home = sys.argv[1:4]
authorizer = DummyAuthorizer()
authorizer.add_user("joe", "secret", home, perm="elradfmwMT")
class Handler(FTPHandler): pass
Handler.authorizer = authorizer
FTPServer((address, int(port)), Handler).serve_forever()
"""


class Server:
    """A running server: where it is, and who may log in."""

    def __init__(self, name, port, home, user=USER, password=PASSWORD):
        self.name, self.port, self.home = name, port, home
        self.user, self.password, self.folder = user, password, "/files"

    def file(self, name):
        """The path of a file that clients know by `name`."""
        return os.path.join(self.home, "files", name)


def unpack():
    """Unpacks the servers that cannot be installed beside vsftpd."""
    if os.path.exists(os.path.join(UNPACKED, "usr/sbin/pure-ftpd")):
        return
    apt = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends", "python3-pyftpdlib",
           *LIBRARIES]
    subprocess.run(apt, check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    packages = os.path.join(UNPACKED, "packages")
    os.makedirs(packages, exist_ok=True)
    subprocess.run(["apt-get", "download", "-qq", "proftpd-core", "proftpd-mod-crypto", "pure-ftpd",
                    "pure-ftpd-common"], cwd=packages, check=True)
    for package in glob.glob(os.path.join(packages, "*.deb")):
        subprocess.run(["dpkg", "-x", package, UNPACKED], check=True)


def start_all(world):
    """Starts every server in site b. Returns them by name."""
    unpack()
    servers = [_vsftpd(world), _proftpd(world), _pure_ftpd(world), _pyftpdlib(world)]
    for server in servers:
        world.wait(lambda: _listens(world, server), f"{server.name} listens")
    return {server.name: server for server in servers}


def _listens(world, server):
    done = world.run(sys.executable, "-c", "import socket, sys\n"
                     "sys.exit(socket.socket().connect_ex((sys.argv[1], int(sys.argv[2]))))",
                     ADDRESS_B, str(server.port), site="b", capture_output=True)
    return done.returncode == 0


def _home(world, name, *owner):
    home = world.path(f"home-{name}")
    os.makedirs(os.path.join(home, "files"))
    for folder in (home, os.path.join(home, "files")):
        shutil.chown(folder, *owner)
    return home


def _vsftpd(world):
    # The world has started it.
    return Server("vsftpd", 21, world.path("ftp"), "anonymous", "x")


def _proftpd(world):
    home = _home(world, "proftpd", "nobody", "nogroup")
    password = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True,
                              capture_output=True, text=True).stdout.strip()
    users = world.path("proftpd.users")
    with open(users, "w") as file:
        file.write(f"{USER}:{password}:65534:65534::{home}:/bin/sh\n")
    os.chmod(users, 0o600)
    config = world.path("proftpd.conf")
    with open(config, "w") as file:
        file.write("\n".join([
            'ServerName "ProFTPD"', "ServerType standalone", "Port 2202", "UseIPv6 off",
            f"DefaultAddress {ADDRESS_B}", "User nobody", "Group nogroup", "AuthOrder mod_auth_file.c",
            f"AuthUserFile {users}", "RequireValidShell off", "DelayEngine off", "WtmpLog off",
            f"PidFile {world.path('proftpd.pid')}", f"ScoreboardFile {world.path('proftpd.score')}",
            f"SystemLog {world.path('proftpd.log')}", f"TransferLog {world.path('proftpd.xfer')}",
            f"DefaultRoot {home}", "AllowOverwrite on", "AllowStoreRestart on",
            "AllowRetrieveRestart on", "UseReverseDNS off", ""]))
    os.chmod(config, 0o644)
    program = os.path.join(UNPACKED, "usr/sbin/proftpd")
    world.start("proftpd", "b", program, "--nodaemon", "--config", config)
    return Server("ProFTPD", 2202, home)


def _pure_ftpd(world):
    home = _home(world, "pure-ftpd", "ftp")
    users, database = world.path("pure.users"), world.path("pure.pdb")
    add = [os.path.join(UNPACKED, "usr/bin/pure-pw"), "useradd", USER, "-f", users, "-u", "ftp", "-d",
           home]
    subprocess.run(add, input=f"{PASSWORD}\n{PASSWORD}\n", text=True, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([add[0], "mkdb", database, "-f", users], check=True)
    world.start("pure-ftpd", "b", os.path.join(UNPACKED, "usr/sbin/pure-ftpd"), "-S",
                f"{ADDRESS_B},2203", "-l", f"puredb:{database}", "-H", "-A", "-u", "1", "-c", "100",
                "-C", "100", "-g", world.path("pure.pid"))
    return Server("Pure-FTPd", 2203, home)


def _pyftpdlib(world):
    home = _home(world, "pyftpdlib", "root")
    world.start("pyftpdlib", "b", "/usr/bin/python3", "-c", PYFTPDLIB, ADDRESS_B, "2204", home)
    return Server("pyftpdlib", 2204, home)


def door_of(servers, first):
    """`[[ftp]]` sections, one for each server from port `first`, and the ports by name."""
    doors, text = {}, ""
    for number, server in enumerate(servers.values()):
        doors[server.name] = first + number
        text += (f'[[ftp]]\nlisten = "127.0.0.1:{first + number}"\n'
                 f'target = "{ADDRESS_B}:{server.port}"\n')
    if not doors:
        raise Failure("no server")
    return text, doors
