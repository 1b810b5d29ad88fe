"""SSH servers for tests and benches: OpenSSH, dropbear, ProFTPD with mod_sftp, and asyncssh.

Each server runs in site b on its own port, with one user.

OpenSSH and dropbear read the accounts of the system. Each runs in a separate mount namespace, in which files of the
world replace /etc/passwd and /etc/shadow. So the accounts of the machine do not change.
"""

import json
import os
import shutil
import socket
import subprocess

import servers
from world import ADDRESS_B, ROOT, Missing

USER, PASSWORD, CODE = servers.USER, servers.PASSWORD, "314159"
# User id of the account that exists only in the mount namespaces.
UID = 23456
PYTHON = "/usr/bin/python3"
LIBRARIES = os.path.join(ROOT, "target", "ssh-python")
SFTP_SERVER = "/usr/lib/openssh/sftp-server"
WAYS = ["password", "keyboard-interactive", "publickey"]
PORTS = {"OpenSSH": 2222, "dropbear": 2223, "ProFTPD": 2202, "asyncssh": 2224}

# Shell script that replaces /etc/passwd and /etc/shadow, and then runs a program. It can also replace the PAM rules of
# OpenSSH and mount a tmpfs. Arguments: the three files, the folder and size of the tmpfs, and the command.
ACCOUNTS = ('mount --bind "$1" /etc/passwd && mount --bind "$2" /etc/shadow || exit 70; '
            'if [ -n "$3" ]; then mount --bind "$3" /etc/pam.d/sshd || exit 70; fi; '
            'if [ -n "$4" ]; then mount -t tmpfs -o size="$5",mode=777 tmpfs "$4" || exit 70; fi; '
            'shift 5; exec "$@"')


class SshServer:
    """Port, account, folders and host key of a running SSH server."""

    user, password, uid = USER, PASSWORD, UID

    def __init__(self, name, port, home, host_key, folder=None):
        self.name, self.port, self.home, self.host_key = name, port, home, host_key
        # Folder of the files, as clients name it.
        self.folder = folder or os.path.join(home, "files")

    def file(self, name=""):
        """Returns the path of the file that clients call `name`."""
        return os.path.join(os.fsencode(self.home), b"files", name) if isinstance(name, bytes) else os.path.join(
            self.home, "files", name)

    def place(self, address=ADDRESS_B):
        return f"{address}:{self.port}"

    def known_host(self, address=ADDRESS_B):
        """Returns the server's line for a known_hosts file."""
        with open(f"{self.host_key}.pub") as file:
            kind, key = file.read().split()[:2]
        return f"[{address}]:{self.port} {kind} {key}\n"

    def empty(self):
        """Removes every file and folder that clients can see."""
        shutil.rmtree(self.file())
        make_folder(self.file(), self.uid)


def make_folder(path, uid=UID):
    os.makedirs(path, exist_ok=True)
    os.chmod(path, 0o755)
    os.chown(path, uid, uid)


def make_host_key(world, name, kind="ed25519", *more):
    path = world.path(f"{name}.host_key")
    if not os.path.exists(path):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", path, *more], check=True)
    return path


def make_user_key(world, name, kind="ed25519"):
    """Makes a user's key pair if it does not exist. Returns the path of the private key."""
    path = world.path(f"{name}.user_key")
    if not os.path.exists(path):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, "-f", path], check=True)
    return path


def make_home(world, name, uid=UID):
    home = world.path(f"home-{name}")
    make_folder(home, uid)
    make_folder(os.path.join(home, "files"), uid)
    return home


def start_openssh(world, name="openssh", port=PORTS["OpenSSH"], pam=False, tmpfs=None, host_key=None, lines=()):
    """Starts sshd.

    With `pam`, sshd uses PAM, and also supports keyboard-interactive. `tmpfs` is the size of a file system on the
    folder `full` within the folder of the files. Raises `Missing` if this machine has no sshd.
    """
    program = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.path.exists(program):
        raise Missing("sshd")
    home, host_key = make_home(world, name), host_key or make_host_key(world, name)
    os.makedirs("/run/sshd", exist_ok=True)
    config = world.path(f"{name}.conf")
    with open(config, "w") as file:
        file.write("\n".join([
            *lines, f"ListenAddress {ADDRESS_B}:{port}", f"HostKey {host_key}", f"PidFile {world.path(name)}.pid",
            f"AuthorizedKeysFile {authorized_keys(world, name)}", "StrictModes no", "PasswordAuthentication yes",
            f"KbdInteractiveAuthentication {'yes' if pam else 'no'}", f"UsePAM {'yes' if pam else 'no'}",
            "MaxStartups 2000", "MaxSessions 200", "MaxAuthTries 20", "LoginGraceTime 60", "UseDNS no",
            "PrintMotd no", "AcceptEnv LANG LC_* LONGHAUL_*", "AllowAgentForwarding yes",
            f"Subsystem sftp {SFTP_SERVER}", ""]))
    full = None
    if tmpfs:
        full = os.path.join(home, "files", "full")
        make_folder(full)
    _start_with_accounts(world, name, home, pam, full, tmpfs, program, "-D", "-e", "-f", config)
    return _await(world, SshServer("OpenSSH", port, home, host_key))


