"""The examples for Prometheus and Grafana with a real Prometheus.

promtool accepts the rules and the configuration. Every expression of the board returns a value. The values in
Prometheus agree with the gateway's transfers.

`--write` writes a picture of Prometheus' own pages into docs/results.
"""

import json
import os
import re
import subprocess
import time
import urllib.parse

import pytest

from files import make_file
from world import NEAR_PORT, ROOT

EXAMPLES = os.path.join(ROOT, "examples", "monitoring")
ADDRESS = "127.0.0.1:9090"
TRANSFERS, FAILED = 40, 7

pytestmark = pytest.mark.needs("prometheus", "promtool", "curl")


def promtool(*arguments):
    ran = subprocess.run(["promtool", *arguments], cwd=EXAMPLES, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def test_rules_and_configuration_are_right():
    print(promtool("check", "config", "prometheus.yml"))
    print(promtool("test", "rules", "alerts-test.yml"))


@pytest.fixture(scope="module")
def watched(world, vsftpd):
    """Starts a pair and Prometheus, makes some transfers, and yields the world."""
    world.pair()
    with open(os.path.join(EXAMPLES, "prometheus.yml")) as file:
        config = file.read().replace("15s", "1s").replace("alerts.yml", os.path.join(EXAMPLES, "alerts.yml"))
    with open(world.path("prometheus.yml"), "w") as file:
        file.write(config)
    world.start("prometheus", "a", "prometheus", f"--config.file={world.path('prometheus.yml')}",
                f"--storage.tsdb.path={world.path('tsdb')}", f"--web.listen-address={ADDRESS}")
    world.wait(lambda: curl(world, "/-/ready").returncode == 0, "Prometheus is ready", 30)
    local = world.path("local")
    make_file(local, 3_000_000)
    url = f"ftp://127.0.0.1:{NEAR_PORT}/files"
    for number in range(TRANSFERS):
        world.run("curl", "-sS", "-T", local, f"{url}/{number}", check=True)
    for _ in range(FAILED):
        assert world.run("curl", "-sS", f"{url}/nowhere", capture_output=True).returncode != 0
    time.sleep(5)
    yield world
    vsftpd.empty()


def curl(world, path):
    return world.run("curl", "-sS", "--fail", "--max-time", "10", f"http://{ADDRESS}{path}", capture_output=True, text=True)


def query(world, expression):
    answer = curl(world, f"/api/v1/query?query={urllib.parse.quote(expression)}")
    assert answer.returncode == 0, f"{expression}: {answer.stderr}"
    return json.loads(answer.stdout)["data"]["result"]


def value(world, expression):
    return sum(float(it["value"][1]) for it in query(world, expression))


def test_it_knows_what_happened(watched):
    status = watched.status("a")
    for outcome in ["succeeded", "failed"]:
        counted = value(watched, f'longhaul_ftp_transfers_total{{outcome="{outcome}"}}')
        assert counted == status[f"ftp_{outcome}"]["transfers"], outcome
    assert value(watched, "longhaul_ftp_transfer_duration_seconds_count") == TRANSFERS
    assert value(watched, "longhaul_peer_up") == 1
    assert query(watched, 'up{job="longhaul"}')[0]["value"][1] == "1"


def test_every_expression_of_the_board_means_something(watched):
    with open(os.path.join(EXAMPLES, "grafana.json")) as file:
        board = json.load(file)
    assert board["uid"] and len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    empty = []
    for panel in board["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}", panel["title"]
        for target in panel["targets"]:
            found = query(watched, target["expr"].replace("$instance", ".*"))
            # A rate needs minutes. Every other expression has a value immediately.
            if not found and "rate(" not in target["expr"]:
                empty.append((panel["title"], target["expr"]))
    assert not empty, empty


def test_every_metric_is_documented(watched):
    text = watched.run("curl", "-sS", "http://127.0.0.1:9810/metrics", capture_output=True, text=True).stdout
    with open(os.path.join(ROOT, "docs", "operating.md")) as file:
        documented = file.read()
    # The document lists these metrics in the row of another metric, and replaces parts of their names by dots.
    dotted = ["longhaul_peer_receive_bits_per_second", "longhaul_peer_allowed_bits_per_second"]
    names = re.findall(r"^# TYPE (\S+)", text, re.MULTILINE)
    missing = [name for name in names if name not in documented and name not in dotted]
    assert not missing, missing


@pytest.mark.needs("chromium")
def test_a_picture(watched, options):
    page = "/graph?" + "&".join(
        f"g{number}.expr={urllib.parse.quote(expression)}&g{number}.tab=0&g{number}.range_input=1m"
        for number, expression in enumerate(["longhaul_peer_send_bits_per_second", "longhaul_transfers_open"]))
    picture = watched.path("prometheus.png")
    watched.run("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1300,1400",
                "--virtual-time-budget=8000", f"--user-data-dir={watched.path('chromium')}", f"--screenshot={picture}",
                f"http://{ADDRESS}{page}", check=True, timeout=90, capture_output=True)
    assert os.path.getsize(picture) > 20_000
    if options.write:
        os.replace(picture, os.path.join(ROOT, "docs", "results", "prometheus.png"))
