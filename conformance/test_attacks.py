"""Attacks by clients and by servers, and their effects on another user.

Each attack runs while another user, at another address, logs in, uploads and downloads. The user's transfers must
succeed in about their usual time. No gateway may crash or use much memory, and no log may contain a secret.

`--write` writes the table into docs/results/attacks.md.
"""

import concurrent.futures
import ftplib
import io
import os
import shutil
import time
import warnings

import pytest

import attacks
import pages
from world import ADDRESS_B, NEAR_PORT, Path, raise_open_files

PATH = Path("300 Mbit/s", "20ms", "0%")
BAD_LISTENER_PORT, BAD_SERVER_PORT = 2124, 2198
MEMORY_MAX_MB = 400
# Maximum length of a text in the table.
GOT_MAX = 160
OTHERS_BYTES = 2_000_000
# Rows of the table: one without an attack, eight attacks by clients, and the attacks by servers.
ROWS = 1 + 8 + len(attacks.SERVERS)


class Town:
    """The pair under attack, the other user, and the rows of the table."""

    def __init__(self, world):
        self.world, self.rows = world, []
        self.attacker, self.at_bad_server = attacks.Attacker(world, NEAR_PORT), attacks.Attacker(world, BAD_LISTENER_PORT)
        self.server = attacks.BadServer(world, ADDRESS_B, BAD_SERVER_PORT)
        self.usual_s = max(self.other_user() for _ in range(3))
        self.note("nothing", [], self.usual_s)

    def other_user(self):
        """Logs in, uploads and downloads as the other user. Returns the seconds that this took."""
        begun = time.monotonic()
        sent, back = os.urandom(OTHERS_BYTES), bytearray()
        with self.world.entered("a"), ftplib.FTP(timeout=60, source_address=("127.0.0.2", 0)) as ftp:
            ftp.connect("127.0.0.1", NEAR_PORT)
            ftp.login("anonymous", "x")
            ftp.cwd("files")
            ftp.storbinary("STOR other", io.BytesIO(sent))
            ftp.retrbinary("RETR other", back.extend)
            ftp.delete("other")
        assert back == sent, "the same bytes"
        return time.monotonic() - begun

    def note(self, name, got, worst_s):
        memory = [self.world.memory_kib(site) // 1024 for site in "ab"]
        text = "; ".join(line.strip() for line in got).replace("|", "\\|")
        self.rows.append((name.replace("_", " "), text[:GOT_MAX], f"{worst_s:.2f}", *memory))
        return memory

    def stand(self, name, attack, attacker):
        """Runs an attack, checks that it harms neither the other user nor the gateways, and returns its outcome."""
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            running = pool.submit(attack, attacker)
            times = [self.other_user()]
            while not running.done():
                times.append(self.other_user())
            got = running.result()
        memory = self.note(name, got, max(times))
        assert max(times) <= 5 * self.usual_s + 2, f"the other user needed {max(times):.1f} s"
        assert max(memory) <= MEMORY_MAX_MB, f"the gateways take {memory} MB"
        assert os.path.exists(self.keep), "no smuggled command was executed"
        return got


@pytest.fixture(scope="module")
def town(world, vsftpd, options):
    raise_open_files()
    world.environment["RUST_LOG"] = "debug"
    world.allowed.append(f"{ADDRESS_B}:{BAD_SERVER_PORT}")
    world.pair(f'[[ftp]]\nlisten = "127.0.0.1:{BAD_LISTENER_PORT}"\ntarget = "{ADDRESS_B}:{BAD_SERVER_PORT}"\n')
    for name, size in (("keep", 10), ("large", 300_000_000)):
        with open(vsftpd.file(name), "wb") as file:
            file.truncate(size)
        os.chmod(vsftpd.file(name), 0o644)
    town = Town(world)
    town.keep = vsftpd.file("keep")
    yield town
    logs = world.log("gateway-a") + world.log("gateway-b")
    assert "panicked" not in logs
    if options.write and len(town.rows) == ROWS:
        write(town.rows)
    elif options.write:
        warnings.warn(f"not written: {len(town.rows)} of {ROWS} rows")


def codes(got):
    return [reply.code for reply in got]


def test_data_connections_go_to_the_clients_own_address_and_to_high_ports_only(town):
    *refused, noop = codes(town.stand("bounce", attacks.bounce, town.attacker))
    assert all(code // 100 == 5 for code in refused)
    assert noop == 200


def test_a_line_within_a_line_is_not_executed(town, vsftpd):
    town.stand("smuggled_lines", attacks.smuggled_lines, town.attacker)
    shutil.copy(vsftpd.file("keep"), vsftpd.file("gone"))
    with town.attacker.log_in() as client:
        client.ask("DELE files/gone", 250)
    assert not os.path.exists(vsftpd.file("gone")), "the same command in its own line must delete the file"


def test_a_line_without_end_is_refused_and_the_session_goes_on(town):
    refused, noop, _ = town.stand("endless_line", attacks.endless_line, town.attacker)
    assert (refused.code, noop.code) == (500, 200)


def test_ten_thousand_connections_are_too_many(town):
    got = town.stand("many_connections", attacks.many_connections, town.attacker)
    assert ", 0 told" not in got[0]


@pytest.mark.parametrize("attack", [attacks.flood_of_commands, attacks.slow_reader],
                         ids=lambda attack: attack.__name__)
def test_a_client_that_does_not_read_hurts_itself_only(town, attack):
    town.stand(attack.__name__, attack, town.attacker)


def test_a_password_in_an_odd_place_stands_in_no_log(world, town):
    got = town.stand("passwords_in_odd_places", attacks.passwords_in_odd_places, town.attacker)
    assert len(got) == 9, "each line was answered"
    logs = world.log("gateway-a") + world.log("gateway-b")
    assert " DEBUG " in logs, "the logs must contain debug messages"
    assert attacks.SECRET not in logs


@pytest.mark.parametrize("trick", attacks.SERVERS)
def test_a_bad_server_hurts_its_own_client_only(town, trick):
    town.server.trick = attacks.SERVERS[trick]
    town.stand(f"server: {trick}", attacks.client_of_bad_server, town.at_bad_server)


# This test runs last, because the gateway then refuses log-ins from its address for a minute.
def test_guessing_passwords_ends_soon(town):
    got = town.stand("guessing", attacks.guessing, town.attacker)
    assert "too many failed logins" in got[0]


def write(rows):
    pages.write_text("docs/results/attacks.md", [
        "# Attacks", "", "`cargo xtask conformance attacks -- --write`: what another user needed meanwhile to log",
        "in, upload 2 MB and download them, the worst of several times, and the memory of the two",
        "gateways afterwards. Both log at level debug, and no password is in the logs.", "",
        *pages.table(["attack", "what came of it", "other user, s", "near gateway, MB", "far gateway, MB"],
                     rows)])
