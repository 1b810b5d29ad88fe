"""Two sites, the emulated WAN between them, and their gateways, for tests and benches.

This module requires root. The names of a world's network namespaces and folder contain the world's name, so several
worlds can run at once. At its end, a world removes its namespaces, and also its folder unless `keep` is set. The module
`servers` starts FTP servers.
"""

import contextlib
import ctypes
import dataclasses
import itertools
import json
import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

ADDRESS_A, ADDRESS_B = "10.77.0.1", "10.77.0.2"
# Address of the client in site c, and address of site a as its router.
CLIENT, ROUTER = "10.78.0.2", "10.78.0.1"
# Ports of the listeners that site a always has: FTP with the server of site b, FTP with a server that USER names, and a
# forward.
NEAR_PORT, CHOICE, FORWARD = 2121, 2122, 2123
# Address in the allow list at which no server listens.
NOBODY = f"{ADDRESS_B}:2199"
ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "target", "release", "longhaul")

CLONE_NEWNET = 0x40000000
LIBC = ctypes.CDLL(None, use_errno=True)
NUMBERS = itertools.count(1)


class Failure(Exception):
    """A failed check of a test or a bench."""


class Missing(Exception):
    """A required program, package or kernel feature that this machine lacks."""


@dataclasses.dataclass(frozen=True)
class Path:
    """Rate, round-trip time and loss of the emulated path, as options of `longhaul wan up`.

    The loss applies to each direction.
    """

    rate: str = "1 Gbit/s"
    rtt: str = "200ms"
    loss: str = "0.1%"

    def __str__(self):
        return f"{self.rate}, RTT {self.rtt}, loss {self.loss}"


