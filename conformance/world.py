"""Two gateways and a vsftpd across an emulated WAN, for the scripts beside this file.

Root only, Debian packages vsftpd, curl, lftp, python3, iproute2. Everything lives in namespaces and
a folder of its own, and is removed at the end.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

ADDRESS_A, ADDRESS_B = "10.77.0.1", "10.77.0.2"
DOOR, CHOICE, FORWARD = 2121, 2122, 2123
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


class Failure(Exception):
    """Something is not as it must be."""


def check(condition, what):
    if not condition:
        raise Failure(what)
    print(f"  ok: {what}", flush=True)


def options(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--longhaul", default=os.path.join(ROOT, "target/release/longhaul"))
    parser.add_argument("--quick", action="store_true", help="files a tenth as large")
    parser.add_argument("--keep", action="store_true", help="leave the folder behind")
    parser.add_argument("--rate", default="1 Gbit/s")
    parser.add_argument("--rtt", default="200ms")
    parser.add_argument("--loss", default="0.1%")
    return parser


def require_tools(*tools):
    if os.geteuid() != 0:
        sys.exit("needs root, for network namespaces and vsftpd")
    missing = [tool for tool in tools if shutil.which(tool) is None]
    if missing:
        print(f"missing: apt-get install {' '.join(missing)}", file=sys.stderr)
        sys.exit(2)


class World:
    """A WAN that is up, with vsftpd in site b; gateways are started by name."""

    def __init__(self, args):
        self.args = args
        self.longhaul = os.path.abspath(args.longhaul)
        self.name = f"lhc{os.getpid()}"
        self.sites = {"a": f"{self.name}-a", "b": f"{self.name}-b"}
        self.folder = tempfile.mkdtemp(prefix="longhaul-conformance-")
        os.chmod(self.folder, 0o755)
        self.processes = {}
        self.link_extra = ""
        self.far_allow = f'"{ADDRESS_B}:21", "{ADDRESS_B}:2199"'

    def __enter__(self):
        try:
            self.wan("up", "--name-a", self.sites["a"], "--name-b", self.sites["b"],
                     "--rate", self.args.rate, "--rtt", self.args.rtt, "--loss", self.args.loss)
            for site in self.sites.values():
                subprocess.run(["ip", "-n", site, "link", "set", "lo", "up"], check=True)
            self._keys()
            self._vsftpd()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for process in self.processes.values():
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        subprocess.run([self.longhaul, "wan", "--wan", self.name, "down"], check=False)
        if error is not None:
            for name in ("gateway-a", "gateway-b", "vsftpd"):
                self._tail(name)
        if self.args.keep:
            print(f"left behind: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _tail(self, name):
        try:
            with open(self.path(f"{name}.log"), errors="replace") as log:
                print(f"--- end of {name}.log", *log.read().splitlines()[-25:], sep="\n")
        except OSError:
            pass

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def wan(self, *arguments):
        subprocess.run([self.longhaul, "wan", "--wan", self.name, *arguments], check=True,
                       stdout=subprocess.DEVNULL)

    def inside(self, site, *command):
        """The command line that runs `command` in a site, with the same process id."""
        return ["ip", "netns", "exec", self.sites[site], *command]

    def run(self, *command, site="a", timeout=900, **more):
        return subprocess.run(self.inside(site, *command), timeout=timeout, **more)

    def start(self, name, site, *command):
        log = open(self.path(f"{name}.log"), "a")
        process = subprocess.Popen(self.inside(site, *command), stdout=log, stderr=log,
                                   cwd=self.folder)
        self.processes[name] = process
        return process

    def keygen(self, name):
        done = subprocess.run([self.longhaul, "keygen", self.path(f"{name}.key")], check=True,
                              capture_output=True, text=True)
        return done.stdout.strip()

    def _keys(self):
        self.keys = {name: self.keygen(name) for name in ("a", "b")}

    def _vsftpd(self):
        root = self.path("ftp")
        os.makedirs(os.path.join(root, "files"))
        shutil.chown(os.path.join(root, "files"), "ftp")
        os.makedirs("/var/run/vsftpd/empty", exist_ok=True)
        with open(self.path("vsftpd.conf"), "w") as conf:
            conf.write("\n".join([
                "listen=YES", f"listen_address={ADDRESS_B}", "background=NO", "isolate=NO",
                "isolate_network=NO", "seccomp_sandbox=NO", "anonymous_enable=YES",
                "local_enable=NO", "write_enable=YES", "anon_upload_enable=YES",
                "anon_mkdir_write_enable=YES", "anon_other_write_enable=YES", "anon_umask=022",
                "anon_world_readable_only=NO", "no_anon_password=YES", f"anon_root={root}",
                "xferlog_enable=YES", f"vsftpd_log_file={self.path('vsftpd.log')}", ""]))
        self.start("vsftpd", "b", shutil.which("vsftpd") or "/usr/sbin/vsftpd",
                   self.path("vsftpd.conf"))

    def server_file(self, name):
        return self.path("ftp", "files", name)

    def write_config(self, site, extra=""):
        other = "b" if site == "a" else "a"
        text = (f'[identity]\nkey_file = "{site}.key"\n'
                f'[link]\nlisten = "0.0.0.0:4810"\n{self.link_extra}\n'
                f'[[peer]]\nname = "site-{other}"\npublic_key = "{self.keys[other]}"\n')
        if site == "a":
            text += (f'endpoint = "{ADDRESS_B}:4810"\n'
                     f'[[ftp]]\nlisten = "127.0.0.1:{DOOR}"\ntarget = "{ADDRESS_B}:21"\n'
                     f'[[ftp]]\nlisten = "127.0.0.1:{CHOICE}"\nclients = ["127.0.0.0/8"]\n'
                     f'[[forward]]\nlisten = "127.0.0.1:{FORWARD}"\ntarget = "{ADDRESS_B}:21"\n')
        else:
            text += f'[far]\nallow = [{self.far_allow}]\n'
        with open(self.path(f"{site}.toml"), "w") as config:
            config.write(text + extra)

    def gateway(self, site, extra=""):
        """Starts the gateway of a site and waits until it is up."""
        self.write_config(site, extra)
        process = self.start(f"gateway-{site}", site, self.longhaul, "gateway", "--config",
                             self.path(f"{site}.toml"))
        self.wait(lambda: self.status(site) is not None, f"gateway {site} up")
        return process

    def connected(self):
        self.wait(lambda: self.status("a")["peers"][0]["state"] == "up", "link up", 30)

    def status(self, site):
        done = self.run(self.longhaul, "status", "--json", site=site, capture_output=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def wait(self, condition, what, seconds=15):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"{what}: not within {seconds} s")
            time.sleep(0.1)


def make_file(path, size):
    """A file of `size` bytes that do not compress and do not repeat."""
    with open(path, "wb") as out:
        subprocess.run(
            f"openssl enc -aes-128-ctr -nosalt -pass pass:{os.path.basename(path)} -pbkdf2 "
            f"-iter 1 < /dev/zero 2>/dev/null | head -c {size}",
            shell=True, stdout=out, check=True)
    os.chmod(path, 0o644)


def digest(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "blake2b").hexdigest()


def same(one, other, what):
    check(os.path.getsize(one) == os.path.getsize(other), f"{what}: size")
    check(digest(one) == digest(other), f"{what}: hash")


def main(job, description, *tools, extend=None):
    parser = options(description)
    if extend:
        extend(parser)
    args = parser.parse_args()
    require_tools("vsftpd", "ip", *tools)
    begun = time.monotonic()
    try:
        with World(args) as world:
            job(world, args)
    except (Failure, subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"FAILED after {time.monotonic() - begun:.0f} s: {error}")
        sys.exit(1)
    print(f"PASSED in {time.monotonic() - begun:.0f} s")
