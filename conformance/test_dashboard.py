"""The dashboard in Debian's Chromium, which Playwright controls. The gateways have made-up transfers.

`--write` writes the pictures into docs/.
"""

import contextlib
import http.server
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

import servers
from files import make_file
from made_up import GUARDED, OWNER, TOKEN, Gateways
from world import NEAR_PORT, ROOT, Path

BROWSER = os.path.join(ROOT, "target", "browser")
sys.path.insert(0, BROWSER)
sync_api = pytest.importorskip("playwright.sync_api", reason=f"Playwright is not in {BROWSER}")
axe = pytest.importorskip("axe_playwright_python.sync_playwright")

# Path of the real pair in the last test.
PATH = Path(rate="200 Mbit/s", rtt="100ms", loss="0.1%")

pytestmark = pytest.mark.needs("chromium")

RUNNING, FINISHED = 1000, 10_000
PATIENCE_MS = 10_000
# Changes per second, changes in an hour, and the maximum growth of the page's memory in an hour.
CHANGES_PER_S, HOUR_CHANGES, GROWTH_MAX_KB = 3, 3 * 3600, 600
SCHEMES, WIDTHS = ("light", "dark"), (1300, 400)
# Screen of the narrowest phone, and the tables of the page.
PHONE, TABLES = {"width": 360, "height": 740}, ("peers", "running", "recent", "stores")


def until(condition, what, seconds=10):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


@pytest.fixture(scope="module")
def chromium():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=[
            "--no-sandbox", "--host-resolver-rules=MAP evil.example 127.0.0.1"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def busy(options):
    with Gateways(options.gateways, GUARDED) as gateways:
        gateways.fill(RUNNING, FINISHED)
        until(lambda: len(gateways.status()["transfers"]) == RUNNING, "transfers run")
        yield gateways


@pytest.fixture
def quiet(options):
    with Gateways(options.gateways, GUARDED) as gateways:
        yield gateways


@pytest.fixture
def tokenless(options):
    with Gateways(options.gateways) as gateways:
        yield gateways


@pytest.fixture
def guarded(options):
    with Gateways(options.gateways, GUARDED) as gateways:
        yield gateways


@contextlib.contextmanager
def watched(page, gateways):
    """Checks at the end that the page had no errors, and that it sent requests only to the gateway."""
    wrong = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(gateways.url) else None)
    yield page
    allowed = re.compile("401|403|404|422")
    assert not [text for text in wrong if not allowed.search(text)], wrong


@contextlib.contextmanager
def opened(chromium, gateways, path="/", headers=OWNER, **settings):
    """Opens a page, with the token by default, and checks it with `watched`."""
    context = chromium.new_context(extra_http_headers=headers, **settings)
    context.set_default_timeout(PATIENCE_MS)
    page = context.new_page()
    try:
        with watched(page, gateways):
            page.goto(gateways.url + path)
            yield page
    finally:
        context.close()


def live(page):
    page.get_by_text("live", exact=True).wait_for()
    return page


class Player:
    """A tab that takes the role of the tab with the event stream, and sends changed events to the other pages."""

    def __init__(self, context, gateways):
        self.tab = context.new_page()
        self.tab.goto(gateways.url + "/dashboard/icon.svg")
        self.tab.evaluate("""async () => {
            await new Promise((done) => navigator.locks.request('longhaul-events', () => { done(); return new Promise(() => {}); }));
            globalThis.first = await new Promise((done) => {
                const source = new EventSource('/dashboard/events');
                const got = {};
                for (const name of ['gateway', 'transfers']) source.addEventListener(name, (event) => {
                    got[name] ??= JSON.parse(event.data);
                    if (got.gateway && got.transfers) { source.close(); done(got); }
                });
            });
            globalThis.channel = new BroadcastChannel('longhaul');
        }""")

    def play(self, gateway=None, peers=({},), transfers=()):
        """Sends a state. The given fields of the gateway, each peer and each transfer replace the real values."""
        self.tab.evaluate("""([gateway, peers, transfers]) => {
            const real = first.gateway.peers[0];
            const data = {...first.gateway, ...gateway, peers: peers.map((it) => ({...real, ...it}))};
            const opened = transfers.map((it, at) => ({...first.transfers.opened[at], ...it}));
            channel.postMessage({name: 'gateway', data});
            channel.postMessage({name: 'transfers', data: {is_all: true, opened, moved: [], closed: []}});
        }""", [gateway or {}, list(peers), list(transfers)])


@contextlib.contextmanager
def played(chromium, gateways, prepare=lambda page: None, **settings):
    """Opens a page, and yields it with the player of its events."""
    context = chromium.new_context(extra_http_headers=OWNER, **settings)
    context.set_default_timeout(PATIENCE_MS)
    player = Player(context, gateways)
    page = context.new_page()
    prepare(page)
    try:
        with watched(page, gateways):
            page.goto(gateways.url)
            page.locator("#plots figure").first.wait_for()
            yield page, player
    finally:
        context.close()


def test_first_paint_with_many_transfers(chromium, busy):
    paints, complete = [], []
    for _ in range(5):
        with opened(chromium, busy) as page:
            page.locator("#running tbody tr").first.wait_for()
            page.locator("#recent tbody tr").first.wait_for()
            complete.append(page.evaluate("performance.now()"))
            entries = page.evaluate("performance.getEntriesByType('paint').map((it) => it.startTime)")
            paints.append(max(entries))
            assert page.locator("#running-count").inner_text() == "1,000"
            assert page.locator("#recent-count").inner_text() == "10,000"
    print(f"first paint {sorted(paints)} ms, with rows {sorted(complete)} ms")
    assert sorted(paints)[2] < 1000, paints


