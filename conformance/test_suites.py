#!/usr/bin/env python3
"""Outside suites through a pair of gateways: CPython's `test_ftplib` and pyftpdlib's functional tests.

Each suite runs directly, through a pair in strict mode, and in fast mode. Its servers keep their
addresses and get a fixed port, its clients use a front door that leads there. The gateways stand beside
the suite, since it waits 1 to 5 s at most. A test that passes directly and not through the pair must be
known, with its reason. `--write` puts the table into docs/results/suites.md.
"""

import json
import os
import subprocess
import sys

import pages
from world import ROOT, Failure, check, main

SERVER = 2401
# Front doors by mode; the second has TLS with clients and with servers.
DOORS = {"strict": (2402, 2404), "fast": (2403, 2405)}
UNPACKED = os.path.join(ROOT, "target", "suites")
# That of Debian's python3-pyftpdlib, the last with its tests beside the package.
PYFTPDLIB = "1.5.7"
PYTHON = "/usr/bin/python3"
RUNNER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "suite_runner.py")
# A test that hangs ends its suite.
SUITE_TIMEOUT_S = 900

# Suite, name, whether clients log in first, whether with TLS.
RUNS = [
    ("test_ftplib", "CPython 3.11 `test_ftplib`", False, False),
    ("test_ftplib", "`test_ftplib`, logged in first", True, False),
    ("test_ftplib, TLS", "`test_ftplib`, its TLS classes", False, True),
    ("test_functional", f"pyftpdlib {PYFTPDLIB} `test_functional`", False, False),
    ("test_functional_ssl", f"pyftpdlib {PYFTPDLIB} `test_functional_ssl`", False, True),
]

# Why a test that passes directly does not pass through a pair: what any pair like this does.
OWN_PORTS = "data connections end at the gateway: its address and its ports are in the replies"
OWN_WORDS = "the gateway refuses by itself, with the same code and its own words"
OWN_TLS = "TLS with the client is the gateway's, and so is what it says about it"
SERVER_TLS = "the gateway speaks TLS with this server whatever the client does, so the server has no objection"
PASSIVE_SERVER = "towards servers the gateway is passive, whatever the client is"
CONNECTS_LATE = "the gateway connects to the client with the transfer, as most servers do, and not at PORT"
CONNECTS_EARLY = "the gateway has connected to the server at once, so the server does not wait in vain"
ONE_AT_A_TIME = "the transfer comes to its end before the server gets the next command, and the test does not " \
    "read on meanwhile"
CROSSING = "a command that crosses the server's end is answered 421, where directly the connection just ends"
KNOWN = {
    "test_makepasv_issue43285_security_disabled": OWN_PORTS,
    "test_masquerade_address": OWN_PORTS,
    "test_masquerade_address_map": OWN_PORTS,
    "test_passive_ports": OWN_PORTS,
    "test_eprt": OWN_WORDS,
    "test_eprt_v6": OWN_WORDS,
    "TestIPv4Environment.test_eprt_v4": OWN_WORDS,
    "TestIPv4EnvironmentTLSMixin.test_eprt_v4": OWN_WORDS,
    "test_port_v4": OWN_WORDS,
    "test_arg_cmds": OWN_WORDS,
    "test_no_arg_cmds": OWN_WORDS,
    "test_auth_cmds": "a data port that cannot be read is refused by the gateway, whether logged in or not",
    "test_max_auth": CROSSING,
    "test_max_login_attempts": CROSSING,
    "test_permit_privileged_ports": "data connections to ports below 1024 are refused",
    "test_permit_foreign_address_false": PASSIVE_SERVER,
    "test_makeport": PASSIVE_SERVER,
    "TestIPv6MixedEnvironment.test_eprt_v4": CONNECTS_LATE,
    "test_active_conn_error": CONNECTS_LATE,
    "test_port_race_condition": CONNECTS_LATE,
    "test_pasv_timeout": CONNECTS_EARLY,
    "test_makepasv": "in fast mode the server is asked for PWD ahead, so another command is its last",
    "test_rein_during_transfer": ONE_AT_A_TIME,
    "test_user_during_transfer": ONE_AT_A_TIME,
    "test_auth": OWN_TLS,
    "test_pbsz": OWN_TLS,
    "test_prot": OWN_TLS,
    "test_data_connection": f"{OWN_TLS}: PROT before AUTH is refused (RFC 4217 section 9)",
    "test_ccc": f"{OWN_TLS}: it does not end before the connection does",
    "test_tls_control_required": SERVER_TLS,
    "test_tls_data_required": SERVER_TLS,
}

