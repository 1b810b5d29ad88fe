"""SFTP, scp and rsync clients: programs from Debian's packages, and libraries.

Each client moves, lists, resumes, renames and deletes files, and sets their attributes, if it has the operation.

Every client has the same verbs. `put` and `get` take names of files. A file has the same name in the cell's folder, in
the server's folder, and in the cell's folder `back`. A verb returns when the client has ended. `cell.status` is the
client's exit status.
"""

import email.utils
import json
import os
import shlex
import shutil
import subprocess
import urllib.parse

import ssh_servers
from world import ADDRESS_B, ROOT, Failure

LIBRARY_CLIENT = os.path.join(ROOT, "conformance", "ssh_library_client.py")
OPTIONS = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null", "LogLevel=ERROR",
           "PreferredAuthentications=password", "NumberOfPasswordPrompts=1", "BatchMode=no", "IdentityAgent=none"]


class Unsupported(Exception):
    """A verb that the client does not have."""


class Cell:
    """One client with one server: the address for connections, and the folders of the files."""

    def __init__(self, world, server, host, port, timeout=120):
        self.world, self.server, self.host, self.port, self.timeout = world, server, host, port, timeout
        self.user, self.password = server.user, server.password
        self.local, self.back, self.home = world.path("local"), world.path("back"), world.path("client-home")
        self.said, self.status, self.output = "", None, b""

    def fresh(self):
        """Empties the folders of the client and the folder of the server."""
        for folder in (self.local, self.back, self.home):
            shutil.rmtree(folder, ignore_errors=True)
            os.makedirs(folder)
        self.server.empty()

    def here(self, name):
        return os.path.join(self.local, name)

    def got(self, name):
        return os.path.join(self.back, name)

    def there(self, name=""):
        """Returns the path of a file at the server, as clients name it."""
        return os.path.join(self.server.folder, name).rstrip("/")

    def run(self, *command, text=None, ask=True):
        """Runs a client. With `ask`, OpenSSH reads the password from a program."""
        more = {}
        if ask:
            script = os.path.join(self.home, "askpass")
            with open(script, "w") as file:
                file.write(f"#!/bin/sh\necho {shlex.quote(self.password)}\n")
            os.chmod(script, 0o700)
            more = {"SSH_ASKPASS": script, "SSH_ASKPASS_REQUIRE": "force"}
        done = self.world.run(*command, input=text.encode() if isinstance(text, str) else text, capture_output=True,
                              timeout=self.timeout, cwd=self.back,
                              env={**os.environ, "HOME": self.home, "LC_ALL": "C.UTF-8", "TERM": "dumb", **more})
        self.output, self.status = done.stdout, done.returncode
        self.said = (done.stdout + done.stderr).decode(errors="replace").strip()
        return done

    def require(self, condition, what):
        if not condition:
            last = self.said.splitlines()[-3:]
            raise Failure(f"{what}; exit status {self.status}: {' / '.join(last)}"[:600])


def ssh_options(cell, port_option=None):
    options = ["-F", "none"]
    for option in OPTIONS:
        options += ["-o", option]
    return [*options, port_option, str(cell.port)] if port_option else options


class Client:
    """A client without any verb. Subclasses define the verbs that they have."""

    program = None
    # Programs that the client needs in addition to its own.
    needs = ()
    # Whether the client runs a command at the server (`ssh HOST COMMAND`) instead of the SFTP subsystem.
    is_exec = False

    def _unsupported(self, *_):
        raise Unsupported()

    put = get = listing = resume_put = resume_get = rename = delete = put_attributes = get_attributes = _unsupported
    tree_put = tree_get = _unsupported


