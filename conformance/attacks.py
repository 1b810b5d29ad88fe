"""Attacks by clients on a gateway's listener, and attacks by a server behind the gateway.

Each attack by a client returns lines with its outcome. The caller checks these lines.
"""

import contextlib
import socket
import threading
import time

import talk

SECRET = "hunter2hunter2"
CONNECTIONS, GUESSES = 10_000, 40
MEGABYTE = 1_000_000
TOO_MANY = b"421 gateway: too many"


class Attacker:
    """An attacker in site a who knows a listener's port."""

    def __init__(self, world, listener):
        self.world, self.listener = world, listener

    def connect(self, timeout=10):
        return talk.Client(self.world, "127.0.0.1", self.listener, timeout=timeout)

    def log_in(self):
        client = self.connect()
        client.log_in("anonymous", "x")
        return client

    def dial(self, timeout):
        """Opens a connection without reading its greeting, and returns the socket."""
        with self.world.entered("a"):
            return socket.create_connection(("127.0.0.1", self.listener), timeout)


def bounce(attacker):
    with attacker.log_in() as client:
        return [client.ask(line) for line in (
            "PORT 10,77,0,2,0,22", "PORT 127,0,0,1,0,22", "EPRT |1|10.77.0.1|4810|", "EPRT |2|::1|5000|",
            "LPRT 4,4,10,77,0,2,2,0,22", "NOOP")]


def smuggled_lines(attacker):
    with attacker.log_in() as client, attacker.connect() as other:
        return [client.ask("SIZE a\rDELE files/keep"), client.ask("CWD x\0DELE files/keep"),
                client.ask("STAT \xff\xff\xf4\xf2files").splitlines()[0],
                other.ask("AUTH TLS\r\nDELE files/keep")]


def endless_line(attacker):
    with attacker.log_in() as client:
        for _ in range(1600):
            client.control.sendall(b"A" * 65536)
        client.control.sendall(b" DELE files/keep\r\nNOOP\r\n")
        return [client.reply(), client.reply(), "100 MB sent"]


def many_connections(attacker):
    held, refused, told = [], 0, 0
    with contextlib.ExitStack() as stack:
        for _ in range(CONNECTIONS):
            try:
                held.append(stack.enter_context(attacker.dial(5)))
            except OSError:
                refused += 1
        time.sleep(3)
        for connection in held:
            connection.setblocking(False)
            with contextlib.suppress(OSError):
                told += TOO_MANY in connection.recv(200)
        time.sleep(4)
    return [f"{len(held)} opened, {refused} not, {told} told that these are too many"]


def flood_of_commands(attacker):
    with attacker.log_in() as client:
        client.control.settimeout(1)
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 50 * MEGABYTE:
                sent += client.control.send(b"NOOP\r\n" * 10_000)
        time.sleep(4)
        return [f"{sent / MEGABYTE:.1f} MB of NOOP taken while no reply is read"]


def slow_reader(attacker):
    with attacker.log_in() as client:
        client.ask("TYPE I", 200)
        address = client.passive("EPSV")
        with attacker.world.entered("a"), socket.socket() as data:
            data.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            data.connect(address)
            client.send("RETR files/large")
            time.sleep(6)
            return [client.reply()[:40], "nothing read for 6 s"]


def passwords_in_odd_places(attacker):
    with attacker.connect() as client:
        return [client.ask(line)[:40] for line in (
            SECRET, "USER anonymous", f"pass {SECRET}", f"PASS\t{SECRET}", f" PASS {SECRET}",
            f"ACCT {SECRET}", f"\xff\xf4PASS {SECRET}", f"SITE PSWD {SECRET} x", f"QUOTE PASS {SECRET}")]


def guessing(attacker):
    guesses, said = 0, ""
    for number in range(GUESSES):
        with contextlib.suppress(OSError, talk.Unexpected), attacker.connect() as client:
            said = client.greeting
            if client.ask("USER root").code == 331:
                said = client.ask(f"PASS guess{number}")
            guesses += 1
    return [f"{guesses} guesses, the last answered: {said[:70]}"]


def client_of_bad_server(attacker):
    """Sends USER, PASV and LIST to a malicious server. Returns the number and the end of the received bytes."""
    got, last, end = 0, b"", time.monotonic() + 6
    with attacker.dial(5) as client:
        client.settimeout(4)
        try:
            client.sendall(b"USER x\r\nPASV\r\nLIST\r\n")
            while time.monotonic() < end and (piece := client.recv(65536)):
                got += len(piece)
                last = (last + piece)[-90:]
        except OSError as error:
            last += f" ({error})".encode()
    return [f"{got} bytes came, the last: {last.decode(errors='replace')[-80:]!r}"]


# Attacks by a server.

def send_endless_line(client):
    for _ in range(1600):
        client.sendall(b"2" * 65536)


def send_endless_reply(client):
    client.sendall(b"220-hello\r\n")
    for _ in range(400_000):
        client.sendall(b" and so on, " + b"x" * 200 + b"\r\n")


def send_passive_replies(client):
    client.sendall(b"220-227 Entering Passive Mode (10,77,0,1,18,202)\r\n229 ok (|||4810|)\r\n220 ready\r\n")
    while client.recv(1000):
        client.sendall(b"227 Entering Passive Mode (10,77,0,1,18,202)\r\n150 go\r\n226 done\r\n")


def say_nothing(client):
    time.sleep(60)


SERVERS = {"endless line": send_endless_line, "endless reply": send_endless_reply,
           "PASV in banners": send_passive_replies, "silence": say_nothing}


class BadServer(threading.Thread):
    """A malicious server in site b, which runs the attack `trick` on each connection."""

    def __init__(self, world, address, port):
        super().__init__(daemon=True)
        with world.entered("b"):
            self.listener = socket.create_server((address, port))
        self.trick = say_nothing
        self.start()

    def run(self):
        while True:
            client, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client):
        with client, contextlib.suppress(OSError):
            self.trick(client)
