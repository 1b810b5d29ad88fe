"""TLS between client and server that the gateways pass through without decryption.

The tests upload and download with explicit and implicit TLS. The server is a vsftpd that requires the reuse of TLS
sessions on data connections. The client checks the server's own certificate.
"""

import os
import shutil
import subprocess

import pytest

import servers
from files import assert_same, make_file
from world import ADDRESS_B

SIZE = 20_000_000
# Port of the listener, and control port and data ports of the server, by kind of TLS.
KINDS = {"explicit": (2140, 2211, (50000, 50019)), "implicit": (2141, 990, (50020, 50039))}
SCHEMES = {"explicit": "ftp", "implicit": "ftps"}

pytestmark = pytest.mark.needs("curl", "lftp")


@pytest.fixture(scope="module")
def server(world):
    """Starts the servers, which share a folder, and a pair with a listener for each server.

    Returns one of the servers.
    """
    pem, listeners = servers.certificate(world), ""
    for kind, (listener, port, (low, high)) in KINDS.items():
        server = servers.start_vsftpd(
            world, f"vsftpd-{kind}", port, pem=pem, pasv_min_port=low, pasv_max_port=high,
            implicit_ssl="YES" if kind == "implicit" else "NO")
        world.allowed += [server.place(), f"{ADDRESS_B}:{low}-{high}"]
        listeners += (f'[[ftp]]\nlisten = "127.0.0.1:{listener}"\ntarget = "{server.place()}"\n'
                  f'tls = {{ mode = "pass-through" }}\npassive_ports = "{low}-{high}"\n')
    world.pair(listeners)
    return server


@pytest.fixture
def local(world):
    make_file(world.path("local"), SIZE)
    return world.path("local")


@pytest.fixture(autouse=True)
def nothing_is_left(world, server):
    yield
    server.empty()
    assert not world.status("a")["transfers"], "nothing is left open"


@pytest.mark.parametrize("kind", KINDS)
def test_curl_meets_the_servers_own_certificate(world, server, local, kind):
    listener, back = KINDS[kind][0], world.path("back")
    # curl checks the name in the certificate, so only the server can have answered.
    curl = ["curl", "-sS", "--max-time", "120", "--ssl-reqd", "--cacert",
            f"{servers.certificate(world)}.crt", "--resolve", f"server:{listener}:127.0.0.1",
            "--user", "anonymous:x"]
    url = f"{SCHEMES[kind]}://server:{listener}/files/up"
    world.run(*curl, "-T", local, url, check=True)
    assert_same(local, server.file("up"))
    world.run(*curl, "-o", back, url, check=True)
    assert_same(local, back)


@pytest.mark.parametrize("kind", KINDS)
def test_lftp_lists_downloads_and_deletes(world, server, local, kind):
    listener, back = KINDS[kind][0], world.path(f"back-{kind}")
    shutil.copy(local, server.file("up"))
    shutil.chown(server.file("up"), "ftp")
    script = ("set ftp:ssl-force yes; set ftp:ssl-protect-data yes; set ftp:prefer-epsv yes; "
              "set ssl:check-hostname no; set cmd:fail-exit yes; "
              f"set ssl:ca-file {servers.certificate(world)}.crt; open -u anonymous,x "
              f"{SCHEMES[kind]}://127.0.0.1:{listener}; cd files; cls; "
              f"pget -n 1 up -o {back}; rm up")
    done = world.run("lftp", "-c", script, check=True, stdout=subprocess.PIPE, text=True)
    assert "up" in done.stdout.split()
    assert_same(local, back)
    assert os.listdir(server.file()) == []