def test_news_are_shown_within_a_second(chromium, quiet):
    took = []
    with opened(chromium, quiet) as page:
        live(page)
        for number in range(1, 6):
            begun = time.monotonic()
            quiet.fill(running=1)
            page.wait_for_function("(count) => document.getElementById('running-count').textContent === count",
                                   arg=str(number), polling=20)
            took.append(time.monotonic() - begun)
            before = page.locator("#running tbody tr td").nth(2).inner_text()
            begun = time.monotonic()
            page.wait_for_function("(before) => document.querySelectorAll('#running tbody tr td')[2].textContent !== before",
                                   arg=before, polling=20)
            took.append(time.monotonic() - begun)
        begun = time.monotonic()
        quiet.fill(finished=1)
        page.wait_for_function("() => document.querySelector('#recent tbody tr') !== null", polling=20)
        took.append(time.monotonic() - begun)
    print("news after", *(f"{it:.2f}" for it in took), "s")
    assert max(took) < 1, took


def test_rate_limits(chromium, quiet):
    with opened(chromium, quiet) as page:
        live(page)
        now = page.locator("#rate-now")
        page.get_by_label("Rate", exact=True).fill("250 Mbit/s")
        page.get_by_role("button", name="Set limit").click()
        sync_api.expect(now).to_have_text("Limit now: 250 Mbit/s, by hand. In the configuration: none.")
        page.locator("#rate-peer").select_option("site-b")
        sync_api.expect(now).to_have_text("Limit now: none. In the configuration: none.")
        page.get_by_label("Rate", exact=True).fill("7 bananas")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#told")).to_contain_text("bananas")
        page.get_by_label("Rate", exact=True).fill("50 Mbit/s")
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#peers tbody tr")).to_contain_text("50.0 Mbit/s, by hand")
        page.get_by_role("button", name="No limit").click()
        sync_api.expect(page.locator("#peers tbody tr")).to_contain_text("none, by hand")
        quiet.reload()
        sync_api.expect(now).to_have_text("Limit now: none. In the configuration: none.")
        sync_api.expect(page.locator("#policy")).to_have_text("fair")


def test_a_transfer_is_stopped_by_keys_alone(chromium, quiet):
    quiet.fill(running=3)
    with opened(chromium, quiet) as page:
        stop = live(page).get_by_role("button", name="Stop /projects/day-1/reel-00001.mxf")
        stop.focus()
        # Changes arrive during this time, and the button must keep the focus.
        time.sleep(1.5)
        assert stop.evaluate("(it) => it === document.activeElement")
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        sync_api.expect(dialog).to_contain_text("reel-00001.mxf")
        page.keyboard.press("Escape")
        sync_api.expect(dialog).to_be_hidden()
        assert len(quiet.status()["transfers"]) == 3
        page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Stop it").focus()
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#running-count")).to_have_text("2")
        sync_api.expect(page.locator("#told")).to_contain_text("Stopped: /projects/day-1/reel-00001.mxf")
        left = {it["path"] for it in quiet.status()["transfers"]}
        assert left == {"/projects/day-0/reel-00000.mxf", "/projects/day-2/reel-00002.mxf"}


def test_tab_reaches_everything(chromium, quiet):
    quiet.fill(running=1)
    with opened(chromium, quiet) as page:
        live(page).locator("#running tbody tr").wait_for()
        wanted = page.evaluate("""() => [...document.querySelectorAll('a, button, input, select, textarea, summary, [tabindex="0"]')]
            .filter((it) => !it.disabled && it.checkVisibility()).map((it, at) => it.dataset.at = String(at))""")
        reached = set()
        for _ in range(len(wanted) + 5):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.dataset.at ?? ''"))
        missing = page.evaluate("(reached) => [...document.querySelectorAll('[data-at]')].filter((it) => !reached.includes(it.dataset.at)).map((it) => it.outerHTML)",
                                sorted(reached))
        assert len(wanted) > 15 and not missing, missing


def test_tables_are_searched_ordered_and_paged(chromium, busy):
    with opened(chromium, busy) as page:
        live(page)
        running, recent = page.locator("#running tbody tr"), page.locator("#recent tbody tr")
        sync_api.expect(running).to_have_count(20)
        page.get_by_label("Next page of running transfers").click()
        sync_api.expect(running.first).to_contain_text("reel-00020")
        page.locator("#running-order").select_option("rate")
        page.get_by_label("Previous page of running transfers").click()
        sync_api.expect(running.first).to_contain_text("reel-0099")
        page.locator("#running-words").fill("REEL-00042")
        sync_api.expect(running).to_have_count(1)
        sync_api.expect(page.locator("#running-count")).to_have_text("1 of 1,000")
        sync_api.expect(recent.first).to_contain_text("part-09999")
        page.get_by_role("button", name="Older").click()
        sync_api.expect(recent.first).to_contain_text("part-09979")
        page.get_by_role("button", name="Newest").click()
        sync_api.expect(recent.first).to_contain_text("part-09999")
        page.locator("#recent-words").fill("/042/ user-3")
        sync_api.expect(page.locator("#recent-count")).to_have_text(re.compile(r"^1[45] of 10,000$"))
        page.locator("#recent-words").fill("")
        page.get_by_label("failed only").check()
        sync_api.expect(page.locator("#recent-count")).to_have_text("435 of 10,000")
        sync_api.expect(recent.first).to_contain_text("failed (426)")


def test_search_finds_the_words_of_the_column_outcome(chromium, busy):
    with opened(chromium, busy) as page:
        live(page)
        outcomes = page.locator("#recent tbody td[data-label=Outcome]")
        shown = set(outcomes.all_inner_texts()) | {"failed (426)"}
        assert shown == {"completed", "failed (426)"}
        for outcome, found in [("failed (426)", "435"), ("completed", "9,565"), ("FAILED", "435")]:
            page.locator("#recent-words").fill(outcome)
            sync_api.expect(page.locator("#recent-count")).to_have_text(f"{found} of 10,000")
            assert all(outcome.lower() in text for text in outcomes.all_inner_texts()), outcome


