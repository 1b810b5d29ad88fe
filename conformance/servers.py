"""FTP servers from Debian's packages for the scripts beside this file: each in site b, on a port of its
own, with a folder of its own that its one user may change.

The packages of servers exclude each other, so all but vsftpd are unpacked and not installed.
"""

import glob
import os
import shutil
import subprocess
import sys

from world import ADDRESS_B, ROOT

USER, PASSWORD = "joe", "secret"
UNPACKED = os.path.join(ROOT, "target", "servers")

# What the unpacked servers are linked with.
LIBRARIES = ["libhiredis0.14", "libmemcached11", "libmemcachedutil2", "libpcre2-posix3", "libsodium23"]

PYFTPDLIB = r"""
import sys
from pyftpdlib.authorizers import DummyAuthorizer
from pyftpdlib.handlers import FTPHandler, TLS_FTPHandler
from pyftpdlib.servers import FTPServer
address, port, home, certificate = sys.argv[1:5]
authorizer = DummyAuthorizer()
authorizer.add_user("joe", "secret", home, perm="elradfmwMT")
class Handler(TLS_FTPHandler if certificate else FTPHandler): pass
Handler.authorizer = authorizer
if certificate:
    Handler.certfile = certificate
    Handler.tls_control_required = Handler.tls_data_required = True
server = FTPServer((address, int(port)), Handler)
server.max_cons = 0
server.serve_forever()
"""


class Server:
    """A running server: where it is, and who may log in."""

    def __init__(self, name, port, home, tls, user=USER, password=PASSWORD):
        self.name, self.port, self.home, self.tls = name, port, home, tls
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


def start_all(world, tls=False):
    """Starts every server in site b, with `tls` such that demand TLS and the reuse of its session on
    data connections. Returns them by name."""
    unpack()
    pem = certificate(world) if tls else None
    servers = [start(world, pem) for start in (_vsftpd, _proftpd, _pure_ftpd, _pyftpdlib, _filezilla)]
    for server in servers:
        world.wait(lambda: _listens(world, server), f"{server.name} listens")
    return {server.name: server for server in servers}


def certificate(world):
    """A file with a self-signed certificate and its key."""
    path = world.path("server.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=server", "-keyout", path, "-out", f"{path}.crt"], check=True,
                   capture_output=True)
    with open(path, "a") as both, open(f"{path}.crt") as certificate:
        both.write(certificate.read())
    os.chmod(path, 0o600)
    return path


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


def _vsftpd(world, certificate):
    if certificate is None:
        # The world has started it.
        return Server("vsftpd", 21, world.path("ftp"), False, "anonymous", "x")
    config = world.path("vsftpd-tls.conf")
    with open(world.path("vsftpd.conf")) as plain, open(config, "w") as file:
        file.write(plain.read() + "\n".join([
            "listen_port=2211", "ssl_enable=YES", "allow_anon_ssl=YES", "force_anon_logins_ssl=YES",
            "force_anon_data_ssl=YES", "require_ssl_reuse=YES", "ssl_tlsv1=YES",
            f"rsa_cert_file={certificate}", f"vsftpd_log_file={world.path('vsftpd-tls.log')}", ""]))
    world.start("vsftpd-tls", "b", shutil.which("vsftpd") or "/usr/sbin/vsftpd", config)
    return Server("vsftpd", 2211, world.path("ftp"), True, "anonymous", "x")