class Sftp(Client):
    program = "sftp"

    def batch(self, cell, *lines):
        return cell.run("sftp", *ssh_options(cell, "-P"), "-q", "-b", "-", f"{cell.user}@{cell.host}",
                        text="\n".join([*lines, ""]))

    def put(self, cell, *names):
        self.batch(cell, *(f"put {cell.here(name)} {cell.there(name)}" for name in names))

    def get(self, cell, *names):
        self.batch(cell, *(f"get {cell.there(name)} {cell.got(name)}" for name in names))

    def listing(self, cell):
        self.batch(cell, f"ls -1 {cell.there()}")
        return [os.path.basename(line) for line in cell.output.splitlines() if not line.startswith(b"sftp>")]

    def resume_put(self, cell, name):
        self.batch(cell, f"reput {cell.here(name)} {cell.there(name)}")

    def resume_get(self, cell, name):
        self.batch(cell, f"reget {cell.there(name)} {cell.got(name)}")

    def rename(self, cell, old, new):
        self.batch(cell, f"rename {cell.there(old)} {cell.there(new)}")

    def delete(self, cell, name):
        self.batch(cell, f"rm {cell.there(name)}")

    def put_attributes(self, cell, name):
        self.batch(cell, f"put -p {cell.here(name)} {cell.there(name)}")

    def get_attributes(self, cell, name):
        self.batch(cell, f"get -p {cell.there(name)} {cell.got(name)}")

    def tree_put(self, cell, name):
        self.batch(cell, f"put -r {cell.here(name)} {cell.there()}")

    def tree_get(self, cell, name):
        self.batch(cell, f"get -r {cell.there(name)} {cell.back}")


class Scp(Client):
    program = "scp"

    def __init__(self, *more):
        self.more = more
        self.is_exec = "-O" in more

    def copy(self, cell, sources, target, *more):
        cell.run("scp", *self.more, "-q", *ssh_options(cell, "-P"), *more, *sources, target)

    def remote(self, cell, name=""):
        return f"{cell.user}@{cell.host}:{cell.there(name)}"

    def put(self, cell, *names):
        self.copy(cell, map(cell.here, names), self.remote(cell) + "/")

    def get(self, cell, *names):
        self.copy(cell, [self.remote(cell, name) for name in names], cell.back)

    def put_attributes(self, cell, name):
        self.copy(cell, [cell.here(name)], self.remote(cell) + "/", "-p")

    def get_attributes(self, cell, name):
        self.copy(cell, [self.remote(cell, name)], cell.back, "-p")

    def tree_put(self, cell, name):
        self.copy(cell, [cell.here(name)], self.remote(cell) + "/", "-r")

    def tree_get(self, cell, name):
        self.copy(cell, [self.remote(cell, name)], cell.back, "-r")


class Rsync(Client):
    program = "rsync"
    is_exec = True

    def copy(self, cell, *arguments):
        cell.run("rsync", "-e", shlex.join(["ssh", *ssh_options(cell, "-p")]), *arguments)

    def remote(self, cell, name=""):
        return f"{cell.user}@{cell.host}:{cell.there(name)}"

    def put(self, cell, *names):
        self.copy(cell, *map(cell.here, names), self.remote(cell) + "/")

    def get(self, cell, *names):
        self.copy(cell, *(self.remote(cell, name) for name in names), cell.back + "/")

    def listing(self, cell):
        self.copy(cell, "--list-only", "-r", self.remote(cell) + "/")
        return [line.split(maxsplit=4)[4] for line in cell.output.splitlines() if not line.endswith(b" .")]

    def resume_put(self, cell, name):
        self.copy(cell, "--append", cell.here(name), self.remote(cell) + "/")

    def resume_get(self, cell, name):
        self.copy(cell, "--append", self.remote(cell, name), cell.back + "/")

    def put_attributes(self, cell, name):
        self.copy(cell, "-pt", cell.here(name), self.remote(cell) + "/")

    def get_attributes(self, cell, name):
        self.copy(cell, "-pt", self.remote(cell, name), cell.back + "/")

    def tree_put(self, cell, name):
        self.copy(cell, "-r", cell.here(name), self.remote(cell) + "/")

    def tree_get(self, cell, name):
        self.copy(cell, "-r", self.remote(cell, name), cell.back + "/")