def test_overview_and_running_transfers_come_first(chromium, busy):
    with opened(chromium, busy) as page:
        live(page)
        headings = [text.split("\n")[0] for text in page.locator("main h2").all_text_contents()]
        headings = [re.sub(r" [\d,]+$", "", text.strip()) for text in headings]
        assert headings == ["Now", "Running transfers", "Peers", "A peer over time", "Recent transfers", "Optimiser", "Controls"]
        tops = [it.bounding_box()["y"] for it in page.locator("main h2").all()]
        assert tops == sorted(tops)
        labels = page.locator("#overview dt").all_inner_texts()
        assert labels == ["Running transfers", "Total rate", "Limited by", "Plain TCP would reach"]
        sync_api.expect(page.locator("#now-transfers")).to_have_text("1,000")
        # The link measures its rate every few seconds.
        sync_api.expect(page.locator("#now-rate")).to_contain_text(" of ", timeout=20_000)
        sync_api.expect(page.locator("#now-limit")).to_have_text("WAN")
        sync_api.expect(page.locator("#now-plain")).to_have_text(re.compile("bit/s$"))
    with opened(chromium, busy, viewport=PHONE) as page:
        live(page)
        last = page.locator("#now-path").bounding_box()
        assert last["y"] + last["height"] < PHONE["height"], "the overview fits on a phone's first screen"


def test_overview_compares_the_total_rate_with_the_line(chromium, quiet):
    quiet.fill(running=2)
    until(lambda: len(quiet.status()["transfers"]) == 2, "transfers run")
    fast = {"send_bits_per_s": 640e6, "receive_bits_per_s": 8e6, "line_bits_per_s": 1e9, "limit": "WAN",
            "plain_tcp_bits_per_s": 12.3e6, "base_rtt_ms": 80.0, "loss": 0.0005}
    slow = {"name": "site-c", "send_bits_per_s": 60e6, "receive_bits_per_s": 2e6, "line_bits_per_s": 100e6,
            "limit": "client", "plain_tcp_bits_per_s": 55e6, "base_rtt_ms": 9.0, "loss": 0.0}
    idle = {"send_bits_per_s": 0, "receive_bits_per_s": 0, "line_bits_per_s": None, "limit": "",
            "plain_tcp_bits_per_s": None}
    with played(chromium, quiet) as (page, player):
        has = lambda name, text: sync_api.expect(page.locator(f"#now-{name}")).to_have_text(text)
        share = page.locator("#now-share")
        player.play(peers=[fast], transfers=[{"bits_per_s": 400e6}, {"bits_per_s": 500e6}])
        has("transfers", "2")
        sync_api.expect(page.locator("#now-sessions")).to_contain_text("900 Mbit/s of content")
        has("rate", "640 Mbit/s of 1.00 Gbit/s")
        has("directions", "sends 640 Mbit/s, receives 8.00 Mbit/s")
        assert abs(share.evaluate("(it) => it.value") - 0.64) < 1e-6
        has("limit", "WAN")
        has("plain", "12.3 Mbit/s")
        has("path", "one connection to site-b, 80.0 ms and 0.05 % loss; calculated")
        player.play(peers=[slow, fast])
        has("transfers", "0")
        has("rate", "700 Mbit/s of 1.10 Gbit/s")
        has("limit", "WAN")
        has("plain", "12.3 Mbit/s")
        player.play(peers=[idle])
        has("rate", "0 bit/s")
        sync_api.expect(share).to_be_hidden()
        has("limit", "–")
        has("cause", "No transfer moves bytes.")
        has("plain", "–")
        has("path", "No transfer used a path in ten minutes.")


def test_the_total_rate_never_exceeds_the_line(chromium, quiet):
    fast = {"send_bits_per_s": 699e6, "receive_bits_per_s": 8e6, "line_bits_per_s": None, "limit": "WAN"}
    slow = {"name": "site-c", "send_bits_per_s": 1e6, "receive_bits_per_s": 0, "line_bits_per_s": 1e6, "limit": "WAN"}
    idle = {"name": "site-d", "send_bits_per_s": 0, "receive_bits_per_s": 0, "line_bits_per_s": None, "limit": ""}
    with played(chromium, quiet) as (page, player):
        rate, share = page.locator("#now-rate"), page.locator("#now-share")
        # `line_bits_per_s` of a busy peer is unknown.
        player.play(peers=[fast, slow])
        sync_api.expect(rate).to_have_text("700 Mbit/s")
        sync_api.expect(share).to_be_hidden()
        # An idle peer needs no `line_bits_per_s`.
        player.play(peers=[slow, idle])
        sync_api.expect(rate).to_have_text("1.00 Mbit/s of 1.00 Mbit/s")
        sync_api.expect(share).to_be_visible()
        # The keep-alives of an idle peer also have a rate.
        player.play(peers=[slow, {**idle, "send_bits_per_s": 3117, "receive_bits_per_s": 3082}])
        sync_api.expect(rate).to_have_text("1.00 Mbit/s of 1.00 Mbit/s")
        sync_api.expect(share).to_be_visible()
        # The present rate of a peer exceeds its `line_bits_per_s`.
        player.play(peers=[{**fast, "line_bits_per_s": 500e6}, {**slow, "line_bits_per_s": 101e6}])
        sync_api.expect(rate).to_have_text("700 Mbit/s of 800 Mbit/s")
        assert abs(share.evaluate("(it) => it.value") - 0.875) < 1e-6


def test_an_unknown_limit_of_a_moving_transfer_is_not_measured_yet(chromium, quiet):
    quiet.fill(running=1)
    until(lambda: quiet.status()["transfers"], "a transfer runs")
    with played(chromium, quiet) as (page, player):
        cause = page.locator("#now-cause")
        player.play(peers=[{"limit": ""}], transfers=[{"bits_per_s": 5e6}])
        sync_api.expect(page.locator("#now-sessions")).to_contain_text("5.00 Mbit/s of content")
        sync_api.expect(page.locator("#now-limit")).to_have_text("–")
        sync_api.expect(cause).to_have_text("The limit is not measured yet.")
        player.play(peers=[{"limit": ""}], transfers=[{"bits_per_s": 0}])
        sync_api.expect(cause).to_have_text("No transfer moves bytes.")


