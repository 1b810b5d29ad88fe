"""ABOR at forty moments of a download and of an upload, from before the reply 150 to after the reply 226.

The client sends ABOR in the forms of Python's ftplib and of lftp. The reply to each ABOR must arrive within two round
trips and one second, and the session must continue to work.

In every second attempt the client is deaf: it does not use the data connection until the reply has arrived, as
`ftplib.FTP.abort` does.
"""

import socket
import threading
import time

import pytest

import servers
import talk
from world import ADDRESS_B, Path

PORT, RTT_S = 2150, 0.2
PATH = Path("100 Mbit/s", "200ms", "0%")
BYTES = 10_000_000
MOMENTS = 40
# The transfer takes 0.8 s plus several round trips.
LAST_S = 2.0
BOUND_S = 2 * RTT_S + 1
INTERRUPT, SYNCH = b"\xff\xf4\xff", b"\xf2"


@pytest.fixture(scope="module", params=["vsftpd", "pyftpdlib"])
def server(world, request):
    server = servers.start_all(world, names=[request.param])[request.param]
    world.allowed = [server.place()]
    return server


def plain(client):
    client.send("ABOR")


def urgent(client):
    """Sends ABOR as lftp does: Telnet's interrupt, the data mark as urgent data, and the command."""
    client.control.sendall(INTERRUPT)
    client.control.send(SYNCH, socket.MSG_OOB)
    client.send("ABOR")


def shovel(data, is_upload, stopped):
    """Moves data until `stopped` is set or the data connection ends."""
    data.settimeout(0.05)
    left = BYTES
    while not stopped.is_set():
        try:
            if is_upload and left:
                left -= data.send(bytes(min(left, 65536)))
            elif is_upload:
                data.shutdown(socket.SHUT_WR)
                return
            elif not data.recv(65536):
                return
        except TimeoutError:
            continue
        except OSError:
            return


def aborted_at(client, moment_s, is_upload, form, is_deaf):
    """Starts a transfer, aborts it after `moment_s` seconds, and returns the seconds from ABOR to its reply."""
    data = client.connect(client.passive())
    client.send("STOR aborted" if is_upload else "RETR large")
    stopped = threading.Event()
    mover = threading.Thread(target=shovel, args=(data, is_upload, stopped))
    mover.start()
    time.sleep(moment_s)
    if is_deaf:
        stopped.set()
        mover.join()
    begun = time.monotonic()
    form(client)
    # The transfer's preliminary and final replies arrive first, then the reply to ABOR.
    replies = [client.reply()]
    while replies[-1].code < 200:
        replies.append(client.reply())
    if replies[-1].code in (225, 226) and "bort" in replies[-1]:
        pass
    else:
        replies.append(client.reply())
    took = time.monotonic() - begun
    stopped.set()
    mover.join()
    data.close()
    assert replies[-1].code in (225, 226), replies
    client.ask("NOOP", 200)
    return took


@pytest.mark.parametrize("mode", ["fast", "strict"])
@pytest.mark.parametrize("form", [plain, urgent], ids=["ftplib", "lftp"])
@pytest.mark.parametrize("is_upload", [False, True], ids=["download", "upload"])
def test_abor_is_answered_at_every_moment(world, server, is_upload, form, mode):
    world.pair(f'[[ftp]]\nlisten = "127.0.0.1:{PORT}"\ntarget = "{ADDRESS_B}:{server.port}"\nmode = "{mode}"\n')
    with open(server.file("large"), "wb") as file:
        file.write(bytes(BYTES))
    worst = 0
    with talk.Client(world, "127.0.0.1", PORT, timeout=30) as client:
        client.log_in(server.user, server.password)
        client.ask(f"CWD {server.folder}", 250)
        client.ask("TYPE I", 200)
        for number in range(MOMENTS):
            moment_s = LAST_S * number / MOMENTS
            took = aborted_at(client, moment_s, is_upload, form, is_deaf=number % 2 == 0)
            worst = max(worst, took)
            assert took <= BOUND_S, f"ABOR after {moment_s:.2f} s got its reply after {took:.2f} s"
        names = client.download("NLST")
        assert b"large" in names
    print(f"slowest answer {worst:.2f} s of {BOUND_S:.2f} s")
    world.stop_pair()
