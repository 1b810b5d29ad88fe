"""Log-ins through an `[[ssh]]` listener, and the messages that users read if a log-in fails.

The tests use right and wrong passwords, answers and keys, forwarded agents, and keys and certificates of the far
gateway. They also use unknown and changed host keys, and servers and links that are down.

The output of the client is in target/conformance-ssh-logins.md. If the program lacks `[[ssh]]`, the tests that need no
gateway run directly.
"""

import os
import shlex
import shutil
import subprocess

import pytest

import pages
import ssh_servers
import ssh_world
from ssh_clients import Cell
from ssh_servers import CODE, PASSWORD
from world import ADDRESS_B, NOBODY, ROOT, Path

PATH = Path("300 Mbit/s", "20ms", "0%")
# Ports of the listeners, by purpose.
PORTS = {name: 2331 + number for number, name in enumerate([
    "OpenSSH", "PAM", "asyncssh", "dropbear", "ProFTPD", "agent", "key", "certificate", "changed", "unknown", "nobody", "forbidden",
    "choice", "sftp only"])}
SERVER_PORTS = {"PAM": 2252, "changed": 2253, "unknown": 2254}
FORBIDDEN = f"{ADDRESS_B}:2198"
HOST_KEY_CHECKS = ["-o", "GlobalKnownHostsFile=/dev/null", "-o", "LogLevel=INFO"]


class Place:
    """Servers, keys and listeners. The servers accept the user's known keys, and refuse the stranger's key."""

    def __init__(self, world):
        self.world = world
        self.known, self.known_rsa = ssh_servers.make_user_key(world, "known"), ssh_servers.make_user_key(world, "rsa", "rsa")
        self.stranger, self.gateway = (ssh_servers.make_user_key(world, name) for name in ("stranger", "of-gateway"))
        self.authority = ssh_servers.make_user_key(world, "authority")
        self.keys = world.path("user-keys")
        os.makedirs(self.keys)
        os.chmod(self.keys, 0o700)
        shutil.copy(self.gateway, os.path.join(self.keys, ssh_servers.USER))
        authorized = [ssh_servers.public_key(key) for key in (self.known, self.known_rsa, self.gateway)]
        for name in ("openssh", "pam", "asyncssh"):
            ssh_servers.authorize(world, name, *authorized)
        trusted = f"TrustedUserCAKeys {self.authority}.pub"
        self.servers = {
            "OpenSSH": ssh_servers.start_openssh(world, lines=[trusted]),
            "PAM": ssh_servers.start_openssh(world, "pam", SERVER_PORTS["PAM"], pam=True),
            "asyncssh": ssh_servers.start_asyncssh(world, ways=ssh_servers.WAYS, banner="Welcome to the server.\n"),
            "dropbear": ssh_servers.start_dropbear(world), "ProFTPD": ssh_servers.start_proftpd(world),
            **{name: ssh_servers.start_asyncssh(world, name, SERVER_PORTS[name]) for name in ("changed", "unknown")}}
        for name in ("agent", "key", "certificate", "sftp only", "choice"):
            self.servers[name] = self.servers["OpenSSH"]
        self.has_gateways = ssh_world.knows_ssh(world)
        self.start_agent("agent", self.known, self.known_rsa)
        self.start_agent("strangers-agent", self.stranger)
        self.start_agent("no-keys-agent")
        if self.has_gateways:
            self.start_pair()

    def start_agent(self, name, *keys):
        sock = self.world.path(f"{name}.sock")
        self.world.start(name, "a", "ssh-agent", "-D", "-a", sock)
        self.world.wait(lambda: ssh_world.is_agent_up(sock), f"{name} is up")
        for key in keys:
            self.world.run("ssh-add", "-q", key, env={**os.environ, "SSH_AUTH_SOCK": sock}, check=True)

    def start_pair(self):
        targets = {name: server.place() for name, server in self.servers.items()}
        targets.update({"nobody": NOBODY, "forbidden": FORBIDDEN, "choice": None})
        ways = {"agent": ["agent"], "key": ["key"], "certificate": ["certificate"]}
        near = ""
        for name, port in PORTS.items():
            more = {"public_key": ways[name]} if name in ways else {}
            more |= {"clients": ["127.0.0.0/8"]} if name == "choice" else {}
            more |= {"channels": ["sftp"]} if name == "sftp only" else {}
            near += ssh_world.listener(port, targets[name], **more)
        self.world.allowed = [place for place in dict.fromkeys(targets.values()) if place not in (None, FORBIDDEN)]
        wrong = self.servers["changed"].known_host().split()
        wrong[1:] = ssh_servers.public_key(self.stranger).split()[:2]
        known = [server.known_host() for name, server in self.servers.items() if name not in ("changed", "unknown")]
        ssh_world.start_pair(self.world, near, [*dict.fromkeys(known), " ".join(wrong) + "\n"], [
            f'user_keys = "{self.keys}"', f'user_ca = "{self.authority}"'])

    def cell(self, name):
        server = self.servers.get(name, self.servers["OpenSSH"])
        where = ("127.0.0.1", PORTS[name]) if self.has_gateways else (ADDRESS_B, server.port)
        cell = Cell(self.world, server, *where, timeout=60)
        cell.fresh()
        return cell