def test_plain_tcp_of_a_busy_path_is_not_measured_yet(chromium, quiet):
    with played(chromium, quiet) as (page, player):
        path = page.locator("#now-path")
        for limit, text in [("client", "The rate of the path is not measured yet."),
                            ("", "No transfer used a path in ten minutes.")]:
            player.play(peers=[{"send_bits_per_s": 3117, "line_bits_per_s": None, "plain_tcp_bits_per_s": None, "limit": limit}])
            sync_api.expect(path).to_have_text(text)


def test_plain_tcp_omits_unknown_values_of_the_path(chromium, quiet):
    with played(chromium, quiet) as (page, player):
        for rtt_ms, loss, values in [(80.0, 0.0005, ", 80.0 ms and 0.05 % loss"), (None, 0.0, ", 0.00 % loss"),
                                     (80.0, None, ", 80.0 ms"), (None, None, "")]:
            player.play(peers=[{"plain_tcp_bits_per_s": 5e6, "base_rtt_ms": rtt_ms, "loss": loss}])
            sync_api.expect(page.locator("#now-path")).to_have_text(f"one connection to site-b{values}; calculated")


def test_a_refused_search_shows_the_reason(chromium, guarded):
    guarded.fill(finished=3)
    with opened(chromium, guarded, headers={}) as page:
        live(page)
        rows, problem = page.locator("#recent tbody tr"), page.locator("#recent-error")
        sync_api.expect(rows).to_have_count(3)
        sync_api.expect(problem).to_have_text("")
        page.locator("#recent-words").fill("part")
        sync_api.expect(problem).to_contain_text("names of users, files and clients are hidden")
        sync_api.expect(rows).to_have_count(0)
        sync_api.expect(page.locator("#recent-count")).to_have_text("")
        page.locator("#recent-words").fill("")
        sync_api.expect(rows).to_have_count(3)
        sync_api.expect(problem).to_have_text("")


def cut_off(page):
    """Makes all requests of the page fail until its variable `isDown` is false."""
    page.evaluate("""() => {
        const ask = fetch;
        globalThis.isDown = true;
        globalThis.fetch = (...request) => isDown ? Promise.reject(new TypeError("down")) : ask(...request);
    }""")


def test_an_unanswered_search_is_repeated(chromium, quiet):
    quiet.fill(finished=3)
    with opened(chromium, quiet) as page:
        live(page)
        rows, problem = page.locator("#recent tbody tr"), page.locator("#recent-error")
        sync_api.expect(rows).to_have_count(3)
        cut_off(page)
        page.locator("#recent-words").fill("part-00001")
        sync_api.expect(problem).to_have_text("the gateway does not answer")
        sync_api.expect(rows).to_have_count(0)
        page.evaluate("() => { isDown = false; }")
        sync_api.expect(rows).to_have_count(1)
        sync_api.expect(problem).to_have_text("")


def test_a_failed_refresh_keeps_the_rows(chromium, quiet):
    quiet.fill(finished=3)
    with opened(chromium, quiet) as page:
        live(page)
        rows, problem = page.locator("#recent tbody tr"), page.locator("#recent-error")
        sync_api.expect(rows).to_have_count(3)
        cut_off(page)
        quiet.fill(finished=1)
        sync_api.expect(problem).to_have_text("the gateway does not answer")
        sync_api.expect(rows).to_have_count(3)
        sync_api.expect(page.locator("#recent-count")).to_have_text("3")
        page.get_by_label("failed only").check()
        sync_api.expect(rows).to_have_count(0)
        page.get_by_label("failed only").uncheck()
        page.evaluate("() => { isDown = false; }")
        sync_api.expect(rows).to_have_count(4)
        sync_api.expect(problem).to_have_text("")


def test_an_empty_table_states_the_reason(chromium, quiet):
    with opened(chromium, quiet) as page:
        live(page)
        running, recent = page.locator("#running-note"), page.locator("#recent-note")
        sync_api.expect(running).to_have_text("No transfer runs.")
        sync_api.expect(recent).to_have_text("No transfer has ended yet.")
        # Two pages of the table are full, so that the third is empty.
        quiet.fill(running=2, finished=40)
        for note in (running, recent):
            sync_api.expect(note).to_have_text("")
        page.locator("#running-words").fill("no such file")
        sync_api.expect(running).to_have_text("No transfer matches.")
        sync_api.expect(page.locator("#running-count")).to_have_text("0 of 2")
        page.locator("#recent-words").fill("no such file")
        sync_api.expect(recent).to_have_text("No transfer matches.")
        page.locator("#recent-words").fill("")
        rows, older = page.locator("#recent tbody tr"), page.get_by_role("button", name="Older")
        sync_api.expect(rows).to_have_count(20)
        older.click()
        sync_api.expect(rows.first).to_contain_text("part-00019")
        older.click()
        sync_api.expect(recent).to_have_text("No older transfer matches.")
        sync_api.expect(rows).to_have_count(0)


def test_a_file_name_is_text_only(chromium, quiet):
    quiet.fill(running=1)
    until(lambda: quiet.status()["transfers"], "a transfer runs")
    name = """/in/<img src=x onerror="document.title='run'">'"&quot;</th><script>alert(1)</script>.mxf"""
    with played(chromium, quiet) as (page, player):
        player.play(transfers=[{"path": name}])
        cell = page.locator("#running tbody th")
        sync_api.expect(cell).to_have_text(name)
        assert cell.evaluate("(it) => it.childElementCount") == 0
        assert cell.get_attribute("title") == name
        assert page.locator("#running button").get_attribute("aria-label") == f"Stop {name}"
        assert page.title() == "Longhaul"