# What a pair should do and does not.
FAULTS = {
    "test_stou": "a data port that is asked for behind its transfer command is not used for it",
    "test_idle_data_timeout2": "a server that is sent ABOR right behind PASV does not say that it has timed out",
}


def unpack():
    """Fetches the sources of pyftpdlib with their tests, and what both suites need."""
    modules = [PYTHON, "-W", "ignore", "-c", "import test.test_ftplib, psutil, OpenSSL"]
    if subprocess.run(modules, capture_output=True).returncode != 0:
        apt = ["apt-get", "install", "--yes", "-qq", "--no-install-recommends",
               "libpython3.11-testsuite", "python3-psutil", "python3-openssl"]
        subprocess.run(apt, check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"})
    folder = os.path.join(UNPACKED, f"pyftpdlib-{PYFTPDLIB}")
    if not os.path.exists(folder):
        os.makedirs(UNPACKED, exist_ok=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                        ":all:", "--dest", UNPACKED, f"pyftpdlib=={PYFTPDLIB}"], check=True)
        subprocess.run(["tar", "-xf", f"{folder}.tar.gz", "-C", UNPACKED], check=True)
        # Its own key is one that OpenSSL 3 finds too small.
        key = os.path.join(folder, "pyftpdlib", "test", "keycert.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
                        "-subj", "/CN=localhost", "-keyout", key, "-out", f"{key}.cert"], check=True,
                       capture_output=True)
        with open(key, "a") as both, open(f"{key}.cert") as certificate:
            both.write(certificate.read())
    return folder


def start_pair(world):
    """Two gateways beside each other in site b, with a door for each mode and family."""
    hosts = ["127.0.0.1", "[::1]"]
    tls = '[ftp.tls]\nmode = "explicit"\n[ftp.server_tls]\nmode = "explicit"\nverify = false\n'
    doors = "".join(
        f'[[ftp]]\nlisten = "{host}:{port}"\ntarget = "{host}:{SERVER}"\nmode = "{mode}"\n{more}'
        for mode, ports in DOORS.items() for port, more in zip(ports, ("", tls)) for host in hosts)
    allow = ", ".join(f'"{host}:{SERVER}"' for host in hosts)
    texts = {
        "a": f'[identity]\nkey_file = "a.key"\n[link]\nlisten = "127.0.0.1:4811"\n'
             f'[admin]\nlisten = "127.0.0.1:9811"\n'
             # The suites guess more passwords in a minute than people do.
             f'[limits]\nfailed_logins_per_minute_max = 1000\n'
             f'[[peer]]\nname = "site-b"\npublic_key = "{world.keys["b"]}"\n'
             f'endpoint = "127.0.0.1:4810"\n{doors}',
        "b": f'[identity]\nkey_file = "b.key"\n[link]\nlisten = "127.0.0.1:4810"\n'
             f'[[peer]]\nname = "site-a"\npublic_key = "{world.keys["a"]}"\n[far]\nallow = [{allow}]\n',
    }
    for name in ("b", "a"):
        with open(world.path(f"{name}.toml"), "w") as config:
            config.write(texts[name])
        world.start(f"gateway-{name}", "b", world.longhaul, "gateway", "--config",
                    world.path(f"{name}.toml"))

    def up():
        done = world.run(world.longhaul, "status", "--json", "--admin", "127.0.0.1:9811", site="b",
                         capture_output=True)
        return done.returncode == 0 and json.loads(done.stdout)["peers"][0]["state"] == "up"
    world.wait(up, "link up", 30)