def start_dropbear(world):
    if shutil.which("dropbear") is None:
        raise Missing("dropbear")
    home, host_key = make_home(world, "dropbear"), make_host_key(world, "dropbear")
    # dropbear always offers RSA, and a client that prefers RSA needs an RSA host key.
    keys = []
    for key in (host_key, make_host_key(world, "dropbear-rsa", "rsa")):
        keys += ["-r", f"{key}.dropbear"]
        subprocess.run(["dropbearconvert", "openssh", "dropbear", key, f"{key}.dropbear"], check=True, capture_output=True)
    port = PORTS["dropbear"]
    _start_with_accounts(world, "dropbear", home, False, None, None, "dropbear", "-F", "-E", *keys, "-p",
                         f"{ADDRESS_B}:{port}", "-P", world.path("dropbear.pid"), "-W", "2097152")
    return _await(world, SshServer("dropbear", port, home, host_key))


def start_proftpd(world):
    host_key = make_host_key(world, "proftpd", "rsa", "-b", "3072", "-m", "PEM")
    server = servers.start_proftpd(
        world, "LoadModule mod_sftp.c", "SFTPEngine on", f"SFTPHostKey {host_key}", "SFTPAuthMethods password",
        f"SFTPLog {world.path('proftpd.sftp.log')}", "MaxLoginAttempts 6")
    found = SshServer("ProFTPD", server.port, server.home, host_key, "/files")
    found.empty = server.empty
    return found


def start_asyncssh(world, name="asyncssh", port=PORTS["asyncssh"], ways=("password", "publickey"), host_key=None, **more):
    """Starts asyncssh_server.py, which reads its faults from `faults_file(world, name)`.

    Raises `Missing` if the library is not installed.
    """
    if not os.path.exists(os.path.join(LIBRARIES, "asyncssh")):
        raise Missing("asyncssh: `cargo xtask conformance ssh` installs it")
    # The server runs as root, because other users cannot read this repository on every machine.
    home, host_key = make_home(world, name, 0), host_key or make_host_key(world, name)
    settings = world.path(f"{name}.json")
    with open(settings, "w") as file:
        json.dump({"address": ADDRESS_B, "port": port, "home": home, "host_key": host_key, "user": USER,
                   "password": PASSWORD, "code": CODE, "ways": list(ways), "faults": faults_file(world, name),
                   "authorized_keys": authorized_keys(world, name), **more}, file)
    world.start(name, "b", "env", f"PYTHONPATH={LIBRARIES}", "PYTHONDONTWRITEBYTECODE=1", PYTHON,
                os.path.join(ROOT, "conformance", "asyncssh_server.py"), settings)
    server = SshServer("asyncssh", port, home, host_key)
    server.uid = 0
    return _await(world, server)


STARTS = {"OpenSSH": start_openssh, "dropbear": start_dropbear, "ProFTPD": start_proftpd, "asyncssh": start_asyncssh}


def faults_file(world, name="asyncssh"):
    return world.path(f"{name}.faults")


def set_faults(world, name="asyncssh", **faults):
    with open(faults_file(world, name), "w") as file:
        json.dump(faults, file)
    os.chmod(faults_file(world, name), 0o644)


def authorized_keys(world, name):
    return world.path(f"{name}.authorized_keys")


def authorize(world, name, *lines):
    """Sets the public keys with which the user may log in at a server."""
    path = authorized_keys(world, name)
    with open(path, "w") as file:
        file.writelines(line.rstrip("\n") + "\n" for line in lines)
    os.chmod(path, 0o644)


def public_key(path):
    with open(f"{path}.pub") as file:
        return file.read()


def _start_with_accounts(world, name, home, pam, tmpfs, size, *command):
    passwd, shadow, rules = (world.path(f"{name}.{what}") for what in ("passwd", "shadow", "pam"))
    hashed = subprocess.run(["openssl", "passwd", "-6", PASSWORD], check=True, capture_output=True, text=True)
    with open("/etc/passwd") as system, open(passwd, "w") as file:
        file.write(system.read() + f"{USER}:x:{UID}:{UID}::{home}:/bin/sh\n")
    with open(os.open(shadow, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(f"root:*:19000::::::\n{USER}:{hashed.stdout.strip()}:19000::::::\n")
    os.chmod(passwd, 0o644)
    with open(rules, "w") as file:
        file.write("auth required pam_unix.so\naccount required pam_unix.so\nsession required pam_permit.so\n")
    world.start(name, "b", "unshare", "--mount", "--propagation", "private", "sh", "-c", ACCOUNTS, "sh", passwd, shadow,
                rules if pam else "", tmpfs or "", size or "", *command)


def _await(world, server):
    def listens():
        with world.entered("b"), socket.socket() as control:
            return control.connect_ex((ADDRESS_B, server.port)) == 0
    world.wait(listens, f"{server.name} listens")
    return server