def test_numbers_have_the_right_plural(chromium, quiet):
    with played(chromium, quiet) as (page, player):
        totals = lambda number: {"transfers": number, "bytes": 0, "seconds": 0}
        for number, s in [(0, "s"), (1, ""), (2, "s"), (1000, "s")]:
            text = f"{number:,}"
            player.play({"sessions_open": number, "ftp_succeeded": totals(number), "peers_left_out": number,
                         "stores_left_out": number})
            has = lambda name, pattern: sync_api.expect(page.locator(f"#{name}")).to_have_text(re.compile(pattern))
            has("gateway", rf"; {text} session{s}; {text} transfer{s} completed, ")
            has("now-sessions", rf"^{text} session{s}; ")
            if number:
                has("peers-note", rf"^{text} further peer{s}: ")
                has("now-directions", rf"; without {text} further peer{s}$")
                has("stores-note", rf"^{text} further store{s}: ")
            else:
                has("now-directions", r"receives [\d.]+ k?bit/s$")


def test_explanations_fold_away(chromium, busy):
    with opened(chromium, busy) as page:
        live(page).locator("#controls").wait_for()
        explanations = page.locator("details.about")
        assert explanations.count() == 7
        assert "calculated" not in page.locator("main").inner_text().replace("; calculated", "")
        for explanation in explanations.all():
            paragraph = explanation.locator("p").first
            sync_api.expect(paragraph).to_be_hidden()
            explanation.locator("summary").click()
            sync_api.expect(paragraph).to_be_visible()
        sync_api.expect(page.locator("main")).to_contain_text("calculated, not measured", use_inner_text=True)


def test_tables_are_cards_on_a_phone(chromium, busy):
    with opened(chromium, busy, viewport=PHONE) as page:
        live(page)
        page.locator("#recent tbody tr").first.wait_for()
        page.locator("#stores tbody tr").first.wait_for()
        for summary in page.locator("summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], "the page scrolls sideways"
        for name in TABLES:
            table = page.locator(f"#{name}")
            wide = table.evaluate("""(table) => [table, table.parentElement, ...table.querySelectorAll('tbody *')]
                .filter((it) => it.scrollWidth > it.clientWidth && getComputedStyle(it).overflowX !== 'visible' || it.getBoundingClientRect().right > 360)
                .map((it) => it.outerHTML.slice(0, 200))""")
            assert not wide, (name, wide)
            heads = table.locator("thead th").all_text_contents()
            row = table.locator("tbody tr").first
            labels = row.evaluate("(row) => [...row.cells].map((it) => it.dataset.label)")
            assert labels == heads, name
            shown = row.evaluate("""(row) => [...row.cells].filter((it) => it.localName === 'td')
                .map((it) => [getComputedStyle(it, '::before').content, `"${it.dataset.label}"`])""")
            assert len(shown) == len(heads) - 1 and all(text == label for text, label in shown), (name, shown)
            tops = row.evaluate("(row) => [...row.cells].map((it) => it.getBoundingClientRect().top)")
            assert len(set(tops)) == len(tops), "each value has a line of its own"
            assert row.evaluate("(row) => row.querySelector('th').getBoundingClientRect().top") == min(tops)
            # The ARIA roles remain when the page shows the row as a card.
            assert row.get_attribute("role") == "row" and table.get_attribute("role") == "table"
        sync_api.expect(page.locator("#running tbody tr")).to_have_count(5)
        page.set_viewport_size({"width": 1300, "height": 900})
        sync_api.expect(page.locator("#running tbody tr")).to_have_count(20)
        sync_api.expect(page.locator("#running thead")).to_be_visible()
        tops = page.locator("#running tbody tr").first.evaluate("(row) => [...row.cells].map((it) => it.getBoundingClientRect().top)")
        assert len(set(tops)) == 1, "a wide screen shows a table"


def test_savings_are_shown(chromium, busy):
    with opened(chromium, busy) as page:
        live(page)
        sync_api.expect(page.locator("#recent tbody tr").first).to_contain_text("570 MB, 570 kB on the WAN")
        sync_api.expect(page.locator("#saved")).to_contain_text("on the WAN")
        sync_api.expect(page.locator("#saved")).to_contain_text("by deduplication")
        store = page.locator("#stores tbody tr")
        sync_api.expect(store).to_have_count(1)
        sync_api.expect(store).to_contain_text("site-b")
        sync_api.expect(store).to_contain_text("0 B of 8.59 GB")


def test_a_peer_over_time(chromium, busy):
    with opened(chromium, busy) as page:
        live(page)
        plots = page.get_by_role("img")
        sync_api.expect(plots).to_have_count(4)
        sync_api.expect(plots.first).to_have_attribute("aria-label", re.compile("^Rate of site-b, now: sends .*bit/s"))
        sync_api.expect(page.locator("#plots canvas")).to_have_count(4)
        page.get_by_text("Rate as a table").click()
        sync_api.expect(page.locator("figure").first.locator("tr")).to_have_count(4)
        page.get_by_text("Limited by as a table").click()
        sync_api.expect(page.locator("figure").last).to_contain_text("WAN")
        page.locator("#plots-span").select_option("day")
        sync_api.expect(page.locator("#plots canvas")).to_have_count(4)
        sync_api.expect(page.locator("#peers tbody tr")).to_contain_text("up")
        # The page states that it calculates these values.
        sync_api.expect(page.locator("section").first).to_contain_text("calculated, not measured")


def test_an_invite_takes_the_token(chromium, guarded):
    with opened(chromium, guarded, headers={}) as page:
        live(page)
        assert page.locator("#controls").is_hidden()
        page.get_by_label("Token").fill("wrong" * 8)
        page.keyboard.press("Enter")
        sync_api.expect(page.locator("#told")).to_have_text("this is not the token")
        page.get_by_label("Token").fill(TOKEN)
        page.keyboard.press("Enter")
        page.get_by_label("Address of this gateway from outside").fill("203.0.113.9:4810")
        page.get_by_label("Name of the peer").fill("oslo")
        page.get_by_role("button", name="Make an invite").click()
        invite = page.get_by_label("Invite", exact=True)
        sync_api.expect(invite).to_have_value(re.compile("^longhaul-invite-1-"))
        with open(os.path.join(guarded.folder, "a.key.peers")) as register:
            assert 'name = "oslo"' in register.read()
        cookie = page.context.cookies()[0]
        assert cookie["httpOnly"] and cookie["sameSite"] == "Strict", cookie
        page.get_by_role("button", name="Log out").click()
        page.get_by_label("Token").wait_for()
        assert page.context.cookies() == []


def test_without_a_token_the_page_has_no_controls(chromium, tokenless):
    with opened(chromium, tokenless, headers={}) as page:
        live(page)
        assert page.locator("#controls").is_hidden()


def test_another_address_shows_a_login(chromium, options):
    keys = 'listen = "0.0.0.0:0"\ntoken_file = "admin.token"'
    with Gateways(options.gateways, keys) as gateways:
        with opened(chromium, gateways, headers={}) as page:
            sync_api.expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            assert "Peers" not in page.content()
            violations(page, "login")
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Log in").click()
            live(page)
    with Gateways(options.gateways, 'listen = "0.0.0.0:0"') as gateways:
        with pytest.raises(urllib.error.HTTPError) as refused:
            gateways.get("/")
        assert refused.value.code == 403 and "token_file" in refused.value.read().decode()


def client_ca(folder):
    """Runs the commands of docs/how-to/dashboard-over-tls.md, which make a CA and a certificate for Ada."""
    new = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -noenc"
    for command in [
            f"{new} -days 3650 -subj /CN=Dashboard -keyout ca.key -out people.pem",
            f"{new} -CA people.pem -CAkey ca.key -days 180 -subj /CN=Ada -addext basicConstraints=critical,CA:FALSE "
            "-addext extendedKeyUsage=clientAuth -keyout ada.key -out ada.pem"]:
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)