class Sshfs(Client):
    """sshfs, with a mount for each verb. The mount lasts only while the commands of the verb run in its folder."""

    program = "sshfs"
    needs = ("fusermount3",)

    def script(self, cell, *lines):
        """Runs shell commands in the mounted folder. The exit status is that of the first command that fails."""
        mount = os.path.join(cell.home, "mount")
        os.makedirs(mount, exist_ok=True)
        command = shlex.join(["ssh", *ssh_options(cell)])
        text = "\n".join([
            f"sshfs -p {cell.port} -o ssh_command={shlex.quote(command)} {cell.user}@{cell.host}:{cell.there()} {mount} "
            "</dev/null || exit 69",
            f"cd {mount} && (set -e", *lines, ")", "status=$?", "cd /", f"fusermount3 -u {mount}", "exit $status"])
        cell.run("bash", "-c", text)

    def put(self, cell, *names):
        self.script(cell, *(f"cp {shlex.quote(cell.here(name))} {shlex.quote(name)}" for name in names))

    def get(self, cell, *names):
        self.script(cell, *(f"cp {shlex.quote(name)} {shlex.quote(cell.got(name))}" for name in names))

    def listing(self, cell):
        self.script(cell, "ls -1")
        return cell.output.splitlines()

    def resume_put(self, cell, name):
        self.script(cell, f"tail -c +$(($(stat -c %s {name}) + 1)) {cell.here(name)} >> {name}")

    def resume_get(self, cell, name):
        self.script(cell, f"tail -c +$(($(stat -c %s {cell.got(name)}) + 1)) {name} >> {cell.got(name)}")

    def rename(self, cell, old, new):
        self.script(cell, f"mv {old} {new}")

    def delete(self, cell, name):
        self.script(cell, f"rm {name}")

    def put_attributes(self, cell, name):
        self.script(cell, f"cp --preserve=mode,timestamps {cell.here(name)} {name}")

    def get_attributes(self, cell, name):
        self.script(cell, f"cp --preserve=mode,timestamps {name} {cell.got(name)}")

    def tree_put(self, cell, name):
        self.script(cell, f"cp -r {cell.here(name)} .")

    def tree_get(self, cell, name):
        self.script(cell, f"cp -r {name} {cell.back}")


class Lftp(Client):
    program = "lftp"

    def session(self, cell, *lines):
        connect = shlex.join(["ssh", "-a", "-x", *ssh_options(cell)])
        cell.run("lftp", "-c", "; ".join([
            "set net:max-retries 1", "set net:timeout 60", "set cmd:fail-exit true", "set sftp:auto-confirm yes",
            f"set sftp:connect-program {shlex.quote(connect)}", f"open -u {cell.user},{cell.password} -p {cell.port} "
            f"sftp://{cell.host}", f"cd {cell.there()}", f"lcd {cell.back}", *lines]), ask=False)

    def put(self, cell, *names):
        self.session(cell, *(f"put {cell.here(name)}" for name in names))

    def get(self, cell, *names):
        self.session(cell, *(f"get {name}" for name in names))

    def listing(self, cell):
        self.session(cell, "cls -1")
        return cell.output.splitlines()

    def resume_put(self, cell, name):
        self.session(cell, f"put -c {cell.here(name)}")

    def resume_get(self, cell, name):
        self.session(cell, f"get -c {name}")

    def rename(self, cell, old, new):
        self.session(cell, f"mv {old} {new}")

    def delete(self, cell, name):
        self.session(cell, f"rm {name}")

    def put_attributes(self, cell, name):
        self.session(cell, f"mirror -R --no-umask -f {cell.here(name)}")

    def get_attributes(self, cell, name):
        self.session(cell, f"mirror --no-umask -f {name}")

    def tree_put(self, cell, name):
        self.session(cell, f"mirror -R --no-perms {cell.here(name)} {name}")

    def tree_get(self, cell, name):
        self.session(cell, f"mirror --no-perms {name} {name}")


