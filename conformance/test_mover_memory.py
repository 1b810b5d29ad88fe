"""Memory of `longhaul copy` from a directory of a million files, and its progress during the listing.

A scripted server lists the first half of a million small files. It lists the second half after the mover has requested
a file. The test ends the copy after the end of the listing, and prints figures.
"""

import os
import signal
import socket
import socketserver
import subprocess
import threading
import time

FILES, FILES_QUICK = 1_000_000, 100_000
BASE_BYTES, FILE_BYTES = 64 * 1024 * 1024, 1024
CONTENT = b"ten bytes\n"


class Server(socketserver.ThreadingTCPServer):
    """An FTP server with one directory, `many`."""

    daemon_threads, allow_reuse_address, request_queue_size = True, True, 64

    def __init__(self, count):
        super().__init__(("127.0.0.1", 0), Session)
        self.count = count
        self.first_file, self.listed = threading.Event(), threading.Event()
        self.files_before_listed = 0

    def file_asked_for(self):
        self.first_file.set()
        if not self.listed.is_set():
            self.files_before_listed += 1

    def listing(self):
        fact = "type=file;size=10;modify=20250101000000; file {:07}\r\n"
        half = self.count // 2
        for begin in range(0, self.count, 1000):
            if begin == half:
                self.first_file.wait(20)
            yield "".join(fact.format(number) for number in range(begin, begin + 1000)).encode()


class Session(socketserver.StreamRequestHandler):
    """One control connection."""

    def say(self, text):
        self.wfile.write(text.encode() + b"\r\n")

    def handle(self):
        listener = None
        self.say("220 Ready")
        for line in self.rfile:
            verb, _, argument = line.decode().strip().partition(" ")
            match verb.upper():
                case "USER":
                    self.say("331 Password")
                case "PASS":
                    self.say("230 Welcome")
                case "FEAT":
                    self.say("211-Features\r\n MLST type*;size*;modify*;\r\n SIZE\r\n MDTM\r\n UTF8\r\n REST STREAM\r\n211 End")
                case "PWD":
                    self.say('257 "/"')
                case "TYPE" | "OPTS" | "NOOP" | "CWD" | "CDUP" if not self.is_file(argument):
                    self.say("250 Done" if verb.startswith("C") else "200 Done")
                case "SIZE" if self.is_file(argument):
                    self.say("213 10")
                case "MDTM" if self.is_file(argument):
                    self.say("213 20250101000000")
                case "EPSV":
                    listener = socket.create_server(("127.0.0.1", 0), backlog=1)
                    self.say(f"229 Extended (|||{listener.getsockname()[1]}|)")
                case "MLSD" if listener:
                    self.send(listener, self.server.listing())
                    self.server.listed.set()
                    listener = None
                case "RETR" if listener and self.is_file(argument):
                    self.server.file_asked_for()
                    self.send(listener, [CONTENT])
                    listener = None
                case "QUIT":
                    return self.say("221 Goodbye")
                case _:
                    self.say("550 No such thing")

    @staticmethod
    def is_file(path):
        return "file " in path

    def send(self, listener, chunks):
        with listener:
            self.say("150 Here it comes")
            listener.settimeout(20)
            data, _ = listener.accept()
            with data:
                for chunk in chunks:
                    data.sendall(chunk)
        self.say("226 That was it")


def resident_bytes(process):
    """Returns the peak resident memory of the process."""
    with open(f"/proc/{process.pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM"))


def test_a_million_files_take_a_kilobyte_each(options, tmp_path):
    count = FILES_QUICK if options.quick else FILES
    server = Server(count)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"ftp://me@127.0.0.1:{server.server_address[1]}/many"
    begun = time.monotonic()
    copy = subprocess.Popen([options.longhaul, "copy", url, str(tmp_path / "many"), "--json"], stdout=subprocess.PIPE,
                            text=True, env={**os.environ, "LONGHAUL_PASSWORD": "x", "HOME": str(tmp_path)})
    printed = []
    reader = threading.Thread(target=lambda: printed.extend(copy.stdout))
    reader.start()
    try:
        assert server.first_file.wait(60), "the mover requested no file after half of the listing"
        assert server.listed.wait(300), "the listing did not end"
        listed_s = time.monotonic() - begun
        # After this pause the mover has read all lines, and the copy continues.
        time.sleep(5)
        most = resident_bytes(copy)
        assert copy.poll() is None
    finally:
        copy.send_signal(signal.SIGINT)
        copy.wait(60)
        reader.join()
        server.shutdown()
    copied = sum('"result":"copied"' in line for line in printed)
    bound = BASE_BYTES + count * FILE_BYTES
    print(f"\n{count} files listed in {listed_s:.1f} s; {server.files_before_listed} asked for before; {copied} copied; "
          f"{most / 1e6:.0f} MB of memory, {most / count:.0f} bytes a file (bound {bound / 1e6:.0f} MB)")
    assert server.files_before_listed > 0
    assert copied > 0
    assert most <= bound
