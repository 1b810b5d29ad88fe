"""An FTP server that imitates FileZilla Server, which is not available on Debian.

FileZilla Server differs from the servers in Debian, and this server differs from them in the same ways:

- The preliminary reply is `125` if the data connection already exists.
- The server refuses `PROT C` on a control connection with TLS.
- The peer of a data connection must have the same address as the peer of the control connection.
- A data connection with TLS must resume the TLS session.

No test compares the texts of the replies.

Usage: filezilla_server.py ADDRESS PORT HOME CERTIFICATE. An empty CERTIFICATE disables TLS.
"""

import os
import socket
import ssl
import sys
import threading
import time

ACCEPT_S = 20


class Refused(Exception):
    """A reply that refuses a command."""


class Session(threading.Thread):
    def __init__(self, control, home, tls):
        super().__init__(daemon=True)
        self.control, self.home, self.tls = control, home, tls
        self.peer, self.address = control.getpeername()[0], control.getsockname()[0]
        self.user, self.logged_in, self.protected = None, False, False
        self.folder, self.rest, self.from_name = "/", 0, None
        self.listener, self.dial, self.data = None, None, None
        self.lines = control.makefile("rb")

    def say(self, text):
        self.control.sendall(f"{text}\r\n".encode())

    def run(self):
        try:
            self.say("220-FileZilla Server 1.9\r\n220 Please visit elsewhere")
            while line := self.lines.readline(8192):
                verb, _, argument = line.decode("utf-8", "replace").strip().partition(" ")
                if verb.upper() == "QUIT":
                    return self.say("221 Goodbye.")
                self.one(verb.upper(), argument)
        except (OSError, ValueError) as error:
            print("session:", error, flush=True)
        finally:
            self.drop_data()
            self.control.close()

    def one(self, verb, argument):
        method = getattr(self, f"on_{verb.lower()}", None)
        free = ("USER", "PASS", "AUTH", "FEAT", "SYST", "PBSZ", "PROT", "OPTS", "NOOP", "CLNT")
        try:
            if method is None:
                raise Refused("500 Syntax error, command unrecognized.")
            if not self.logged_in and verb not in free:
                raise Refused("530 Please log in with USER and PASS first.")
            method(argument)
        except Refused as refused:
            self.say(refused)
        except FileNotFoundError:
            self.say("550 Couldn't open the file or directory")
        if verb not in ("REST", "PASV", "EPSV", "PORT", "EPRT", "TYPE"):
            self.rest = 0

    # Log-in.

    def on_auth(self, argument):
        if self.tls is None or argument.upper() not in ("TLS", "SSL"):
            raise Refused("504 Auth type not supported")
        self.say("234 Using authentication type TLS.")
        self.control = self.tls.wrap_socket(self.control, server_side=True)
        self.lines = self.control.makefile("rb")

    def on_user(self, argument):
        if self.tls is not None and not isinstance(self.control, ssl.SSLSocket):
            raise Refused("503 Use AUTH first.")
        self.user, self.logged_in = argument, False
        self.say("331 Please, specify the password.")

    def on_pass(self, argument):
        if (self.user, argument) != ("joe", "secret"):
            raise Refused("530 Login incorrect.")
        self.logged_in = True
        self.say("230 Login successful.")

    def on_pbsz(self, argument):
        self.say("200 PBSZ=0")

    def on_prot(self, argument):
        if self.tls is None:
            raise Refused("503 No TLS on this control connection.")
        if argument.upper() != "P":
            raise Refused("534 Protection level C is not accepted with an encrypted control connection")
        self.protected = True
        self.say("200 Protection level set to P")

    # Commands without a data connection.

    def on_syst(self, argument):
        self.say("215 UNIX emulated by FileZilla.")

    def on_feat(self, argument):
        features = ["MDTM", "REST STREAM", "SIZE", "MLST type*;size*;modify*;perm*;", "MLSD",
                    *(["AUTH SSL", "AUTH TLS", "PROT", "PBSZ"] if self.tls else []), "UTF8", "TVFS",
                    "EPSV", "EPRT", "MFMT"]
        self.say("211-Features:\r\n" + "".join(f" {name}\r\n" for name in features) + "211 End")

    def on_noop(self, argument):
        self.say("200 Noop ok.")

    def on_opts(self, argument):
        self.say("202 UTF8 mode is always enabled. No need to send this command")

    def on_clnt(self, argument):
        self.say("200 Don't care")

    def on_type(self, argument):
        self.say(f"200 Type set to {argument}")

    def on_pwd(self, argument):
        self.say(f'257 "{self.folder}" is current directory.')

    def on_cwd(self, argument):
        folder = os.path.normpath(os.path.join(self.folder, argument))
        if not os.path.isdir(self.local(folder)):
            raise Refused("550 Couldn't open the directory")
        self.folder = folder
        self.say("250 CWD command successful")

    def on_cdup(self, argument):
        self.on_cwd("..")

    def on_rest(self, argument):
        self.rest = int(argument)
        self.say(f"350 Restarting at {self.rest}.")

    def on_size(self, argument):
        self.say(f"213 {os.path.getsize(self.local(argument))}")

    def on_mdtm(self, argument):
        at = time.gmtime(os.path.getmtime(self.local(argument)))
        self.say("213 " + time.strftime("%Y%m%d%H%M%S", at))

    def on_rnfr(self, argument):
        self.from_name = self.local(argument)
        if not os.path.exists(self.from_name):
            raise Refused("550 file/directory not found")
        self.say("350 File exists, ready for destination name.")

    def on_rnto(self, argument):
        if self.from_name is None:
            raise Refused("503 Use RNFR first.")
        os.rename(self.from_name, self.local(argument))
        self.from_name = None
        self.say("250 File or directory renamed successfully.")

    def on_dele(self, argument):
        os.remove(self.local(argument))
        self.say("250 File deleted successfully.")

    def on_abor(self, argument):
        self.drop_data()
        self.say("226 ABOR command successful")

    def local(self, name):
        inside = os.path.normpath(os.path.join(self.folder, name)).lstrip("/")
        return os.path.join(self.home, inside)

    # Data connections.

    def drop_data(self):
        for at in ("listener", "data"):
            if getattr(self, at) is not None:
                getattr(self, at).close()
                setattr(self, at, None)
        self.dial = None

    def listen(self):
        self.drop_data()
        self.listener = socket.create_server((self.address, 0), backlog=1)
        self.listener.settimeout(ACCEPT_S)
        return self.listener.getsockname()[1]

    def on_pasv(self, argument):
        port = self.listen()
        numbers = ",".join([*self.address.split("."), str(port >> 8), str(port & 255)])
        self.say(f"227 Entering Passive Mode ({numbers})")

    def on_epsv(self, argument):
        self.say(f"229 Entering Extended Passive Mode (|||{self.listen()}|)")

    def on_port(self, argument):
        numbers = argument.split(",")
        self.active(".".join(numbers[:4]), int(numbers[4]) * 256 + int(numbers[5]))

    def on_eprt(self, argument):
        _, _, host, port, _ = argument.split(argument[0])
        self.active(host, int(port))

    def active(self, host, port):
        self.drop_data()
        if host != self.peer:
            raise Refused("501 Rejected: the address is not that of the control connection")
        self.dial = (host, port)
        self.say("200 PORT command successful.")

    def open_data(self):
        """Announces the transfer, and returns its data connection."""
        if self.listener is None and self.dial is None:
            raise Refused("503 Use PORT or PASV first.")
        if self.dial is not None:
            self.say("150 Starting data transfer.")
            data = socket.create_connection(self.dial, ACCEPT_S, (self.address, 0))
        else:
            data, (host, _) = self.listener.accept()
            if host != self.peer:
                data.close()
                raise Refused("425 Peer of the data connection is not that of the control connection")
            self.say("125 Data connection already open; transfer starting.")
        self.drop_data()
        data.settimeout(60)
        if self.protected:
            data = self.tls.wrap_socket(data, server_side=True, suppress_ragged_eofs=False)
            if not data.session_reused:
                data.close()
                raise Refused("425 Unable to build data connection: TLS session of data connection not "
                              "resumed.")
        self.data = data
        return data

    def finish(self):
        if isinstance(self.data, ssl.SSLSocket):
            self.data = self.data.unwrap()
        self.data.shutdown(socket.SHUT_WR)
        self.data.close()
        self.data = None
        self.say("226 Operation successful")

    def send(self, pieces):
        data = self.open_data()
        try:
            for piece in pieces:
                data.sendall(piece)
            self.finish()
        except OSError as error:
            self.drop_data()
            raise Refused(f"425 Error while transferring data: {error}") from error

    def receive(self, name, mode):
        with open(self.local(name), mode) as file:
            if self.rest:
                file.seek(self.rest)
                file.truncate()
            data = self.open_data()
            try:
                while piece := data.recv(65536):
                    file.write(piece)
                file.flush()
                self.finish()
            except OSError as error:
                self.drop_data()
                raise Refused(f"425 Error while transferring data: {error}") from error

    def on_retr(self, argument):
        with open(self.local(argument), "rb") as file:
            file.seek(self.rest)
            self.send(iter(lambda: file.read(65536), b""))

    def on_stor(self, argument):
        self.receive(argument, "r+b" if self.rest else "wb")

    def on_appe(self, argument):
        self.receive(argument, "ab")

    def listing(self, line):
        return ["".join(f"{line(name)}\r\n" for name in sorted(os.listdir(self.local("."))))
                .encode()]

    def on_nlst(self, argument):
        self.send(self.listing(lambda name: name))

    def on_list(self, argument):
        def line(name):
            path = self.local(name)
            kind = "d" if os.path.isdir(path) else "-"
            at = time.strftime("%b %d %H:%M", time.gmtime(os.path.getmtime(path)))
            return f"{kind}rw-rw-rw- 1 ftp ftp {os.path.getsize(path):15} {at} {name}"
        self.send(self.listing(line))

    def on_mlsd(self, argument):
        def line(name):
            path = self.local(name)
            kind = "dir" if os.path.isdir(path) else "file"
            at = time.strftime("%Y%m%d%H%M%S", time.gmtime(os.path.getmtime(path)))
            return f"type={kind};size={os.path.getsize(path)};modify={at};perm=awr; {name}"
        self.send(self.listing(line))


def main(address, port, home, certificate):
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    with socket.create_server((address, int(port)), backlog=100) as listener:
        while True:
            control, _ = listener.accept()
            control.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            Session(control, home, tls).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