def run_suite(world, suite, folder, port, login, names=()):
    """Runs a suite with its clients on `port`. Returns verdict, reason and seconds by test."""
    log = world.path("suite.log")
    with open(log, "w") as errors:
        done = world.run(PYTHON, "-W", "ignore", RUNNER, suite, folder, str(SERVER), str(port),
                         "login" if login else "-", *names, site="b", timeout=SUITE_TIMEOUT_S,
                         stdout=subprocess.PIPE, stderr=errors, text=True)
    if done.returncode != 0:
        with open(log) as errors:
            raise Failure(f"{suite}: {' / '.join(errors.read().splitlines()[-3:])}")
    return json.loads(done.stdout.splitlines()[-1])


def best_of_three(world, suite, folder, port, login, names):
    """Runs a suite, and again what has failed: what fails once in three is the suite's own haste."""
    tests = run_suite(world, suite, folder, port, login, names)
    for _ in range(2):
        failed = [name for name, test in tests.items() if test[0] == "failed"]
        again = run_suite(world, suite, folder, port, login, failed) if failed else {}
        tests.update((name, test) for name, test in again.items() if test[0] == "passed")
    return tests


def job(world, args):
    sources = unpack()
    start_pair(world)
    rows, deviations = [], []
    for suite, title, login, tls in RUNS:
        if args.suite not in (None, suite):
            continue
        folder = world.path("scratch") if suite.startswith("test_ftplib") else sources
        os.makedirs(folder, exist_ok=True)
        verdicts = {}
        for way, ports in {"directly": (SERVER, SERVER), **DOORS}.items():
            tests = best_of_three(world, suite, folder, ports[tls], login, args.test)
            verdicts[way] = tests
            counts = [sum(test[0] == verdict for test in tests.values())
                      for verdict in ("passed", "failed", "skipped")]
            rows.append((title, way, *counts))
            print(f"  {title}, {way}: {counts[0]} passed, {counts[1]} failed, {counts[2]} skipped",
                  flush=True)
        for name, (verdict, _, _) in verdicts["directly"].items():
            ways = [way for way in DOORS if verdicts[way][name][0] != "passed"]
            if verdict == "passed" and ways:
                why = verdicts[ways[0]][name][1].splitlines()[0]
                deviations.append((title, name, " and ".join(ways), why))
                print(f"    {name}, {' and '.join(ways)}: {why}\n      {reason(name)}", flush=True)
    if args.write:
        write(rows, deviations)
    unknown = {name for _, name, _, _ in deviations if known(name) is None}
    check(not unknown, f"each deviation is of any pair's nature {' '.join(sorted(unknown))}")


def known(name):
    """Why that is so with any pair, or None."""
    return KNOWN.get(name, KNOWN.get(name.split(".")[1]))


def reason(name):
    fault = FAULTS.get(name.split(".")[1])
    return known(name) or (f"a fault: {fault}" if fault else "NOT KNOWN")


def write(rows, deviations):
    lines = ["A suite has its servers and clients in one process, with the gateways beside it. What fails is",
             "run twice more.", "",
             *pages.table(["suite", "through", "passed", "failed", "skipped"], rows), "",
             "What passes directly and not through the pair:", ""]
    grouped = {}
    for title, name, ways, _ in deviations:
        grouped.setdefault((reason(name), ways), []).append(f"`{name}` ({title})")
    for (why, ways), names in grouped.items():
        lines += [f"- {ways}: {why}", *(f"  - {name}" for name in names)]
    pages.write("suites", "Outside suites", lines)


def extend(parser):
    parser.set_defaults(rate="1 Gbit/s", rtt="0ms", loss="0%")
    parser.add_argument("--suite", choices=sorted({run[0] for run in RUNS}))
    parser.add_argument("--test", action="append", default=[], help="only this one: CLASS.METHOD")
    parser.add_argument("--write", action="store_true", help="write docs/results/suites.md")


if __name__ == "__main__":
    main(job, __doc__, "tar", "openssl", extend=extend)
