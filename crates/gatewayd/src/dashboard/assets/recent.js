// The table of transfers that have ended. The gateway searches; a page of the table comes at a time.
import { get } from "./ask.js";
import * as format from "./format.js";
import { label, prepare } from "./table.js";

const table = document.getElementById("recent");
const body = table.tBodies[0];
const count = document.getElementById("recent-count");
const words = document.getElementById("recent-words");
const note = document.getElementById("recent-note");
const problem = document.getElementById("recent-error");
const failed = document.getElementById("recent-failed");
const older = document.getElementById("recent-older");
const newest = document.getElementById("recent-newest");
// As many as the gateway sends at a time.
const PAGE = 20;
let total = null, before = null, shown = null, asked = 0, timer = 0, isBusy = false, isLost = false;

function plain(it) {
  if (it.plain_tcp_s == null) return "–";
  const factor = it.duration_s > 0 ? it.plain_tcp_s / it.duration_s : 0;
  const times = factor >= 1.5 ? ` (${factor.toFixed(factor < 10 ? 1 : 0)} x)` : "";
  return `${it.direction === "upload" ? "" : "≥ "}${format.duration(it.plain_tcp_s)}${times}`;
}

function row(it) {
  const made = document.createElement("tr");
  // The gateway searches for the same words.
  const outcome = it.succeeded ? "completed" : `failed${it.reply_code ? ` (${it.reply_code})` : ""}`;
  const rate = it.duration_s > 0 ? format.rate((it.bytes * 8) / it.duration_s) : "–";
  const file = it.path || it.verb;
  const texts = [format.time(it.ended_unix_ms), outcome, file, it.direction ?? it.verb, it.user, it.client, it.peer,
    format.shrunk(it.bytes, it.wan_bytes), format.duration(it.duration_s), rate, it.limited_by ?? "–", plain(it)];
  texts.forEach((text, at) => {
    const cell = document.createElement(at === 2 ? "th" : "td");
    cell.textContent = text;
    if (at === 1) cell.className = it.succeeded ? "good" : "bad";
    if (at === 2) {
      cell.scope = "row";
      cell.className = "file";
      cell.title = file;
    }
    made.append(cell);
  });
  return label(table, made);
}

async function load() {
  const mine = (asked += 1);
  const fields = { words: words.value.slice(0, 60) };
  if (failed.checked) fields.failed = "true";
  if (before != null) fields.before = before;
  const search = JSON.stringify(fields);
  isBusy = true;
  let found = null, error = null;
  try {
    found = await get("dashboard/recent", fields);
  } catch (caught) {
    error = caught;
  }
  if (mine !== asked) return;
  isBusy = false;
  isLost = Boolean(error && !error.status);
  format.put(problem, error?.message ?? "");
  // The rows of another search would be mistaken for those of the search that failed.
  if (!error) showFound(found);
  else if (search !== shown) showNothing();
  shown = !error || search === shown ? search : null;
}

function showNothing() {
  body.replaceChildren();
  older.disabled = true;
  newest.disabled = before == null;
  format.put(count, "");
  format.put(note, "");
}

function emptyText({ kept, matching }) {
  if (!kept) return "No transfer has ended yet.";
  return matching ? "No older transfer matches." : "No transfer matches.";
}

function showFound(found) {
  body.replaceChildren(...found.transfers.map(row));
  older.disabled = found.transfers.length < PAGE;
  older.dataset.before = found.transfers.at(-1)?.number ?? "";
  newest.disabled = before == null;
  const matching = format.count(found.matching);
  format.put(note, found.transfers.length ? "" : emptyText(found));
  format.put(count, found.matching === found.kept ? matching : `${matching} of ${format.count(found.kept)}`);
}

const fromTheStart = () => {
  before = null;
  load();
};

export function start() {
  prepare(table);
  words.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(fromTheStart, 200);
  });
  failed.addEventListener("change", fromTheStart);
  newest.addEventListener("click", fromTheStart);
  older.addEventListener("click", () => {
    before = older.dataset.before;
    load();
  });
  load();
}

export function show(gateway) {
  // Events arrive, so the gateway answers again.
  if (isLost && !isBusy) load();
  // Who reads older ones is not moved on.
  const isNews = total !== gateway.recent_total && before == null && !isBusy;
  if (isNews && total != null) load();
  if (isNews || total == null) total = gateway.recent_total;
}
