"""Moves a file by Python's ftplib, actively and over TLS, at a pace: `paced.py put|get HERE PORT NAME BYTES_PER_S`.

lftp keeps a processor busy while it keeps to a rate, and curl confuses its listening socket with another one over TLS.
"""

import ftplib
import ssl
import sys
import time

BLOCK = 10_000


class Paced:
    """A file that is read or written at a pace."""

    def __init__(self, file, bytes_per_s):
        self.file, self.block_s = file, BLOCK / bytes_per_s

    def read(self, size):
        time.sleep(self.block_s)
        return self.file.read(size)

    def write(self, block):
        time.sleep(self.block_s * len(block) / BLOCK)
        self.file.write(block)


def main():
    verb, here, port, name, bytes_per_s = sys.argv[1:]
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    client = ftplib.FTP_TLS(context=context, timeout=60)
    client.connect("127.0.0.1", int(port))
    client.login("anonymous", "x")
    client.prot_p()
    client.set_pasv(False)
    with open(here, "rb" if verb == "put" else "wb") as file:
        paced = Paced(file, int(bytes_per_s))
        if verb == "put":
            client.storbinary(f"STOR {name}", paced, BLOCK)
        else:
            client.retrbinary(f"RETR {name}", paced.write, BLOCK)
    client.quit()


main()