class World:
    """An emulated WAN with its sites, gateways and other programs. Each program has a name."""

    def __init__(self, longhaul, path, keep=False):
        self.longhaul, self.path_settings, self.keep = os.path.abspath(longhaul), path, keep
        # Path of the gateway's program, by site.
        self.programs = dict.fromkeys("ab", self.longhaul)
        self.name = f"lhc{os.getpid()}n{next(NUMBERS)}"
        self.sites = {site: f"{self.name}-{site}" for site in "ab"}
        self.added = []
        self.folder = tempfile.mkdtemp(prefix=f"{self.name}-")
        os.chmod(self.folder, 0o755)
        self.processes = {}
        # Host of the far gateway in the near gateway's configuration.
        self.far_host = ADDRESS_B
        # Servers that the far gateway may connect to, and additional environment variables of programs.
        self.allowed = [f"{ADDRESS_B}:21", NOBODY]
        self.environment = {}

    def __enter__(self):
        path = self.path_settings
        try:
            self.wan("up", "--name-a", self.sites["a"], "--name-b", self.sites["b"],
                     "--rate", path.rate, "--rtt", path.rtt, "--loss", path.loss)
            for site in "ab":
                self.ip(site, "link", "set", "lo", "up")
            self.keys = {name: self.keygen(name) for name in "ab"}
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, kind, error, trace):
        for process in self.processes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
        for name in self.processes:
            self._await_end(name)
        for site in self.added:
            subprocess.run(["ip", "netns", "del", self.sites[site]], check=False)
        subprocess.run([self.longhaul, "wan", "--name", self.name, "down"], check=False)
        if self.keep:
            print(f"kept: {self.folder}")
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    # Sites.

    def wan(self, *arguments):
        subprocess.run([self.longhaul, "wan", "--name", self.name, *arguments], check=True,
                       stdout=subprocess.DEVNULL)

    def ip(self, site, *arguments):
        subprocess.run(["ip", "-n", self.sites[site], *arguments], check=True)

    def add_site(self, site):
        """Adds a network namespace that has only a loopback interface."""
        self.sites[site] = f"{self.name}-{site}"
        subprocess.run(["ip", "netns", "add", self.sites[site]], check=True)
        self.added.append(site)
        self.ip(site, "link", "set", "lo", "up")

    def add_client(self):
        """Adds site c behind site a. Site a forwards packets between site c and site b."""
        self.add_site("c")
        self.ip("a", "link", "add", "lan0", "type", "veth", "peer", "name", "lan0", "netns", self.sites["c"])
        self.ip("a", "address", "add", f"{ROUTER}/24", "dev", "lan0")
        self.ip("c", "address", "add", f"{CLIENT}/24", "dev", "lan0")
        for site in ("a", "c"):
            self.ip(site, "link", "set", "lan0", "up")
        self.ip("c", "route", "add", "default", "via", ROUTER)
        self.ip("b", "route", "add", f"{CLIENT}/32", "via", ADDRESS_A)
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward", check=True)

    @contextlib.contextmanager
    def entered(self, site):
        """Moves the calling thread into a site's network namespace, so that its new sockets belong to the site.

        The thread returns to its own namespace at the end of the context.
        """
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{self.sites[site]}", os.O_RDONLY)
        try:
            if LIBC.setns(there, CLONE_NEWNET) != 0:
                raise Failure(f"cannot enter site {site}: {os.strerror(ctypes.get_errno())}")
            yield
        finally:
            if LIBC.setns(home, CLONE_NEWNET) != 0:
                os._exit(70)
            os.close(there)
            os.close(home)

    # Programs.

    def inside(self, site, *command):
        """Returns the command line that runs `command` in a site. `ip` becomes `command` and keeps its process id."""
        return ["ip", "netns", "exec", self.sites[site], *command]

    def run(self, *command, site="a", timeout=900, **more):
        return subprocess.run(self.inside(site, *command), timeout=timeout, **more)

    def start(self, name, site, *command):
        with open(self.path(f"{name}.log"), "a") as log:
            process = subprocess.Popen(self.inside(site, *command), stdout=log, stderr=log,
                                       cwd=self.folder, env={**os.environ, **self.environment})
        self.processes[name] = process
        return process

    def stop(self, name):
        """Terminates a program with SIGTERM, as a service manager does, and waits for its end.

        Kills the program after 15 s.
        """
        self.processes[name].terminate()
        self._await_end(name)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def _await_end(self, name):
        process = self.processes[name]
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def log(self, name):
        """Returns the output of a program."""
        try:
            with open(self.path(f"{name}.log"), errors="replace") as log:
                return log.read()
        except OSError:
            return ""

    def wait(self, condition, what, seconds=15):
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise Failure(f"{what}: not within {seconds} s")
            time.sleep(0.1)

    # Gateways.

    def keygen(self, name):
        """Makes the key file NAME.key, and returns its public key."""
        done = subprocess.run([self.longhaul, "keygen", self.path(f"{name}.key")], check=True,
                              capture_output=True, text=True)
        return done.stdout.strip()

    def write_config(self, site, extra=""):
        other = "b" if site == "a" else "a"
        text = (f'[identity]\nkey_file = "{site}.key"\n[link]\nlisten = "0.0.0.0:4810"\n'
                f'[[peer]]\nname = "site-{other}"\npublic_key = "{self.keys[other]}"\n')
        if site == "a":
            text += (f'endpoint = "{self.far_host}:4810"\n'
                     f'[[ftp]]\nlisten = "127.0.0.1:{NEAR_PORT}"\ntarget = "{ADDRESS_B}:21"\n'
                     f'[[ftp]]\nlisten = "127.0.0.1:{CHOICE}"\nclients = ["127.0.0.0/8"]\n'
                     f'[[forward]]\nlisten = "127.0.0.1:{FORWARD}"\ntarget = "{ADDRESS_B}:21"\n')
        else:
            text += f"[far]\nallow = [{', '.join(json.dumps(place) for place in self.allowed)}]\n"
        with open(self.path(f"{site}.toml"), "w") as config:
            config.write(text + extra)

    def gateway(self, site, extra=""):
        """Writes the configuration of a site's gateway, starts the gateway and waits until it is up."""
        self.write_config(site, extra)
        return self.start_gateway(site)

    def start_gateway(self, site):
        """Starts a site's gateway with its existing configuration, and waits until it is up."""
        process = self.start(f"gateway-{site}", site, self.programs[site], "gateway", "--config",
                             self.path(f"{site}.toml"))
        self.wait(lambda: self.status(site) is not None, f"gateway {site} up")
        return process

    def pair(self, extra=""):
        """Starts both gateways and waits for their link. `extra` belongs to the near gateway's configuration.

        Stops gateways that still run after a failed test.
        """
        self.stop_pair()
        self.gateway("b")
        self.gateway("a", extra)
        self.connected()

    def stop_pair(self):
        for name in ["gateway-a", "gateway-b"]:
            if name in self.processes:
                self.stop(name)

    def connected(self):
        self.wait(lambda: self.is_connected(), "link up", 30)

    def is_connected(self):
        status = self.status("a")
        return status is not None and status["peers"][0]["state"] == "up"

    def status(self, site, *arguments):
        done = self.run(self.programs[site], "status", "--json", *arguments, site=site, capture_output=True)
        return json.loads(done.stdout) if done.returncode == 0 else None

    def memory_kib(self, site):
        """Returns the resident memory of a site's gateway in KiB."""
        with open(f"/proc/{self.processes[f'gateway-{site}'].pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))


def raise_open_files():
    """Raises the limit of open files to the hard limit, for this process and its children."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
