#!/usr/bin/env python3
"""FileZilla in its real window: twenty files up and twenty down over its ten connections, without TLS and
with TLS, against vsftpd and ProFTPD. Hashes must agree. The last window is kept as a picture.
"""

import os
import shutil
import subprocess
import time

import servers as ftp_servers
from world import ADDRESS_B, ROOT, Failure, check, digest, main, make_file

FIRST_DOOR = 2130
FILES = 20
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
    for name in ("vsftpd", "ProFTPD"):
        for tls in (False, True):
            drive(world, plain[name], (tls_ports if tls else ports)[name], tls)


def drive(world, server, port, tls):
    label = f"{server.name}{' with TLS' if tls else ''}"
    who = f"{server.user}:{server.password}"
    window = Window(world, f"{server.name}-{int(tls)}",
                    f"ftp://{who}@127.0.0.1:{port}{server.folder}")
    names = [f"file{number:02}.bin" for number in range(FILES)]
    for name in names:
        make_file(os.path.join(window.local, name), 200_000)
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
        whole = lambda path: os.path.exists(path) and os.path.getsize(path) == 200_000
        window.wait(lambda: all(whole(server.file(name)) for name in names)
                    and window.said().count("File transfer successful") >= FILES, f"{label}: upload")
        print(f"  {label}: {FILES} files up in {time.monotonic() - begun:.1f} s", flush=True)
        check(all(digest(server.file(name)) == hashes[name] for name in names), f"{label}: up, hashes")

        for name in names:
            os.remove(os.path.join(window.local, name))
        begun = time.monotonic()
        window.do("xdotool", "key", "F5")
        time.sleep(2)
        window.transfer_all(REMOTE_LIST)
        window.wait(lambda: all(whole(os.path.join(window.local, name)) for name in names)
                    and window.said().count("File transfer successful") >= 2 * FILES,
                    f"{label}: download")
        print(f"  {label}: {FILES} files down in {time.monotonic() - begun:.1f} s", flush=True)
        check(all(digest(os.path.join(window.local, name)) == hashes[name] for name in names),
              f"{label}: down, hashes")
        print(f"  picture: {window.picture(f'{server.name}-{int(tls)}')}")
    finally:
        window.close()
        for name in os.listdir(folder):
            os.remove(os.path.join(folder, name))
        shutil.rmtree(window.local, ignore_errors=True)


def extend(parser):
    parser.set_defaults(rate="300 Mbit/s", rtt="20ms", loss="0%")


if __name__ == "__main__":
    main(job, __doc__, "filezilla", "Xvfb", "xdotool", "import", "openssl", extend=extend)
