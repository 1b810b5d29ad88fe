"""An SSH server with the library asyncssh. Its SFTP requests fail as a file of faults defines.

The server supports passwords, keyboard-interactive, keys, commands and SFTP.

Usage: asyncssh_server.py SETTINGS, a JSON file.

The server reads the file of faults at each OPEN and each SETSTAT. The file is a JSON object with these keys:

- `fail_write_at`: The WRITE that covers this offset fails.
- `fail_writes_from`: Each WRITE that ends beyond this offset fails.
- `fail_reads_from`: Each READ that ends beyond this offset fails.
- `fail_close`: The CLOSE of an uploaded file fails.
- `fail_fsetstat`: FSETSTAT and SETSTAT fail.
- `write_delay_s`: Each WRITE waits for this number of seconds.
"""

import asyncio
import json
import os
import subprocess
import sys

import asyncssh
import asyncssh.packet

SETTINGS = {}
QUESTIONS = [("Password: ", False), ("Code: ", True)]


class Server(asyncssh.SSHServer):
    """Log-in by the methods in the settings. The log contains one line for each password."""

    def connection_made(self, connection):
        self.connection = connection

    def begin_auth(self, username):
        keys = SETTINGS.get("authorized_keys")
        if keys and os.path.exists(keys):
            self.connection.set_authorized_keys(keys)
        if SETTINGS.get("banner"):
            self.connection.send_auth_banner(SETTINGS["banner"])
        return True

    def password_auth_supported(self):
        return "password" in SETTINGS["ways"]

    def validate_password(self, username, password):
        print("a password has come", flush=True)
        return (username, password) == (SETTINGS["user"], SETTINGS["password"])

    def kbdint_auth_supported(self):
        return "keyboard-interactive" in SETTINGS["ways"]

    def get_kbdint_challenge(self, username, lang, submethods):
        return "Two questions", "Answer both.", "", QUESTIONS

    def validate_kbdint_response(self, username, responses):
        return username == SETTINGS["user"] and list(responses) == [SETTINGS["password"], SETTINGS["code"]]

    def public_key_auth_supported(self):
        return "publickey" in SETTINGS["ways"]


class Files(asyncssh.SFTPServer):
    """SFTP with the files of the account that runs the server, and with the configured faults."""

    faults = {}

    def open(self, path, pflags, attrs):
        self.faults = faults()
        return super().open(path, pflags, attrs)

    async def write(self, file_obj, offset, data):
        if self.faults.get("write_delay_s"):
            await asyncio.sleep(self.faults["write_delay_s"])
        at = self.faults.get("fail_write_at")
        start = self.faults.get("fail_writes_from")
        end = offset + len(data)
        if at is not None and offset <= at < end or start is not None and end > start:
            raise asyncssh.SFTPFailure("injected: no space left on device")
        return super().write(file_obj, offset, data)

    def read(self, file_obj, offset, size):
        start = self.faults.get("fail_reads_from")
        if start is not None and offset + size > start:
            raise asyncssh.SFTPFailure("injected: read error")
        return super().read(file_obj, offset, size)

    def exit(self):
        # scp reports a failure if the subsystem ends without an exit status.
        self.channel.exit(0)

    def close(self, file_obj):
        is_upload = file_obj.writable()
        super().close(file_obj)
        if is_upload and self.faults.get("fail_close"):
            raise asyncssh.SFTPFailure("injected: quota exceeded at close")

    def fsetstat(self, file_obj, attrs):
        if self.faults.get("fail_fsetstat"):
            raise asyncssh.SFTPPermissionDenied("injected: attributes cannot be set")
        return super().fsetstat(file_obj, attrs)

    def setstat(self, path, attrs, **more):
        if faults().get("fail_fsetstat"):
            raise asyncssh.SFTPPermissionDenied("injected: attributes cannot be set")
        return super().setstat(path, attrs, **more)


def faults():
    try:
        with open(SETTINGS["faults"]) as file:
            return json.load(file)
    except FileNotFoundError:
        return {}


async def execute(process):
    """Runs the client's command, or a shell if the client sends no command."""
    command = process.command or "exec /bin/sh"
    child = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, cwd=SETTINGS["home"],
                             env={**os.environ, **process.env, "HOME": SETTINGS["home"]})
    try:
        await process.redirect(stdin=child.stdin, stdout=child.stdout, stderr=child.stderr)
        await process.stdout.drain()
        process.exit(await asyncio.to_thread(child.wait))
    finally:
        if child.poll() is None:
            child.kill()


async def serve():
    await asyncssh.create_server(
        Server, SETTINGS["address"], SETTINGS["port"], server_host_keys=[SETTINGS["host_key"]],
        sftp_factory=Files, process_factory=execute, encoding=None, allow_scp=False, login_timeout=60,
        compression_algs=None)
    await asyncio.Event().wait()


def main():
    with open(sys.argv[1]) as file:
        SETTINGS.update(json.load(file))
    if SETTINGS.get("lenient"):
        # The SFTP library of rclone sends more bytes in OPEN than asyncssh accepts.
        asyncssh.packet.SSHPacket.check_end = lambda packet: None
    os.chdir(SETTINGS["home"])
    asyncio.run(serve())


main()