def _proftpd(world, certificate):
    name, port = ("proftpd-tls", 2212) if certificate else ("proftpd", 2202)
    home = _home(world, name, "nobody", "nogroup")
    password = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True,
                              capture_output=True, text=True).stdout.strip()
    users = world.path(f"{name}.users")
    with open(users, "w") as file:
        file.write(f"{USER}:{password}:65534:65534::{home}:/bin/sh\n")
    os.chmod(users, 0o600)
    tls = [f"ModulePath {UNPACKED}/usr/lib/proftpd", "LoadModule mod_tls.c", "TLSEngine on",
           "TLSRequired on", f"TLSRSACertificateFile {certificate}",
           f"TLSRSACertificateKeyFile {certificate}", f"TLSLog {world.path('proftpd-tls.tls.log')}",
           "TLSVerifyClient off"]
    config = world.path(f"{name}.conf")
    with open(config, "w") as file:
        file.write("\n".join([
            'ServerName "ProFTPD"', "ServerType standalone", f"Port {port}", "UseIPv6 off",
            f"DefaultAddress {ADDRESS_B}", "User nobody", "Group nogroup", "AuthOrder mod_auth_file.c",
            f"AuthUserFile {users}", "RequireValidShell off", "DelayEngine off", "WtmpLog off",
            f"PidFile {world.path(f'{name}.pid')}", f"ScoreboardFile {world.path(f'{name}.score')}",
            f"SystemLog {world.path(f'{name}.system')}", f"TransferLog {world.path(f'{name}.xfer')}",
            f"DefaultRoot {home}", "AllowOverwrite on", "AllowStoreRestart on",
            "AllowRetrieveRestart on", "UseReverseDNS off", *(tls if certificate else []), ""]))
    os.chmod(config, 0o644)
    program = os.path.join(UNPACKED, "usr/sbin/proftpd")
    world.start(name, "b", program, "--nodaemon", "--config", config)
    return Server("ProFTPD", port, home, bool(certificate))


def _pure_ftpd(world, certificate):
    name, port = ("pure-ftpd-tls", 2213) if certificate else ("pure-ftpd", 2203)
    home = _home(world, name, "ftp")
    users, database = world.path(f"{name}.users"), world.path(f"{name}.pdb")
    add = [os.path.join(UNPACKED, "usr/bin/pure-pw"), "useradd", USER, "-f", users, "-u", "ftp", "-d",
           home]
    subprocess.run(add, input=f"{PASSWORD}\n{PASSWORD}\n", text=True, check=True,
                   stdout=subprocess.DEVNULL)
    subprocess.run([add[0], "mkdb", database, "-f", users], check=True)
    tls = ["-Y", "3", "-2", certificate] if certificate else []
    world.start(name, "b", os.path.join(UNPACKED, "usr/sbin/pure-ftpd"), "-S",
                f"{ADDRESS_B},{port}", "-l", f"puredb:{database}", "-H", "-A", "-u", "1", "-c", "100",
                "-C", "100", "-g", world.path(f"{name}.pid"), *tls)
    return Server("Pure-FTPd", port, home, bool(certificate))


def _pyftpdlib(world, certificate):
    name, port = ("pyftpdlib-tls", 2214) if certificate else ("pyftpdlib", 2204)
    home = _home(world, name, "root")
    world.start(name, "b", "/usr/bin/python3", "-c", PYFTPDLIB, ADDRESS_B, str(port), home,
                certificate or "")
    return Server("pyftpdlib", port, home, bool(certificate))


def _filezilla(world, certificate):
    """Scripted: FileZilla Server cannot be had here."""
    name, port = ("filezilla-tls", 2215) if certificate else ("filezilla", 2205)
    home = _home(world, name, "root")
    world.start(name, "b", "/usr/bin/python3", os.path.join(ROOT, "conformance", "filezilla_server.py"),
                ADDRESS_B, str(port), home, certificate or "")
    return Server("FileZilla Server (scripted)", port, home, bool(certificate))


def doors_of(servers, first, client_tls=False):
    """`[[ftp]]` sections, one for each server from port `first`, and the ports by name."""
    doors, text = {}, ""
    for number, server in enumerate(servers.values()):
        doors[server.name] = first + number
        text += (f'[[ftp]]\nlisten = "127.0.0.1:{first + number}"\n'
                 f'target = "{ADDRESS_B}:{server.port}"\n')
        if client_tls:
            text += 'tls = { mode = "explicit" }\n'
        if server.tls:
            text += 'server_tls = { mode = "explicit", verify = false }\n'
    return text, doors