def test_a_certificate_lets_a_browser_in(chromium, options):
    keys = ('listen = "127.0.0.1:0"\ntoken_file = "admin.token"\n'
            '[admin.https]\nlisten = "127.0.0.1:0"\nclient_ca = "people.pem"')
    with Gateways(options.gateways, keys, prepare=client_ca) as gateways:
        adas = {"origin": gateways.url, "certPath": os.path.join(gateways.folder, "ada.pem"),
                "keyPath": os.path.join(gateways.folder, "ada.key")}
        with opened(chromium, gateways, headers={}, ignore_https_errors=True) as page:
            sync_api.expect(page.get_by_role("heading", name="Log in")).to_be_visible()
            page.get_by_label("Token").fill(TOKEN)
            page.get_by_role("button", name="Log in").click()
            live(page)
            assert page.context.cookies()[0]["secure"], page.context.cookies()
        with opened(chromium, gateways, headers={}, ignore_https_errors=True, client_certificates=[adas]) as page:
            live(page)
            page.get_by_label("Address of this gateway from outside").fill("203.0.113.9:4810")
            page.get_by_label("Name of the peer").fill("oslo")
            page.get_by_role("button", name="Make an invite").click()
            invite = page.get_by_label("Invite", exact=True)
            sync_api.expect(invite).to_have_value(re.compile("^longhaul-invite-1-"))
            assert page.context.cookies() == []


def violations(page, where):
    found = axe.Axe().run(page).response["violations"]
    assert not found, (where, [(it["id"], [node["target"] for node in it["nodes"]][:3]) for it in found])


@pytest.mark.parametrize("width", [*WIDTHS, PHONE["width"]])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_axe_finds_nothing(chromium, busy, scheme, width):
    with opened(chromium, busy, viewport={"width": width, "height": 900}, color_scheme=scheme) as page:
        live(page)
        page.locator("#recent tbody tr").first.wait_for()
        for summary in page.locator("summary").all():
            summary.click()
        violations(page, "page")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, "it scrolls sideways"
        page.locator("#running tbody button").first.click()
        page.get_by_role("dialog").wait_for()
        violations(page, "dialog")


def invented_samples():
    """Returns ten minutes of samples of a peer whose path has 1 Gbit/s, 80 ms and a loss of 0.05 %."""
    now, samples = int(time.time()), []
    for second in range(600):
        wave = math.sin(second / 40) + 0.5 * math.sin(second / 7)
        rate = 600e6 + 65e6 * wave if second > 90 else 0.0
        limit = "" if rate == 0 else "client" if second < 140 else "WAN"
        queue_ms = 0.8 + 0.3 * wave if rate else 0.0
        samples.append([now - 600 + second, rate, rate / 60, 720e6, 80 + queue_ms, 80.0, queue_ms, 0.0005, limit])
    return samples


def play_invented(player):
    """Sends the state of a busy gateway for the pictures."""
    line = max(sample[1] for sample in invented_samples())
    peer = {"send_bits_per_s": 640e6, "receive_bits_per_s": 10.6e6, "allowed_bits_per_s": 720e6, "line_bits_per_s": line,
            "rtt_ms": 80.9, "base_rtt_ms": 80.0, "queue_delay_ms": 0.9, "loss": 0.0005, "limit": "WAN",
            "plain_tcp_bits_per_s": 7.93e6, "transfers_open": 12}
    transfers = []
    for number in range(12):
        done, rate = 400_000_000 * (9 - number % 9), (64 - number) * 1e6
        transfers.append({"up_bytes": done, "down_bytes": 0, "wan_bytes": done * (10 - number % 3) // 10, "bits_per_s": rate,
                          "limit": "client" if number == 4 else "WAN"})
    player.play({"now_unix_s": int(time.time()), "sessions_open": 9}, [peer], transfers)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_pictures(chromium, busy, options, tmp_path, scheme, width):
    view = {"viewport": {"width": width, "height": 1200}, "color_scheme": scheme}
    answer = lambda route: route.fulfill(json={"columns": [], "samples": invented_samples()})
    prepare = lambda page: page.route("**/dashboard/history*", answer)
    with played(chromium, busy, prepare, **view) as (page, player):
        play_invented(player)
        page.locator("#recent tbody tr").first.wait_for()
        page.locator("#plots canvas").first.wait_for()
        play_invented(player)
        sync_api.expect(page.locator("#now-rate")).to_have_text("640 Mbit/s of 697 Mbit/s")
        live(page)
        picture = tmp_path / "page.png"
        page.screenshot(path=picture)
        assert os.path.getsize(picture) > 20_000
        if options.write:
            shutil.copy(picture, os.path.join(ROOT, "docs", f"dashboard-{width}-{scheme}.png"))


