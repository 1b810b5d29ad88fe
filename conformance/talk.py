"""A scripted FTP client, which sends exactly the commands of a script, one step at a time.

The sockets of the client belong to a site of the world, but the thread that uses them does not.
"""

import os
import re
import select
import socket
import ssl
import time

from world import Failure

TIMEOUT_S = 120


class Reply(str):
    """The text of a reply, with all its lines."""

    @property
    def code(self):
        return int(self[:3])


class Unexpected(Failure):
    """A reply, or the lack of a reply, after which the script cannot continue."""


class Client:
    """A control connection whose greeting has been read."""

    def __init__(self, world, host, port, site="a", timeout=TIMEOUT_S):
        self.world, self.site, self.host = world, site, host
        self.control = self._socket()
        self.control.settimeout(timeout)
        self.control.connect((host, port))
        self.control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.left = b""
        self.said, self.commands = [], 0
        self.greeting = self.reply()

    def _socket(self):
        with self.world.entered(self.site):
            return socket.socket()

    def close(self):
        self.control.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def line(self):
        while b"\n" not in self.left:
            more = self.control.recv(65536)
            if not more:
                raise Unexpected(f"the control connection ended after {self.said[-2:]}")
            self.left += more
        line, self.left = self.left.split(b"\n", 1)
        return line.rstrip(b"\r").decode("latin-1")

    def reply(self):
        lines = [self.line()]
        if lines[0][3:4] == "-":
            while not (lines[-1].startswith(lines[0][:3] + " ") and len(lines) > 1):
                lines.append(self.line())
        self.said.append("\n".join(lines))
        return Reply("\n".join(lines))

    def send(self, line):
        self.said.append(line)
        self.commands += 1
        self.control.sendall(line.encode("latin-1") + b"\r\n")

    def ask(self, line, *codes):
        """Sends a command and returns its reply. If there are `codes`, the reply must have one of them."""
        self.send(line)
        return self.expect(line, *codes)

    def expect(self, about, *codes):
        reply = self.reply()
        if codes and reply.code not in codes:
            raise Unexpected(f"{about}: {reply}")
        return reply

    def begin_tls(self):
        """Starts TLS with AUTH TLS, without a check of the certificate."""
        self.ask("AUTH TLS", 234)
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.control = context.wrap_socket(self.control)

    def log_in(self, user, password):
        if self.ask(f"USER {user}", 230, 331).code == 331:
            self.ask(f"PASS {password}", 230, 202)

    def passive(self, verb="PASV"):
        """Requests a passive data connection, and returns its address.

        The host is that of the control connection, and the port is from the reply.
        """
        reply = self.ask(verb, 227, 229)
        if reply.code == 229:
            return self.host, int(re.search(r"\(\|\|\|(\d+)\|\)", reply)[1])
        numbers = re.search(r"\d+,\d+,\d+,\d+,(\d+),(\d+)", reply)
        return self.host, int(numbers[1]) * 256 + int(numbers[2])

    def begin_connect(self, address):
        """Starts a data connection, and returns the socket without waiting for the connection."""
        data = self._socket()
        data.setblocking(False)
        data.connect_ex(address)
        return data

    def connect(self, address):
        data = self.begin_connect(address)
        connected(data)
        return data

    def listen(self, verb="PORT"):
        """Opens a listening socket, sends its address to the server, and returns the socket."""
        listener = self._socket()
        listener.bind((self.control.getsockname()[0], 0))
        listener.listen(1)
        listener.settimeout(TIMEOUT_S)
        host, port = listener.getsockname()
        if verb == "PORT":
            self.ask(f"PORT {host.replace('.', ',')},{port // 256},{port % 256}", 200)
        else:
            self.ask(f"EPRT |1|{host}|{port}|", 200)
        return listener

    # Transfers. A download returns the bytes, and an upload returns None.

    def download_eagerly(self, command, passive="PASV"):
        """Downloads like FileZilla, which sends the command before the data connection is up."""
        data = self.begin_connect(self.passive(passive))
        self.send(command)
        connected(data)
        return self.receive(data, command)

    def download(self, command, passive="PASV"):
        data = self.connect(self.passive(passive))
        self.send(command)
        return self.receive(data, command)

    def download_actively(self, command, verb="PORT"):
        with self.listen(verb) as listener:
            self.send(command)
            data, _ = listener.accept()
        data.settimeout(TIMEOUT_S)
        return self.receive(data, command)

    def upload_eagerly(self, command, content, passive="PASV"):
        """Uploads like FileZilla, which sends the bytes as soon as the data connection is up."""
        data = self.begin_connect(self.passive(passive))
        self.send(command)
        connected(data)
        self._send(data, content)
        self.expect(command, 125, 150)
        self.expect(command, 226, 250)

    def upload(self, command, content, passive="PASV"):
        """Uploads like curl and Python's ftplib, which send the bytes only after the preliminary reply."""
        data = self.connect(self.passive(passive))
        self.ask(command, 125, 150)
        self._send(data, content)
        self.expect(command, 226, 250)

    def upload_actively(self, command, content, verb="PORT"):
        with self.listen(verb) as listener:
            self.send(command)
            data, _ = listener.accept()
        data.settimeout(TIMEOUT_S)
        self.expect(command, 125, 150)
        self._send(data, content)
        self.expect(command, 226, 250)

    def receive(self, data, command):
        # If the server refuses the command, only the control connection becomes readable.
        readable = ready(select.POLLIN, data, self.control)
        with data:
            if data not in readable:
                self.expect(command, 125, 150)
            parts = list(iter(lambda: data.recv(1 << 20), b""))
        if data in readable:
            self.expect(command, 125, 150)
        self.expect(command, 226, 250)
        return b"".join(parts)

    @staticmethod
    def _send(data, content):
        with data:
            data.sendall(content)
            data.shutdown(socket.SHUT_WR)


def ready(event, *sockets):
    """Waits until a socket is ready or the timeout expires, and returns the ready sockets."""
    poll = select.poll()
    for each in sockets:
        poll.register(each, event)
    ready = {number for number, _ in poll.poll(TIMEOUT_S * 1000)}
    return [each for each in sockets if each.fileno() in ready]


def connected(data):
    """Waits until a data connection is up. Raises `Unexpected` if the connection fails."""
    writable = ready(select.POLLOUT, data)
    error = data.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if not writable or error != 0:
        raise Unexpected(f"no data connection: {os.strerror(error) if error else 'timed out'}")
    data.settimeout(TIMEOUT_S)


def timed(call, *arguments):
    """Calls a function, and returns the seconds that the call took."""
    begun = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begun
