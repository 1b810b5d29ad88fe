"""A client with Python's ftplib that moves a file over active data connections with TLS, at a limited rate.

Usage: paced.py put|get HERE PORT NAME BYTES_PER_S.

Other clients are not suitable. lftp keeps a processor busy while it limits its rate. curl confuses its listening socket
with another socket if it uses TLS.
"""

import ftplib
import ssl
import sys
import time

BLOCK = 10_000


class Paced:
    """A file with a limited rate of reads and writes."""

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
