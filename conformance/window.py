"""The graphical program FileZilla with its real window, on a separate X display in site a."""

import os
import shutil
import subprocess
import time

from files import digest
from world import ROOT, Failure

PROGRAMS = ("filezilla", "Xvfb", "xdotool", "import")

SETTINGS = {
    "Greeting version": "9.9.9", "Update Check": 0, "Timeout": 20, "Number of Transfers": 10,
    "Logging Show Timestamp": 1, "Queue completion action": 1, "Prompt password save": 0,
    "Window position and size": "0 0 0 1200 800 ", "File exists action on upload": 1,
    "File exists action on download": 1,
}

# Positions of the file lists in the window. The size of the window is in the settings.
LOCAL_LIST, REMOTE_LIST = (60, 600), (700, 600)
# Maximum number of attempts to start a transfer, and the time that each attempt waits for the start.
TRIES, PATIENCE_S = 3, 10


class Window:
    """A FileZilla process with a separate home, local folder and log."""

    def __init__(self, world, display, name, url):
        self.world, self.name, self.url = world, name, url
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
        self.environment = {**os.environ, "HOME": self.home, "DISPLAY": display,
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
                raise Failure(f"{what}: FileZilla ended unexpectedly, exit status {self.process.returncode}:\n"
                              + self.said()[-1000:])
            if time.monotonic() > deadline:
                self.picture("failed")
                raise Failure(f"{what}: not within {seconds} s:\n" + self.said()[-3000:])
            time.sleep(0.2)

    def accept_questions(self):
        """Accepts the questions about missing TLS and about unknown certificates. OK is the default button."""
        found = self.do("xdotool", "search", "--onlyvisible", "--name", "Insecure|Unknown|certificate")
        for window in found.stdout.split():
            self.do("xdotool", "windowfocus", window, "key", "--window", window, "Return")

    def transfer_all(self, place):
        """Selects all files of a list, and transfers them."""
        x, y = place
        self.do("xdotool", "mousemove", str(x), str(y), "click", "1")
        time.sleep(0.5)
        self.do("xdotool", "key", "ctrl+a")
        time.sleep(0.5)
        self.do("xdotool", "key", "Return")

    def picture(self, name):
        path = os.path.join(ROOT, "target", f"filezilla-{self.name}-{name}.png")
        self.do("import", "-window", "root", path)


def start_display(world):
    """Starts an X server on a free display, and returns the name of the display."""
    reader, writer = os.pipe()
    with open(world.path("xvfb.log"), "w") as log:
        world.processes["xvfb"] = subprocess.Popen(
            world.inside("a", "Xvfb", "-displayfd", str(writer), "-screen", "0", "1280x900x24",
                         "-nolisten", "tcp"), pass_fds=[writer], stdout=log, stderr=log)
    os.close(writer)
    with os.fdopen(reader) as display:
        number = display.readline().strip()
    if not number:
        raise Failure("the X server has not started")
    return f":{number}"


def move(window, server, count, size):
    """Uploads `count` files in the window, downloads them again, and compares their hashes.

    Returns the seconds of each direction.
    """
    names = [f"file{number:05}.bin" for number in range(count)]
    here = lambda name: os.path.join(window.local, name)
    whole = lambda path: os.path.exists(path) and os.path.getsize(path) == size
    for name in names:
        with open(here(name), "wb") as file:
            file.write(os.urandom(size))
    hashes = {name: digest(here(name)) for name in names}
    patience, took = 60 + count, {}

    def transfer(direction, place, file, done):
        started = lambda: window.said().count("Status: Starting ")
        before = started()
        for _ in range(TRIES):
            begun = time.monotonic()
            window.transfer_all(place)
            # On a busy machine, clicks and keys may come before the window is ready. Then another attempt follows.
            while started() == before and time.monotonic() - begun < PATIENCE_S:
                time.sleep(0.1)
            if started() > before:
                break
            window.accept_questions()
        window.wait(lambda: window.said().count("File transfer successful") >= done
                    and all(whole(file(name)) for name in names), direction, patience)
        took[direction] = time.monotonic() - begun
        changed = [name for name in names if digest(file(name)) != hashes[name]]
        if changed:
            raise Failure(f"{direction}: other contents in {' '.join(changed)}")

    def listings():
        return window.said().count("Directory listing of")

    def listed():
        window.accept_questions()
        return listings() > 0

    window.open()
    try:
        window.wait(listed, "login and listing")
        time.sleep(1)
        transfer("up", LOCAL_LIST, server.file, count)
        for name in names:
            os.remove(here(name))
        before = listings()
        window.do("xdotool", "key", "F5")
        window.wait(lambda: listings() > before, "the folder listed again")
        time.sleep(2 + count / 1000)
        transfer("down", REMOTE_LIST, here, 2 * count)
        window.picture("done")
        return took
    finally:
        window.close()
        server.empty()
        shutil.rmtree(window.local, ignore_errors=True)
