"""A pair of gateways with made-up transfers, for tests of the dashboard."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import urllib.request

TOKEN = "0123456789abcdef" * 4
GUARDED = 'listen = "127.0.0.1:0"\ntoken_file = "admin.token"'
# Header of a request that may read names and make changes.
OWNER = {"Authorization": f"Bearer {TOKEN}"}


class Gateways:
    """A pair of gateways whose near gateway serves the dashboard."""

    def __init__(self, program, admin=None, host="127.0.0.1", prepare=lambda folder: None):
        self.folder = tempfile.mkdtemp(prefix="lhdash")
        prepare(self.folder)
        self.token_file = os.path.join(self.folder, "admin.token")
        with open(os.open(self.token_file, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
            file.write(TOKEN + "\n")
        command = [program, self.folder, *([admin] if admin else [])]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])
        self.url = f"http://{host}:{self.port}"
        if "[admin.https]" in (admin or ""):
            self.url = f"https://{host}:{self.process.stdout.readline().rsplit(':', 1)[1].strip()}"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()
        shutil.rmtree(self.folder)

    def get(self, path, **headers):
        request = urllib.request.Request(self.url + path, headers=headers)
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def reload(self):
        """Reloads the configuration of the near gateway through its admin socket."""
        connection = http.client.HTTPConnection("localhost", timeout=30)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(os.path.join(self.folder, "a.key.admin.sock"))
        connection.request("POST", "/reload", b"")
        assert connection.getresponse().status == 200
        connection.close()

    def post(self, path, body, **headers):
        request = urllib.request.Request(self.url + path, json.dumps(body).encode(), {
            "Content-Type": "application/json", **headers})
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status

    def fill(self, running=0, finished=0, seconds=600):
        self.post("/dashboard/testing", {"open": running, "seconds": seconds, "finished": finished},
                  **OWNER)

    def status(self):
        return self.get("/status.json", **OWNER)

    def memory_kib(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