@pytest.fixture(scope="module")
def place(world):
    return Place(world)


@pytest.fixture(scope="module")
def read():
    """Yields a dictionary of the client's exit status and output, by case. Writes it at the end."""
    read = {}
    yield read
    with open(os.path.join(ROOT, "target", "conformance-ssh-logins.md"), "w") as file:
        rows = [(case, status, said.replace("|", "\\|").replace("\n", "<br>")) for case, (status, said) in read.items()]
        file.write("\n".join(["What a user reads.", "", *pages.table(["case", "exit status", "OpenSSH prints"], rows), ""]))


def log_in(cell, read, case, *more, answers=None, agent=None, command="echo in", user=None, program="ssh"):
    """Runs a command with OpenSSH. Returns the output that the user reads.

    The keys of `answers` are parts of questions, and the values are the answers to these questions.
    """
    answers = {"": PASSWORD} if answers is None else answers
    script = os.path.join(cell.home, "answers")
    with open(script, "w") as file:
        cases = "".join(f"*{shlex.quote(question)}*) echo {shlex.quote(answer)};; " for question, answer in answers.items())
        file.write(f'#!/bin/sh\necho "asked: $1" >> {shlex.quote(cell.home)}/asked\ncase "$1" in {cases} esac\n')
    os.chmod(script, 0o700)
    # OpenSSH uses the first of several values of an option.
    options = [*more, "-F", "none", "-o", "StrictHostKeyChecking=accept-new", "-o", f"UserKnownHostsFile={cell.home}/known_hosts",
               *HOST_KEY_CHECKS, "-o", "NumberOfPasswordPrompts=1", "-o", "IdentityFile=none", "-p", str(cell.port)]
    done = cell.world.run(
        program, *options, f"{user or cell.user}@{cell.host}", command, stdin=subprocess.DEVNULL, capture_output=True,
        timeout=cell.timeout, env={**{key: value for key, value in os.environ.items() if key != "SSH_AUTH_SOCK"}, "SSH_ASKPASS": script,
                                   "SSH_ASKPASS_REQUIRE": "force", **({"SSH_AUTH_SOCK": cell.world.path(f"{agent}.sock")} if agent else {})})
    lines = (done.stdout + done.stderr).decode(errors="replace").replace("\r", "").splitlines()
    cell.status, cell.said = done.returncode, "\n".join(line for line in lines if "Permanently added" not in line).strip()
    read[case] = cell.status, cell.said
    return cell.said


def ways(names):
    return ["-o", f"PreferredAuthentications={names}"]


def needs_gateways(place):
    if not place.has_gateways:
        pytest.skip("there are no gateways")


PASSWORD_SERVERS = ["OpenSSH", "asyncssh", "dropbear"]


@pytest.mark.parametrize("server", PASSWORD_SERVERS)
def test_a_password_is_the_servers(place, read, server):
    cell = place.cell(server)
    said = log_in(cell, read, f"password, {server}", *ways("password"))
    assert cell.status == 0 and "in" in said.splitlines(), said


@pytest.mark.parametrize("server", PASSWORD_SERVERS)
def test_a_wrong_password_is_refused(place, read, server):
    cell = place.cell(server)
    said = log_in(cell, read, f"wrong password, {server}", *ways("password"), answers={"": "wrong"})
    assert cell.status == 255 and "Permission denied" in said and "password" in said, said