def test_a_rebound_name_gets_nothing(chromium, quiet):
    """The dashboard refuses requests under another host name, as a page sends them after DNS rebinding."""
    context = chromium.new_context()
    page = context.new_page()
    answer = page.goto(f"http://evil.example:{quiet.port}/")
    assert answer.status == 421, answer.status
    for path in ["/dashboard/events", "/dashboard/recent", "/status.json"]:
        assert page.evaluate("(path) => fetch(path).then((it) => it.status)", path) == 421
    said = page.evaluate("""() => fetch('/dashboard/stop', {method: 'POST', body: '{"transfer": 1}',
        headers: {'Content-Type': 'application/json'}}).then((it) => it.status)""")
    assert said == 421
    context.close()


@contextlib.contextmanager
def other_site():
    """Starts another web server on this machine, and yields its port."""
    class Pages(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>other</title>")

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize("name", ["127.0.0.1", "evil.example"])
def test_another_page_changes_and_reads_nothing(chromium, guarded, name):
    guarded.fill(running=1)
    until(lambda: guarded.status()["transfers"], "a transfer runs")
    number = guarded.status()["transfers"][0]["id"]
    with other_site() as port:
        context = chromium.new_context()
        # The operator is logged in to the dashboard in the same browser.
        own = context.new_page()
        own.goto(guarded.url)
        live(own)
        own.get_by_label("Token").fill(TOKEN)
        own.keyboard.press("Enter")
        own.get_by_role("button", name="Set limit").wait_for()
        page = context.new_page()
        page.goto(f"http://{name}:{port}/")
        said = page.evaluate("""async ([url, number]) => {
            const body = JSON.stringify({transfer: number});
            const ask = (path, options) => fetch(url + path, {credentials: 'include', ...options}).then((it) => it.type + it.status, () => 'refused');
            const post = {method: 'POST', body};
            return [
                await ask('/dashboard/stop', {...post, headers: {'Content-Type': 'application/json'}}),
                await ask('/dashboard/stop', {...post, mode: 'no-cors', headers: {'Content-Type': 'text/plain'}}),
                await ask('/dashboard/stop?transfer=' + number, {mode: 'no-cors'}),
                await ask('/dashboard/recent', {}),
                await new Promise((done) => {
                    const source = new EventSource(url + '/dashboard/events', {withCredentials: true});
                    source.onmessage = () => done('read');
                    source.onerror = () => done('refused');
                }),
            ];
        }""", [guarded.url, number])
        assert said[0] == said[3] == said[4] == "refused", said
        assert "opaque200" not in said[1:3], said
        page.evaluate("""([url, number]) => {
            const form = document.createElement('form');
            Object.assign(form, {method: 'POST', action: url + '/dashboard/stop', enctype: 'text/plain'});
            const field = document.createElement('input');
            field.name = '{"transfer": ' + number + ', "x": "';
            field.value = '"}';
            form.append(field);
            document.body.append(form);
            form.submit();
        }""", [guarded.url, number])
        page.wait_for_url("**/dashboard/stop")
        frame = context.new_page()
        frame.goto(f"http://{name}:{port}/")
        frame.evaluate("(url) => { const it = document.createElement('iframe'); it.src = url; document.body.append(it); }", guarded.url)
        time.sleep(0.5)
        shown = [it.evaluate("document.title") for it in frame.frames[1:]]
        assert "Longhaul" not in shown, "another page shows the dashboard in a frame"
        context.close()
    assert guarded.status()["transfers"][0]["id"] == number, "it still runs"


def test_tabs_share_one_stream(chromium, quiet):
    context = chromium.new_context(extra_http_headers=OWNER)
    asked = []
    context.on("request", lambda request: asked.append(request.url) if request.url.endswith("/events") else None)
    pages = []
    for _ in range(8):
        page = context.new_page()
        page.goto(quiet.url)
        pages.append(live(page))
    assert len(asked) == 1, asked
    quiet.fill(running=1)
    for page in pages:
        sync_api.expect(page.locator("#running-count")).to_have_text("1")
    # The tab with the stream closes, and another tab opens the stream.
    pages.pop(0).close()
    quiet.fill(running=1)
    for page in pages:
        sync_api.expect(page.locator("#running-count")).to_have_text("2")
    assert len(asked) == 2, asked
    context.close()


def test_a_page_that_does_not_read_is_dropped(busy):
    lazy = socket.socket()
    lazy.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    lazy.connect(("127.0.0.1", busy.port))
    head = f"Host: localhost:{busy.port}\r\nAuthorization: Bearer {TOKEN}"
    lazy.sendall(f"GET /dashboard/events HTTP/1.1\r\n{head}\r\n\r\n".encode())
    place = lambda: subprocess.run(["ss", "-Htn", f"sport = :{busy.port} and dport = :{lazy.getsockname()[1]}"],
                                   capture_output=True, text=True).stdout
    until(lambda: "ESTAB" in place(), "it is connected")
    begun = time.monotonic()
    until(lambda: "ESTAB" not in place(), "it is dropped", 60)
    print(f"dropped after {time.monotonic() - begun:.0f} s")
    lazy.close()


def test_a_tab_left_open_for_an_hour_keeps_nothing(chromium, busy):
    """The page's memory hardly grows in an hour of changes.

    Another tab takes the role of the tab with the stream, and sends the changes as fast as the page accepts them.
    """
    context = chromium.new_context(extra_http_headers=OWNER)
    player = context.new_page()
    player.goto(busy.url + "/dashboard/icon.svg")
    player.evaluate("new Promise((done) => navigator.locks.request('longhaul-events', () => { done(); return new Promise(() => {}); }))")
    page = context.new_page()
    page.goto(busy.url)
    page.locator("#recent tbody tr").first.wait_for()
    devtools = context.new_cdp_session(page)
    devtools.send("Performance.enable")
    player.evaluate("""async (url) => {
        const text = await new Promise((done) => {
            const source = new EventSource('/dashboard/events');
            const got = {};
            for (const name of ['gateway', 'transfers']) source.addEventListener(name, (event) => {
                got[name] ??= JSON.parse(event.data);
                if (got.gateway && got.transfers) { source.close(); done(got); }
            });
        });
        globalThis.first = text;
        globalThis.channel = new BroadcastChannel('longhaul');
        globalThis.count = 0;
        channel.postMessage({name: 'gateway', data: text.gateway});
        channel.postMessage({name: 'transfers', data: text.transfers});
        globalThis.play = async (changes) => {
            for (let at = 0; at < changes; at += 1) {
                count += 1;
                const data = {...first.gateway, now_unix_s: first.gateway.now_unix_s + Math.floor(count / 3)};
                channel.postMessage({name: 'gateway', data});
                // Some transfers move bytes, and a new transfer replaces an old one.
                const all = first.transfers.opened;
                const moved = all.slice(0, 300).map((it) => [it.id, it.up_bytes, it.down_bytes + count * 1000, it.bits_per_s + count % 97, 'WAN', 10, it.wan_bytes + count * 300]);
                const id = 1e9 + count;
                channel.postMessage({name: 'transfers', data: {is_all: false, opened: [{...all[0], id, path: 'new-' + count}], moved, closed: [id - 200]}});
                if (at % 4 === 0) await new Promise((done) => setTimeout(done, 0));
            }
        };
    }""")
    live(page)

    def used():
        devtools.send("HeapProfiler.collectGarbage")
        metrics = {it["name"]: it["value"] for it in devtools.send("Performance.getMetrics")["metrics"]}
        return metrics["JSHeapUsedSize"] / 1024, metrics["Nodes"], metrics["JSEventListeners"]

    figures, steps = [], 6
    begun = player.evaluate("first.gateway.now_unix_s - first.gateway.started_unix_s")
    for _ in range(steps):
        player.evaluate("(changes) => play(changes)", HOUR_CHANGES // (steps - 2))
        up_min = round((begun + player.evaluate("count") // CHANGES_PER_S) / 60)
        sync_api.expect(page.locator("#gateway")).to_contain_text(f"up for {up_min} min", timeout=60_000)
        figures.append(used())
    # The first half hour fills the plots.
    growth_kb = figures[-1][0] - figures[1][0]
    print("KB, nodes, listeners:", *(tuple(map(round, it)) for it in figures), f"; {growth_kb:.0f} KB an hour",
          f"; gateway {busy.memory_kib()} KiB")
    assert growth_kb < GROWTH_MAX_KB, figures
    assert figures[-1][1] < figures[1][1] * 1.1 + 200, figures
    assert figures[-1][2] <= figures[1][2] + 20, figures
    context.close()


@contextlib.contextmanager
def browser_in(world, site):
    """Yields a function that runs a given function with a browser in a site.

    Playwright starts the browser in the network namespace of the calling thread, so a separate thread enters the site.
    """
    made = {}

    def work():
        with world.entered(site):
            with sync_api.sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
                try:
                    made["result"] = made["use"](browser)
                except BaseException as error:
                    made["error"] = error
                browser.close()

    def use(function):
        made["use"] = function
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if "error" in made:
            raise made["error"]

    yield use


def test_transfers_of_a_real_pair(world):
    """The dashboard shows a real transfer's progress and time left, limits its rate and stops it.

    The client reports a failure after the stop. The dashboard also shows the time that plain TCP would have taken.
    """
    server = servers.start_vsftpd(world)
    token_file = world.path("admin.token")
    with open(os.open(token_file, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(TOKEN)
    world.pair(f'[admin]\ntoken_file = "{token_file}"\n')
    make_file(server.file("large"), 400_000_000)
    url = f"ftp://127.0.0.1:{NEAR_PORT}/files/large"
    curl = subprocess.Popen(world.inside("a", "curl", "-sS", "-o", os.devnull, url), stderr=subprocess.PIPE, text=True)

    def look(browser):
        page = browser.new_page(extra_http_headers=OWNER)
        page.set_default_timeout(PATIENCE_MS)
        page.goto("http://127.0.0.1:9810/")
        row = live(page).locator("#running tbody tr")
        sync_api.expect(row).to_contain_text("% of 400 MB")
        line = re.compile(r"bit/s of [\d.]+ Mbit/s$")
        sync_api.expect(page.locator("#now-rate")).to_have_text(line, timeout=PATIENCE_MS)
        left = r"\d+(\.\d)? s"
        sync_api.expect(row.locator("td").nth(4)).to_have_text(re.compile(left))
        page.get_by_label("Rate", exact=True).fill("20 Mbit/s")
        page.locator("#rate-peer").select_option("site-b")
        page.get_by_role("button", name="Set limit").click()
        # The limit of a peer also applies to the bytes that the peer sends.
        slow = re.compile(r"^(1\d|20)\.\d Mbit/s$")
        sync_api.expect(row.locator("td").nth(3)).to_have_text(slow, timeout=15_000)
        sync_api.expect(page.locator("#peers tbody tr")).to_contain_text("rate limit")
        row.get_by_role("button", name="Stop").click()
        page.get_by_role("button", name="Stop it").click()
        recent = page.locator("#recent tbody tr").first
        sync_api.expect(recent).to_contain_text("failed")
        # With a loss of 0.1 % and a round-trip time of 100 ms, CUBIC reaches a few Mbit/s.
        sync_api.expect(recent.locator("td").last).to_have_text(re.compile(r"(min|s)( \(|$)"))
        print("peer:", page.locator("#peers tbody tr").inner_text(), "transfer:", recent.inner_text())

    with browser_in(world, "a") as use:
        use(look)
    _, said = curl.communicate(timeout=20)
    assert curl.returncode != 0, "the client sees a failure"
    print(f"curl ends with {curl.returncode}: {said.strip()}")
