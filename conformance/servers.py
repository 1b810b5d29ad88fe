"""FTP servers for tests and benches: four from Debian's packages, and a script in place of FileZilla Server.

Each server runs in site b on its own port. Its one user may change the files in its folder.

The packages of vsftpd, ProFTPD and Pure-FTPd conflict with each other. So `unpack` unpacks ProFTPD and Pure-FTPd
without installing them.
"""

import fcntl
import glob
import os
import shutil
import socket
import subprocess

from world import ADDRESS_B, ROOT, Missing

USER, PASSWORD = "joe", "secret"
FILEZILLA = "FileZilla Server (scripted)"
UNPACKED = os.path.join(ROOT, "target", "servers")

# Libraries that the unpacked servers need.
LIBRARIES = ["libhiredis0.14", "libmemcached11", "libmemcachedutil2", "libpcre2-posix3", "libsodium23"]

# Settings of vsftpd. The trials of `longhaul-eval` use the same file.
VSFTPD = os.path.join(ROOT, "crates", "eval", "src", "vsftpd.conf")
# Settings that make vsftpd require TLS, and the reuse of the TLS session on data connections.
VSFTPD_TLS = {
    "ssl_enable": "YES", "ssl_tlsv1": "YES", "allow_anon_ssl": "YES", "force_anon_logins_ssl": "YES",
    "force_anon_data_ssl": "YES", "require_ssl_reuse": "YES",
}

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
    """Port, folders and account of a running FTP server."""

    def __init__(self, name, port, home, tls=False, user=USER, password=PASSWORD):
        self.name, self.port, self.home, self.tls = name, port, home, tls
        self.user, self.password, self.folder = user, password, "/files"

    def file(self, name=""):
        """Returns the path of the file that clients call `name`."""
        return os.path.join(self.home, "files", name)

    def place(self, address=ADDRESS_B):
        return f"{address}:{self.port}"

    def empty(self):
        """Removes every file and folder that clients can see."""
        for name in os.listdir(self.file()):
            path = self.file(name)
            shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)


def start_vsftpd(world, name="vsftpd", port=21, address=ADDRESS_B, pem=None, **settings):
    """Starts vsftpd, with TLS if `pem` names a certificate. All vsftpd servers of a world serve the same folder."""
    home = world.path("ftp")
    if not os.path.exists(home):
        os.makedirs(os.path.join(home, "files"))
        shutil.chown(os.path.join(home, "files"), "ftp")
    os.makedirs("/var/run/vsftpd/empty", exist_ok=True)
    tls = {**VSFTPD_TLS, "rsa_cert_file": pem} if pem else {}
    more = {"xferlog_enable": "YES", "listen_address": address, "listen_port": port, "anon_root": home,
            "vsftpd_log_file": world.path(f"{name}.transfers.log")}
    config = world.path(f"{name}.conf")
    with open(config, "w") as file:
        with open(VSFTPD) as common:
            file.write(common.read())
        file.writelines(f"{key}={value}\n" for key, value in {**tls, **more, **settings}.items())
    world.start(name, "b", shutil.which("vsftpd") or "/usr/sbin/vsftpd", config)
    server = Server("vsftpd", port, home, bool(pem), "anonymous", "x")
    world.wait(lambda: _listens(world, server, address), f"{name} listens")
    return server


def transfers(world):
    """Returns the lines of vsftpd's transfer log."""
    try:
        with open(world.path("vsftpd.transfers.log"), errors="replace") as log:
            return log.read().splitlines()
    except FileNotFoundError:
        return []


def forget_transfers(world):
    open(world.path("vsftpd.transfers.log"), "w").close()


def start_proftpd(world, *modules):
    """Starts ProFTPD without TLS. The configuration lines in `modules` load and configure additional modules.

    Raises `Missing` if ProFTPD is not available.
    """
    unpack()
    server = _proftpd(world, None, *modules)
    world.wait(lambda: _listens(world, server), f"{server.name} listens")
    return server


def start_all(world, tls=False, names=None):
    """Starts every server in site b, or only the servers in `names`, and returns the servers by name.

    With `tls`, the servers require TLS. All except Pure-FTPd and pyftpdlib then also require the reuse of the TLS
    session on data connections. Raises `Missing` if a server is not available.
    """
    pem = certificate(world) if tls else None
    starts = {"vsftpd": _vsftpd, "ProFTPD": _proftpd, "Pure-FTPd": _pure_ftpd, "pyftpdlib": _pyftpdlib,
              FILEZILLA: _filezilla}
    if set(names or starts) != {"vsftpd"}:
        unpack()
    servers = [start(world, pem) for name, start in starts.items() if names is None or name in names]
    for server in servers:
        world.wait(lambda: _listens(world, server), f"{server.name} listens")
    return {server.name: server for server in servers}