class Curl(Client):
    program = "curl"

    def url(self, cell, name=""):
        path = urllib.parse.quote(os.fsencode(os.path.join(cell.server.folder, os.fsdecode(name))))
        return f"sftp://{cell.host}:{cell.port}{path}"

    def curl(self, cell, *arguments):
        cell.run("curl", "-sS", "--insecure", "-u", f"{cell.user}:{cell.password}", *arguments, ask=False)

    def put(self, cell, *names):
        self.curl(cell, *(word for name in names for word in ("-T", cell.here(name), self.url(cell, name))))

    def get(self, cell, *names):
        self.curl(cell, *(word for name in names for word in ("-o", cell.got(name), self.url(cell, name))))

    def listing(self, cell):
        self.curl(cell, "--list-only", self.url(cell) + "/")
        return [name for name in cell.output.splitlines() if name not in (b".", b"..")]

    def resume_put(self, cell, name):
        self.curl(cell, "-C", "-", "-T", cell.here(name), self.url(cell, name))

    def resume_get(self, cell, name):
        self.curl(cell, "-C", "-", "-o", cell.got(name), self.url(cell, name))

    def quote(self, cell, *commands):
        self.curl(cell, "-o", "/dev/null", *(word for command in commands for word in ("-Q", command)), self.url(cell) + "/")

    def rename(self, cell, old, new):
        self.quote(cell, f"rename {cell.there(old)} {cell.there(new)}")

    def delete(self, cell, name):
        self.quote(cell, f"rm {cell.there(name)}")

    def put_attributes(self, cell, name):
        status = os.stat(cell.here(name))
        self.put(cell, name)
        self.quote(cell, f"chmod {status.st_mode & 0o777:o} {cell.there(name)}",
                   f"mtime \"{email.utils.formatdate(int(status.st_mtime), usegmt=True)}\" {cell.there(name)}")

    def tree_put(self, cell, name):
        self.quote(cell, f"mkdir {cell.there(name)}")
        files = os.listdir(os.fsencode(cell.here(name)))
        place = os.fsencode(cell.here(name)) + b"/"
        # With `-g`, curl does not interpret glob characters in a name.
        self.curl(cell, "-g", *(word for file in files for word in ("-T", place + file, self.url(
            cell, os.fsencode(name) + b"/" + file))))

    def tree_get(self, cell, name):
        # curl prints each name of a listing unchanged on a line, so a name with a line feed appears as two names.
        self.curl(cell, "--list-only", self.url(cell, name) + "/")
        files = [file for file in cell.output.split(b"\n") if file not in (b"", b".", b"..")]
        os.makedirs(cell.got(name))
        place = os.fsencode(cell.got(name)) + b"/"
        self.curl(cell, "-g", *(word for file in files for word in ("-o", place + file, self.url(
            cell, os.fsencode(name) + b"/" + file))))


class Rclone(Client):
    program = "rclone"

    def rclone(self, cell, *arguments):
        config = os.path.join(cell.home, "rclone.conf")
        hidden = subprocess.run(["rclone", "obscure", cell.password], check=True, capture_output=True, text=True)
        with open(config, "w") as file:
            file.write(f"[there]\ntype = sftp\nhost = {cell.host}\nport = {cell.port}\nuser = {cell.user}\n"
                       f"pass = {hidden.stdout.strip()}\nshell_type = none\n")
        cell.run("rclone", "--config", config, "--retries", "1", "--low-level-retries", "1", *arguments, ask=False)

    def remote(self, cell, name=""):
        return f"there:{cell.there(name)}"

    def names(self, cell, names):
        path = os.path.join(cell.home, "names")
        with open(path, "w") as file:
            file.writelines(f"{name}\n" for name in names)
        return ["--files-from", path, "--no-traverse"]

    def put(self, cell, *names):
        self.rclone(cell, "copy", cell.local, self.remote(cell), *self.names(cell, names))

    def get(self, cell, *names):
        self.rclone(cell, "copy", self.remote(cell), cell.back, *self.names(cell, names))

    def listing(self, cell):
        self.rclone(cell, "lsf", self.remote(cell))
        return cell.output.splitlines()

    def rename(self, cell, old, new):
        self.rclone(cell, "moveto", self.remote(cell, old), self.remote(cell, new))

    def delete(self, cell, name):
        self.rclone(cell, "deletefile", self.remote(cell, name))

    def tree_put(self, cell, name):
        self.rclone(cell, "copy", cell.here(name), self.remote(cell, name))

    def tree_get(self, cell, name):
        self.rclone(cell, "copy", self.remote(cell, name), cell.got(name))