def test_the_client_may_ask_for_a_password_again(place, read):
    cell = place.cell("OpenSSH")
    log_in(cell, read, "wrong password twice", *ways("password"), "-o", "NumberOfPasswordPrompts=2", answers={"": "wrong"})
    assert cell.status == 255
    with open(os.path.join(cell.home, "asked")) as asked:
        assert asked.read().count("asked") == 2


def test_the_servers_banner_reaches_the_user(place, read):
    cell = place.cell("asyncssh")
    said = log_in(cell, read, "banner of the server", *ways("password"))
    assert "Welcome to the server." in said, said


@pytest.mark.parametrize("code", [CODE, "000000"], ids=["right", "wrong"])
def test_the_servers_questions_are_asked(place, read, code):
    cell = place.cell("asyncssh")
    said = log_in(cell, read, f"two questions, {'right' if code == CODE else 'wrong'} answers", *ways("keyboard-interactive"),
                  answers={"Code": code, "Password": PASSWORD})
    asked = open(os.path.join(cell.home, "asked")).read()
    assert "Password: " in asked and "Code: " in asked, asked
    assert (cell.status == 0) == (code == CODE), said


@pytest.mark.parametrize("password", [PASSWORD, "wrong"], ids=["right", "wrong"])
def test_pam_asks_its_question(place, read, password):
    cell = place.cell("PAM")
    said = log_in(cell, read, f"PAM, {'right' if password == PASSWORD else 'wrong'} password", *ways("keyboard-interactive"),
                  answers={"": password})
    assert (cell.status == 0) == (password == PASSWORD), said


@pytest.mark.parametrize("key", ["known", "rsa"])
def test_a_forwarded_agent_logs_in(place, read, key):
    cell = place.cell("agent")
    path = {"known": place.known, "rsa": place.known_rsa}[key]
    said = log_in(cell, read, f"agent forwarded, {key} key", *ways("publickey"), "-A", "-o", "IdentitiesOnly=yes", "-i", f"{path}.pub",
                  agent="agent")
    assert cell.status == 0 and "in" in said.splitlines(), said


def test_an_agent_with_several_keys_logs_in(place, read):
    cell = place.cell("agent")
    said = log_in(cell, read, "agent forwarded, several keys", *ways("publickey"), "-A", agent="agent")
    assert cell.status == 0, said