def unpack():
    """Unpacks the servers that cannot be installed beside vsftpd, and installs pyftpdlib and the libraries.

    Raises `Missing` on failure. After one success, the function does nothing.
    """
    os.makedirs(os.path.dirname(UNPACKED), exist_ok=True)
    with open(f"{UNPACKED}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(os.path.join(UNPACKED, "complete")):
            return
        try:
            install("python3-pyftpdlib", *LIBRARIES)
            packages = os.path.join(UNPACKED, "packages")
            os.makedirs(packages, exist_ok=True)
            subprocess.run(["apt-get", "download", "-qq", "proftpd-core", "proftpd-mod-crypto",
                            "pure-ftpd", "pure-ftpd-common"], cwd=packages, check=True)
            for package in glob.glob(os.path.join(packages, "*.deb")):
                subprocess.run(["dpkg", "-x", package, UNPACKED], check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise Missing(f"FTP servers from Debian's packages: {error}") from error
        open(os.path.join(UNPACKED, "complete"), "w").close()


def install(*packages):
    subprocess.run(["apt-get", "install", "--yes", "-qq", "--no-install-recommends", *packages],
                   check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})


def listeners_of(servers, first, client_tls=False):
    """Returns one `[[ftp]]` section for each server, and the ports by server name. The ports begin with `first`."""
    listeners, text = {}, ""
    for number, server in enumerate(servers.values()):
        listeners[server.name] = first + number
        text += (f'[[ftp]]\nlisten = "127.0.0.1:{first + number}"\n'
                 f'target = "{ADDRESS_B}:{server.port}"\n')
        if client_tls:
            # Python's ftplib is among the clients, and it does not resume TLS sessions.
            text += 'tls = { mode = "explicit", require_reuse = false }\n'
        if server.tls:
            text += 'server_tls = { mode = "explicit", verify = false }\n'
    return text, listeners


def certificate(world):
    """Returns the path of a file with a self-signed certificate for the name "server" and its key.

    Makes the file if it does not exist.
    """
    path = world.path("server.pem")
    if os.path.exists(path):
        return path
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
                    "/CN=server", "-keyout", path, "-out", f"{path}.crt"], check=True,
                   capture_output=True)
    with open(path, "a") as both, open(f"{path}.crt") as certificate:
        both.write(certificate.read())
    os.chmod(path, 0o600)
    return path


def _listens(world, server, address=ADDRESS_B):
    with world.entered("b"), socket.socket() as control:
        return control.connect_ex((address, server.port)) == 0


def _home(world, name, *owner):
    home = world.path(f"home-{name}")
    os.makedirs(os.path.join(home, "files"))
    for folder in (home, os.path.join(home, "files")):
        shutil.chown(folder, *owner)
    return home


def _vsftpd(world, pem):
    return start_vsftpd(world, "vsftpd-tls", 2211, pem=pem) if pem else start_vsftpd(world)


def _proftpd(world, pem, *modules):
    name, port = ("proftpd-tls", 2212) if pem else ("proftpd", 2202)
    home = _home(world, name, "nobody", "nogroup")
    password = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True,
                              capture_output=True, text=True).stdout.strip()
    users = world.path(f"{name}.users")
    with open(users, "w") as file:
        file.write(f"{USER}:{password}:65534:65534::{home}:/bin/sh\n")
    os.chmod(users, 0o600)
    tls = ["LoadModule mod_tls.c", "TLSEngine on",
           "TLSRequired on", f"TLSRSACertificateFile {pem}",
           f"TLSRSACertificateKeyFile {pem}", f"TLSLog {world.path('proftpd-tls.tls.log')}",
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
            "AllowRetrieveRestart on", "UseReverseDNS off",
            f"ModulePath {UNPACKED}/usr/lib/proftpd", *(tls if pem else []), *modules, ""]))
    os.chmod(config, 0o644)
    program = os.path.join(UNPACKED, "usr/sbin/proftpd")
    world.start(name, "b", program, "--nodaemon", "--config", config)
    return Server("ProFTPD", port, home, bool(pem))


def _pure_ftpd(world, pem):
    name, port = ("pure-ftpd-tls", 2213) if pem else ("pure-ftpd", 2203)
    home = _home(world, name, "ftp")
    users, database = world.path(f"{name}.users"), world.path(f"{name}.pdb")
    add = [os.path.join(UNPACKED, "usr/bin/pure-pw"), "useradd", USER, "-f", users, "-u", "ftp", "-d",
           home]
    subprocess.run(add, input=f"{PASSWORD}\n{PASSWORD}\n", text=True, check=True,
                   stdout=subprocess.DEVNULL)
    # `pure-pw` chooses a password hash that takes this machine between one and five seconds. A faster hash replaces it,
    # because a test logs in hundreds of times.
    quick = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True)
    with open(users) as file:
        login, _, rest = file.read().split(":", 2)
    with open(users, "w") as file:
        file.write(":".join([login, quick.stdout.strip(), rest]))
    subprocess.run([add[0], "mkdb", database, "-f", users], check=True)
    tls = ["-Y", "3", "-2", pem] if pem else []
    world.start(name, "b", os.path.join(UNPACKED, "usr/sbin/pure-ftpd"), "-S",
                f"{ADDRESS_B},{port}", "-l", f"puredb:{database}", "-H", "-A", "-u", "1", "-c", "100",
                "-C", "100", "-g", world.path(f"{name}.pid"), *tls)
    return Server("Pure-FTPd", port, home, bool(pem))


def _pyftpdlib(world, pem):
    name, port = ("pyftpdlib-tls", 2214) if pem else ("pyftpdlib", 2204)
    home = _home(world, name, "root")
    world.start(name, "b", "/usr/bin/python3", "-c", PYFTPDLIB, ADDRESS_B, str(port), home,
                pem or "")
    return Server("pyftpdlib", port, home, bool(pem))


def _filezilla(world, pem):
    """Starts a script in place of FileZilla Server, which is not available on Debian."""
    name, port = ("filezilla-tls", 2215) if pem else ("filezilla", 2205)
    home = _home(world, name, "root")
    world.start(name, "b", "/usr/bin/python3", os.path.join(ROOT, "conformance", "filezilla_server.py"),
                ADDRESS_B, str(port), home, pem or "")
    return Server(FILEZILLA, port, home, bool(pem))