class Library(Client):
    """The library paramiko or asyncssh, in the program `ssh_library_client.py`."""

    def __init__(self, library):
        self.library = library

    def steps(self, cell, *steps, **more):
        job = {"host": cell.host, "port": cell.port, "user": cell.user, "password": cell.password, **more,
               "steps": [[verb, *(os.fsencode(path).hex() for path in paths)] for verb, *paths in steps]}
        cell.run("env", f"PYTHONPATH={ssh_servers.LIBRARIES}", "PYTHONDONTWRITEBYTECODE=1", ssh_servers.PYTHON,
                 LIBRARY_CLIENT, self.library, text=json.dumps(job), ask=False)

    def put(self, cell, *names):
        self.steps(cell, *(("put", cell.here(name), cell.there(name)) for name in names))

    def get(self, cell, *names):
        self.steps(cell, *(("get", cell.there(name), cell.got(name)) for name in names))

    def listing(self, cell):
        self.steps(cell, ("list", cell.there()))
        return [name for name in cell.output.splitlines() if name not in (b".", b"..")]

    def resume_put(self, cell, name):
        self.steps(cell, ("resume_put", cell.here(name), cell.there(name)))

    def resume_get(self, cell, name):
        # The prefetch of paramiko requests the whole file, so a large file is read without it.
        is_large = os.path.getsize(cell.got(name)) > 1 << 30
        self.steps(cell, ("resume_get", cell.there(name), cell.got(name)), large=is_large)

    def rename(self, cell, old, new):
        self.steps(cell, ("rename", cell.there(old), cell.there(new)))

    def delete(self, cell, name):
        self.steps(cell, ("delete", cell.there(name)))

    def put_attributes(self, cell, name):
        self.steps(cell, ("put_attributes", cell.here(name), cell.there(name)))

    def get_attributes(self, cell, name):
        self.steps(cell, ("get_attributes", cell.there(name), cell.got(name)))

    def tree_put(self, cell, name):
        self.steps(cell, ("tree_put", cell.here(name), cell.there(name)))

    def tree_get(self, cell, name):
        self.steps(cell, ("tree_get", cell.there(name), cell.got(name), cell.here(name)))


class Psftp(Client):
    program = "psftp"
    needs = ("ssh-keyscan",)

    def batch(self, cell, *lines):
        script = os.path.join(cell.home, "batch")
        with open(script, "w") as file:
            file.write("\n".join([*lines, ""]))
        cell.run("psftp", "-batch", "-P", str(cell.port), "-pw", cell.password, "-hostkey", fingerprint(cell), "-b", script,
                 f"{cell.user}@{cell.host}", ask=False)

    def put(self, cell, *names):
        self.batch(cell, *(f"put {cell.here(name)} {cell.there(name)}" for name in names))

    def get(self, cell, *names):
        self.batch(cell, *(f"get {cell.there(name)} {cell.got(name)}" for name in names))

    def listing(self, cell):
        self.batch(cell, f"ls {cell.there()}")
        return [line.split()[-1] for line in cell.output.splitlines() if line.startswith(b"-")]

    def resume_put(self, cell, name):
        self.batch(cell, f"reput {cell.here(name)} {cell.there(name)}")

    def resume_get(self, cell, name):
        self.batch(cell, f"reget {cell.there(name)} {cell.got(name)}")

    def rename(self, cell, old, new):
        self.batch(cell, f"mv {cell.there(old)} {cell.there(new)}")

    def delete(self, cell, name):
        self.batch(cell, f"rm {cell.there(name)}")

    def tree_put(self, cell, name):
        self.batch(cell, f"put -r {cell.here(name)} {cell.there(name)}")

    def tree_get(self, cell, name):
        self.batch(cell, f"get -r {cell.there(name)} {cell.got(name)}")