@pytest.mark.parametrize("program", ["sftp", "scp"])
def test_sftp_and_scp_log_in_by_a_forwarded_agent(place, program):
    cell = place.cell("agent")
    with open(cell.here("sent"), "w") as file:
        file.write("x" * 100_000)
    options = ["-A", "-F", "none", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-P", str(cell.port)]
    env = {**os.environ, "SSH_AUTH_SOCK": place.world.path("agent.sock")}
    if program == "sftp":
        done = place.world.run("sftp", *options, "-b", "-", f"{cell.user}@{cell.host}", capture_output=True, env=env, timeout=60,
                               input=f"put {cell.here('sent')} {cell.there('sent')}\n".encode())
    else:
        done = place.world.run("scp", *options, cell.here("sent"), f"{cell.user}@{cell.host}:{cell.there('sent')}", capture_output=True,
                               env=env, timeout=60)
    assert done.returncode == 0, done.stderr
    assert os.path.getsize(cell.server.file("sent")) == 100_000


def test_a_key_without_a_forwarded_agent_is_refused_with_advice(place, read):
    needs_gateways(place)
    cell = place.cell("agent")
    said = log_in(cell, read, "key without ssh -A", *ways("publickey"), "-o", "IdentitiesOnly=yes", "-i", place.known)
    assert cell.status == 255 and "-A" in said, said


def test_a_key_that_the_server_does_not_know_is_refused(place, read):
    cell = place.cell("agent")
    said = log_in(cell, read, "key that the server does not know", *ways("publickey"), "-A", agent="strangers-agent")
    assert cell.status == 255 and "Permission denied" in said, said


def test_a_password_helps_where_the_key_is_unknown(place, read):
    cell = place.cell("agent")
    said = log_in(cell, read, "unknown key, then a password", *ways("publickey,password"), "-A", agent="strangers-agent")
    assert cell.status == 0, said


@pytest.mark.parametrize("way", ["key", "certificate"])
@pytest.mark.parametrize("key", ["known", "rsa"])
def test_the_far_gateway_logs_in_for_a_known_key(place, read, way, key):
    cell = place.cell(way)
    path = {"known": place.known, "rsa": place.known_rsa}[key]
    said = log_in(cell, read, f"{way} of the far gateway, {key} key", *ways("publickey"), "-o", "IdentitiesOnly=yes", "-i", path)
    assert cell.status == 0 and "in" in said.splitlines(), said


@pytest.mark.parametrize("way", ["key", "certificate"])
def test_the_far_gateway_does_not_log_in_for_a_strangers_key(place, read, way):
    cell = place.cell(way)
    said = log_in(cell, read, f"{way} of the far gateway, unknown key", *ways("publickey"), "-o", "IdentitiesOnly=yes", "-i",
                  place.stranger)
    assert cell.status == 255 and "Permission denied" in said, said


@pytest.mark.parametrize("what", ["changed", "unknown"])
def test_a_server_with_a_wrong_host_key_gets_no_password(place, read, what):
    needs_gateways(place)
    cell = place.cell(what)
    said = log_in(cell, read, f"{what} host key of the server", *ways("password"))
    assert cell.status == 255 and "host key" in said.lower(), said
    assert "a password has come" not in place.world.log(what), "no credential may leave the gateway"


@pytest.mark.parametrize(("name", "words"), [("nobody", ("refused", "connect", "unreachable")), ("forbidden", ("allow", "permit"))])
def test_a_target_that_cannot_be_reached_is_named(place, read, name, words):
    needs_gateways(place)
    cell = place.cell(name)
    said = log_in(cell, read, {"nobody": "server down", "forbidden": "target that the far gateway does not allow"}[name],
                  *ways("password"))
    assert cell.status == 255 and any(word in said.lower() for word in words), said


@pytest.mark.parametrize("sign", ["%", "+"])
def test_the_user_name_names_the_server(place, read, sign):
    needs_gateways(place)
    cell = place.cell("choice")
    said = log_in(cell, read, f"user{sign}host:port", *ways("password"), user=f"{cell.user}{sign}{cell.server.place()}")
    assert cell.status == 0 and "in" in said.splitlines(), said


def test_a_user_name_without_a_server_is_refused_with_advice(place, read):
    needs_gateways(place)
    cell = place.cell("choice")
    said = log_in(cell, read, "user name without a server", *ways("password"))
    assert cell.status == 255 and "%" in said, said


def test_a_channel_that_is_not_permitted_is_refused_with_a_reason(place, read):
    needs_gateways(place)
    cell = place.cell("sftp only")
    said = log_in(cell, read, "command at a listener for SFTP only", *ways("password"))
    assert cell.status not in (0, None) and "in" not in said.splitlines(), said


def test_a_clients_known_hosts_hold_while_the_gateway_restarts(place, read):
    needs_gateways(place)
    cell = place.cell("OpenSSH")
    log_in(cell, read, "first log-in", *ways("password"))
    assert cell.status == 0
    place.start_pair()
    said = log_in(cell, read, "log-in after a restart", *ways("password"), "-o", "StrictHostKeyChecking=yes")
    assert cell.status == 0, said


def test_a_link_that_is_down_is_named(place, read):
    needs_gateways(place)
    place.world.stop("gateway-b")
    try:
        cell = place.cell("OpenSSH")
        said = log_in(cell, read, "link down", *ways("password"))
        assert cell.status == 255 and any(word in said.lower() for word in ("link", "far gateway", "peer")), said
    finally:
        place.start_pair()


def test_the_first_host_key_is_trusted_only_if_configured(place, read):
    needs_gateways(place)
    server = place.servers["unknown"]
    place.world.allowed = [server.place()]
    ssh_world.start_pair(place.world, ssh_world.listener(PORTS["unknown"], server.place()), [], ["trust_on_first_use = true"])
    try:
        cell = place.cell("unknown")
        said = log_in(cell, read, "trust on first use", *ways("password"))
        assert cell.status == 0, said
        with open(place.world.path("far.known_hosts")) as file:
            assert server.known_host().split()[2] in file.read()
        # The far gateway must refuse another host key of the same server.
        place.world.stop("unknown")
        other = ssh_servers.make_host_key(place.world, "other")
        ssh_servers.start_asyncssh(place.world, "unknown", server.port, host_key=other)
        said = log_in(cell, read, "another host key after the first", *ways("password"))
        assert cell.status == 255 and "host key" in said.lower(), said
    finally:
        place.start_pair()
