#!/usr/bin/env python3
"""FileZilla in its real window: twenty files up and twenty down over its ten connections, without TLS and
with TLS, against vsftpd and ProFTPD. Hashes must agree. The last window is kept as a picture.

With `--small COUNT`: so many files of 10 KB through the pair, and a tenth of them directly, vsftpd alone; `--write`
puts the figures into docs/results/small-files-filezilla.md.
"""

import os
import shutil
import subprocess
import time

import pages
import servers as ftp_servers
from world import ADDRESS_B, ROOT, Failure, check, digest, main

FIRST_DOOR = 2130
FILES, FILE_BYTES, SMALL_BYTES = 20, 200_000, 10_000
DISPLAY = ":7"

SETTINGS = {
    "Greeting version": "9.9.9", "Update Check": 0, "Timeout": 20, "Number of Transfers": 10,
    "Logging Show Timestamp": 1, "Queue completion action": 1, "Prompt password save": 0,
    "Window position and size": "0 0 0 1200 800 ", "File exists action on upload": 1,
    "File exists action on download": 1,
}

# Places in the window, which has the size that the settings give it.
LOCAL_LIST, REMOTE_LIST = (60, 600), (700, 600)


class Window:
    """FileZilla on a display of its own, in site a."""

    def __init__(self, world, name, url):
        self.world, self.url = world, url
        self.home = world.path(f"home-{name}")
        self.local = world.path(f"local-{name}")
        self.log = world.path(f"filezilla-{name}.log")
        config = os.path.join(self.home, ".config", "filezilla")
        os.makedirs(config)
        os.makedirs(self.local)
        settings = {**SETTINGS, "Logging file": self.log}
        lines = [f'<Setting name="{key}">{value}</Setting>' for key, value in settings.items()]
        with open(os.path.join(config, "filezilla.xml"), "w") as file:
            file.write('<?xml version="1.0"?><FileZilla3><Settings>' + "".join(lines)
                       + "</Settings></FileZilla3>")
        self.environment = {**os.environ, "HOME": self.home, "DISPLAY": DISPLAY,
                            "XDG_CONFIG_HOME": os.path.join(self.home, ".config")}

    def open(self):
        self.process = subprocess.Popen(
            self.world.inside("a", "filezilla", f"--local={self.local}", self.url),
            env=self.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def do(self, *command):
        return self.world.run(*command, env=self.environment, capture_output=True, text=True,
                              timeout=30)

    def said(self):
        try:
            with open(self.log, errors="replace") as file:
                return file.read()
        except OSError:
            return ""

    def wait(self, condition, what, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None:
                raise Failure(f"{what}: FileZilla has ended by itself ({self.process.returncode}):\n"
                              + self.said()[-1000:])
            if time.monotonic() > deadline:
                self.picture("failed")
                raise Failure(f"{what}: not within {seconds} s:\n" + self.said()[-3000:])
            time.sleep(0.2)

    def accept_questions(self):
        """Whether TLS is missing or whose certificate it is: OK is the default."""
        found = self.do("xdotool", "search", "--onlyvisible", "--name", "Insecure|Unknown|certificate")
        for window in found.stdout.split():
            self.do("xdotool", "windowfocus", window, "key", "--window", window, "Return")

    def transfer_all(self, place):
        """Marks all files of a list and transfers them."""
        x, y = place
        self.do("xdotool", "mousemove", str(x), str(y), "click", "1")
        time.sleep(0.5)
        self.do("xdotool", "key", "ctrl+a")
        time.sleep(0.5)
        self.do("xdotool", "key", "Return")

    def picture(self, name):
        path = os.path.join(ROOT, "target", f"filezilla-{name}.png")
        self.do("import", "-window", "root", path)
        return path


def job(world, args):
    plain = ftp_servers.start_all(world)
    sections, ports = ftp_servers.doors_of(plain, FIRST_DOOR)
    with_tls, tls_ports = ftp_servers.doors_of(plain, FIRST_DOOR + 10, client_tls=True)
    world.far_allow = ", ".join(f'"{ADDRESS_B}:{server.port}"' for server in plain.values())
    world.gateway("b")
    world.gateway("a", sections + with_tls)
    world.connected()
    world.start("xvfb", "a", "Xvfb", DISPLAY, "-screen", "0", "1280x900x24", "-nolisten", "tcp")
    time.sleep(2)
    if args.small:
        return small(world, args, plain["vsftpd"], ports["vsftpd"])
    for name in ("vsftpd", "ProFTPD"):
        for tls in (False, True):
            port = (tls_ports if tls else ports)[name]
            label = f"{name}{' with TLS' if tls else ''}"
            drive(world, plain[name], label, ("127.0.0.1", port), FILES, FILE_BYTES)


def small(world, args, server, port):
    rows = []
    for way, at, count in [("through the pair", ("127.0.0.1", port), args.small),
                           ("directly", (ADDRESS_B, server.port), args.small // 10)]:
        for direction, seconds in drive(world, server, way, at, count, SMALL_BYTES).items():
            rows.append((way, direction, count, f"{seconds:.0f}", f"{count / seconds:.1f}"))
    table = pages.table(["through", "direction", "files", "seconds", "files/s"], rows)
    print("\n".join(table))
    if args.write:
        pages.write("small-files-filezilla", "Small files with FileZilla", [
            f"Files of 10 KB, {args.rate}, RTT {args.rtt}, loss {args.loss}: FileZilla in its window with ten "
            "connections, vsftpd. One run each.", "", *table])


def drive(world, server, label, at, count, size):
    """Files up and down; returns the seconds of each."""
    who = f"{server.user}:{server.password}"
    short = label.replace(" ", "-")
    window = Window(world, short, f"ftp://{who}@{at[0]}:{at[1]}{server.folder}")
    names = [f"file{number:05}.bin" for number in range(count)]
    for name in names:
        with open(os.path.join(window.local, name), "wb") as file:
            file.write(os.urandom(size))
    hashes = {name: digest(os.path.join(window.local, name)) for name in names}
    folder = os.path.dirname(server.file("x"))
    begun = time.monotonic()
    window.open()
    try:
        def listed():
            window.accept_questions()
            return "Directory listing of" in window.said()
        window.wait(listed, f"{label}: login and listing")
        print(f"  {label}: listing after {time.monotonic() - begun:.1f} s", flush=True)
        time.sleep(1)

        begun = time.monotonic()
        window.transfer_all(LOCAL_LIST)
        patience = 60 + count
        whole = lambda path: os.path.exists(path) and os.path.getsize(path) == size
        window.wait(lambda: window.said().count("File transfer successful") >= count
                    and all(whole(server.file(name)) for name in names), f"{label}: upload", patience)
        took = {"up": time.monotonic() - begun}
        print(f"  {label}: {count} files up in {took['up']:.1f} s", flush=True)
        check(all(digest(server.file(name)) == hashes[name] for name in names), f"{label}: up, hashes")

        for name in names:
            os.remove(os.path.join(window.local, name))
        window.do("xdotool", "key", "F5")
        time.sleep(2 + count / 1000)
        begun = time.monotonic()
        window.transfer_all(REMOTE_LIST)
        window.wait(lambda: window.said().count("File transfer successful") >= 2 * count
                    and all(whole(os.path.join(window.local, name)) for name in names),
                    f"{label}: download", patience)
        took["down"] = time.monotonic() - begun
        print(f"  {label}: {count} files down in {took['down']:.1f} s", flush=True)
        check(all(digest(os.path.join(window.local, name)) == hashes[name] for name in names),
              f"{label}: down, hashes")
        print(f"  picture: {window.picture(short)}")
        return took
    finally:
        window.close()
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        shutil.rmtree(window.local, ignore_errors=True)


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")
    parser.add_argument("--small", type=int, metavar="COUNT", help="only small files, so many")
    parser.add_argument("--write", action="store_true", help="with --small: write a page")


if __name__ == "__main__":
    main(job, __doc__, "filezilla", "Xvfb", "xdotool", "import", "openssl", extend=extend)
