"""Third-party suites: CPython's `test_ftplib` and pyftpdlib's functional tests.

The module provides the sources of the suites, the pair of gateways, and the verdicts of the tests.

The servers of a suite keep their addresses, but listen on a fixed port. The clients of a suite connect to a listener
whose target is that port. Both gateways and the suite run in the same site, because the suites' timeouts are 1 to 5 s.
"""

import json
import os
import subprocess

from servers import install
from world import ROOT, Failure, Missing

SERVER = 2401
# Ports of the listeners, by mode. The second listener of a mode uses TLS with clients and with servers.
NEAR_PORTS = {"strict": (2402, 2404), "fast": (2403, 2405)}
UNPACKED = os.path.join(ROOT, "target", "suites")
# Version of Debian's python3-pyftpdlib. Its sources contain the tests within the package.
PYFTPDLIB = "1.5.7"
PYTHON = "/usr/bin/python3"
RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suite_runner.py")
# Maximum duration of a suite. If a test hangs, the suite ends after this time.
SUITE_TIMEOUT_S = 900


def unpack():
    """Downloads the sources of pyftpdlib with its tests, and installs the packages that both suites need.

    Returns the folder of the sources. Raises `Missing` if a download or an installation fails.
    """
    try:
        return _unpack()
    except (OSError, subprocess.CalledProcessError) as error:
        raise Missing(f"third-party suites: {error}") from error


def _unpack():
    modules = [PYTHON, "-W", "ignore", "-c", "import test.test_ftplib, psutil, OpenSSL"]
    if subprocess.run(modules, capture_output=True).returncode != 0:
        install("libpython3.11-testsuite", "python3-psutil", "python3-openssl")
    folder = os.path.join(UNPACKED, f"pyftpdlib-{PYFTPDLIB}")
    if not os.path.exists(folder):
        os.makedirs(UNPACKED, exist_ok=True)
        if subprocess.run([PYTHON, "-m", "pip", "--version"], capture_output=True).returncode != 0:
            install("python3-pip")
        subprocess.run([PYTHON, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                        ":all:", "--dest", UNPACKED, f"pyftpdlib=={PYFTPDLIB}"], check=True)
        subprocess.run(["tar", "-xf", f"{folder}.tar.gz", "-C", UNPACKED], check=True)
        # OpenSSL 3 refuses the suite's own key as too small, so a new key replaces it.
        key = os.path.join(folder, "pyftpdlib", "test", "keycert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
                        "-subj", "/CN=localhost", "-keyout", key, "-out", f"{key}.cert"], check=True,
                       capture_output=True)
        with open(key, "a") as both, open(f"{key}.cert") as certificate:
            both.write(certificate.read())
    return folder


def start_pair(world):
    """Starts two gateways in site b, and waits for their link.

    The near gateway has listeners for each mode and each address family, without and with TLS.
    """
    hosts = ["127.0.0.1", "[::1]"]
    # Python's ftplib does not resume TLS sessions.
    tls = '[ftp.tls]\nmode = "explicit"\nrequire_reuse = false\n[ftp.server_tls]\nmode = "explicit"\nverify = false\n'
    listeners = "".join(
        f'[[ftp]]\nlisten = "{host}:{port}"\ntarget = "{host}:{SERVER}"\nmode = "{mode}"\n{more}'
        for mode, ports in NEAR_PORTS.items() for port, more in zip(ports, ("", tls)) for host in hosts)
    allow = ", ".join(f'"{host}:{SERVER}"' for host in hosts)
    texts = {
        "a": f'[identity]\nkey_file = "a.key"\n[link]\nlisten = "127.0.0.1:4811"\n'
             f'[admin]\nlisten = "127.0.0.1:9811"\n'
             # The suites send more wrong passwords in a minute than users do.
             f'[limits]\nfailed_logins_per_minute_max = 1000\n'
             f'[[peer]]\nname = "site-b"\npublic_key = "{world.keys["b"]}"\n'
             f'endpoint = "127.0.0.1:4810"\n{listeners}',
        "b": f'[identity]\nkey_file = "b.key"\n[link]\nlisten = "127.0.0.1:4810"\n'
             f'[[peer]]\nname = "site-a"\npublic_key = "{world.keys["a"]}"\n[far]\nallow = [{allow}]\n',
    }
    for name in ("b", "a"):
        with open(world.path(f"{name}.toml"), "w") as config:
            config.write(texts[name])
        world.start(f"gateway-{name}", "b", world.longhaul, "gateway", "--config",
                    world.path(f"{name}.toml"))

    def is_connected():
        status = world.status("b", "--admin", "127.0.0.1:9811")
        return status is not None and status["peers"][0]["state"] == "up"
    world.wait(is_connected, "link up", 30)


def run_suite(world, suite, folder, port, login, names=()):
    """Runs a suite whose clients connect to `port`. Returns the verdict, the reason and the seconds of each test."""
    log = world.path("suite.log")
    with open(log, "w") as errors:
        done = world.run(PYTHON, "-W", "ignore", RUNNER, suite, folder, str(SERVER), str(port),
                         "login" if login else "-", *names, site="b", timeout=SUITE_TIMEOUT_S,
                         stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode != 0:
        with open(log) as errors:
            raise Failure(f"{suite}: {' / '.join(errors.read().splitlines()[-3:])}")
    return json.loads(done.stdout.splitlines()[-1])


def best_of_three(world, suite, folder, port, login):
    """Runs a suite, and repeats its failed tests up to two times. Returns the best verdict of each test.

    A test that passes in one of three runs counts as passed, because the suite's short timeouts cause such failures.
    """
    tests = run_suite(world, suite, folder, port, login)
    for _ in range(2):
        failed = [name for name, test in tests.items() if test[0] == "failed"]
        again = run_suite(world, suite, folder, port, login, failed) if failed else {}
        tests.update((name, test) for name, test in again.items() if test[0] == "passed")
    return tests
