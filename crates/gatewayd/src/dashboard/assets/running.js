// The table of running transfers, a page at a time.
import { post } from "./ask.js";
import * as format from "./format.js";
import { label, narrow, prepare } from "./table.js";

const ROWS = 20, CARDS = 5;
const table = document.getElementById("running");
const body = table.tBodies[0];
const count = document.getElementById("running-count");
const note = document.getElementById("running-note");
const words = document.getElementById("running-words");
const order = document.getElementById("running-order");
const pages = document.getElementById("running-pages");
const dialog = document.getElementById("ask");
const rows = new Map();
let page = 0, state = null, may = false, tell = () => {};

const pageSize = () => (narrow.matches ? CARDS : ROWS);
const moved = (it) => Math.max(it.up_bytes, it.down_bytes);
const left = (it) => (it.size_bytes == null || !it.bits_per_s ? Infinity : (Math.max(0, it.size_bytes - moved(it)) * 8) / it.bits_per_s);
const ORDERS = { age: (a, b) => a.id - b.id, rate: (a, b) => b.bits_per_s - a.bits_per_s || a.id - b.id, left: (a, b) => left(a) - left(b) || a.id - b.id };
const name = (it) => it.path || `(${it.kind}, ${it.side} gateway)`;
const text = (it) => `${it.path}\n${it.client}\n${it.target}\n${it.peer}\n${it.kind}\n${it.side}`.toLowerCase();

function row(it) {
  const made = document.createElement("tr");
  for (let at = 0; at < 10; at += 1) made.append(document.createElement(at === 0 ? "th" : "td"));
  made.cells[0].scope = "row";
  made.cells[0].className = "file";
  const button = document.createElement("button");
  button.type = "button";
  button.className = "danger";
  button.textContent = "Stop";
  button.addEventListener("click", () => stop(it.id));
  made.cells[1].append(button);
  const bar = document.createElement("progress");
  bar.max = 1;
  bar.hidden = true;
  made.cells[2].append(bar, document.createElement("span"));
  return label(table, made);
}

function fill(made, it) {
  const [file, control, progress, ...others] = made.cells;
  format.put(file, name(it));
  file.title = name(it);
  const button = control.firstChild;
  button.disabled = !may;
  button.setAttribute("aria-label", `Stop ${name(it)}`);
  const [bar, share] = progress.children;
  const part = it.size_bytes ? Math.min(1, moved(it) / it.size_bytes) : null;
  bar.hidden = part == null;
  if (part != null) {
    bar.value = part;
    bar.setAttribute("aria-label", `progress of ${name(it)}`);
  }
  format.put(share, part == null ? "size unknown" : ` ${(part * 100).toFixed(0)} % of ${format.bytes(it.size_bytes)}`);
  const texts = [format.shrunk(it.up_bytes + it.down_bytes, it.wan_bytes), format.rate(it.bits_per_s), format.duration(left(it)), it.limit || "–", it.peer, it.client || "–", it.target];
  texts.forEach((value, at) => format.put(others[at], value));
}

async function stop(id) {
  const it = state.transfers.get(id);
  if (!it) return;
  document.getElementById("ask-what").textContent = `${name(it)}, ${it.client} to ${it.target}`;
  dialog.returnValue = "no";
  dialog.showModal();
  await new Promise((done) => dialog.addEventListener("close", done, { once: true }));
  if (dialog.returnValue !== "yes") return;
  try {
    await post("dashboard/stop", { transfer: id });
    tell(`Stopped: ${name(it)}`);
  } catch (error) {
    tell(error.message);
  }
}

function draw() {
  if (!state) return;
  const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
  let found = [...state.transfers.values()];
  if (wanted.length) found = found.filter((it) => wanted.every((word) => text(it).includes(word)));
  found.sort(ORDERS[order.value]);
  const size = pageSize();
  const last = Math.max(0, Math.ceil(found.length / size) - 1);
  page = Math.min(page, last);
  const shown = found.slice(page * size, (page + 1) * size);
  const ids = new Set(shown.map((it) => it.id));
  for (const [id, made] of rows) {
    if (!ids.has(id)) {
      made.remove();
      rows.delete(id);
    }
  }
  shown.forEach((it, at) => {
    if (!rows.has(it.id)) rows.set(it.id, row(it));
    const made = rows.get(it.id);
    fill(made, it);
    if (body.children[at] !== made) body.insertBefore(made, body.children[at] ?? null);
  });
  const all = format.count(state.transfers.size);
  format.put(count, wanted.length ? `${format.count(found.length)} of ${all}` : all);
  format.put(note, found.length ? "" : state.transfers.size ? "No transfer matches." : "No transfer runs.");
  drawPages(last, found.length, size);
}

function drawPages(last, total, size) {
  const [before, where, after] = pages.children;
  pages.hidden = last === 0;
  before.disabled = page === 0;
  after.disabled = page === last;
  format.put(where, `${format.count(page * size + 1)} to ${format.count(Math.min(total, (page + 1) * size))} of ${format.count(total)}`);
}

export function start(say) {
  tell = say;
  prepare(table);
  for (const [label, step] of [["Previous", -1], ["", 0], ["Next", 1]]) {
    const made = document.createElement(step ? "button" : "span");
    if (step) {
      made.type = "button";
      made.textContent = label;
      made.setAttribute("aria-label", `${label} page of running transfers`);
      made.addEventListener("click", () => {
        page += step;
        draw();
      });
    }
    pages.append(made);
  }
  words.addEventListener("input", () => {
    page = 0;
    draw();
  });
  order.addEventListener("change", draw);
  narrow.addEventListener("change", draw);
}

export function allow(change) {
  may = change;
  draw();
}

export function show(fresh) {
  state = fresh;
  draw();
}