class Longhaul(Client):
    """`longhaul copy` with the option that names a gateway.

    Without an option, it connects to the cell's host and port like any other client.
    """

    def __init__(self, option=None):
        self.option = option

    def copy(self, cell, *ends):
        world = cell.world
        options = {
            "--gateway": lambda: ["--gateway", f"{cell.host}:{cell.port}", "--host-key", fingerprint(cell)],
            "--peer": lambda: ["--peer", f"{world.keys['b']}@{ADDRESS_B}:4810", "--key", world.path(f"{MOVER_KEY}.key")],
            None: lambda: ["--host-key", fingerprint(cell)]}[self.option]()
        done = world.run(world.longhaul, "copy", *options, *ends, capture_output=True, timeout=cell.timeout, env={
            **os.environ, "HOME": cell.home, "LONGHAUL_PASSWORD": cell.password})
        cell.output, cell.status = done.stdout, done.returncode
        cell.said = (done.stdout + done.stderr).decode(errors="replace").strip()

    def url(self, cell, name):
        place = cell.server.place() if self.option else f"{cell.host}:{cell.port}"
        return f"sftp://{cell.user}@{place}/{cell.there(name)}"

    def put(self, cell, *names):
        self.copy(cell, *map(cell.here, names), self.url(cell, names[0]) if len(names) == 1 else self.url(cell, ""))

    def get(self, cell, *names):
        self.copy(cell, *(self.url(cell, name) for name in names), cell.back + "/")

    def tree_put(self, cell, name):
        self.copy(cell, cell.here(name), self.url(cell, name))

    def tree_get(self, cell, name):
        self.copy(cell, self.url(cell, name), cell.got(name))


# Name of the key with which the mover acts as a near gateway.
MOVER_KEY = "mover"
# The mover, without an option and with each option.
MOVERS = {"longhaul copy": Longhaul(), **{f"longhaul copy {option}": Longhaul(option) for option in ("--gateway", "--peer")}}

FINGERPRINTS = {}


def fingerprint(cell, site="a"):
    """Returns the fingerprint of the host key that a cell's clients receive."""
    key = (cell.world.name, cell.host, cell.port)
    if key not in FINGERPRINTS:
        scanned = cell.world.run("ssh-keyscan", "-T", "20", "-p", str(cell.port), cell.host, site=site, capture_output=True, text=True)
        lines = [line for line in scanned.stdout.splitlines() if line and not line.startswith("#")]
        if not lines:
            raise Failure(f"ssh-keyscan finds no host key: {scanned.stderr.strip()[-200:]}")
        done = subprocess.run(["ssh-keygen", "-l", "-f", "-"], input=lines[0] + "\n", text=True, capture_output=True, check=True)
        FINGERPRINTS[key] = done.stdout.split()[1]
    return FINGERPRINTS[key]


def cipher_of(cell):
    """Returns the cipher that OpenSSH negotiates with a cell's server."""
    cell.run("ssh", "-o", "LogLevel=DEBUG", *ssh_options(cell, "-p"), f"{cell.user}@{cell.host}", "true")
    found = [line.split("cipher: ")[1].split()[0] for line in cell.said.splitlines() if "kex: client->server cipher: " in line]
    cell.require(found and cell.status == 0, "no cipher is logged")
    return found[0]


CLIENTS = {
    "sftp": Sftp(), "scp": Scp(), "scp -O": Scp("-O"), "rsync": Rsync(), "sshfs": Sshfs(), "lftp": Lftp(), "curl": Curl(),
    "rclone": Rclone(), "paramiko": Library("paramiko"), "asyncssh": Library("asyncssh"), "psftp": Psftp(),
}


def missing_program(client):
    """Returns the program or library that a client needs and this machine lacks, or None."""
    client = CLIENTS[client]
    if isinstance(client, Library):
        is_here = os.path.exists(os.path.join(ssh_servers.LIBRARIES, client.library))
        return None if is_here else client.library
    return next((program for program in (client.program, *client.needs) if shutil.which(program) is None), None)
