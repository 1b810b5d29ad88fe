// What the optimiser has saved, and the table of its chunk stores.
import * as format from "./format.js";
import { label, prepare } from "./table.js";

const rows = new Map();
const saved = document.getElementById("saved");
const note = document.getElementById("stores-note");
const region = document.getElementById("stores-region");
const table = document.getElementById("stores");
const body = table.tBodies[0];
const CELLS = 10;

function row() {
  const made = document.createElement("tr");
  for (let at = 0; at < CELLS; at += 1) made.append(document.createElement(at === 0 ? "th" : "td"));
  made.cells[0].scope = "row";
  return label(table, made);
}

function showSaved({ bytes, wan_bytes, compression_saved_bytes, deduplication_saved_bytes, processor_s }) {
  if (!bytes) return format.put(saved, "No transfer was coded yet.");
  const parts = [
    `${format.bytes(bytes)} of content, ${format.bytes(wan_bytes)} on the WAN: ${format.percent(wan_bytes / bytes)}.`,
    `Saved by compression: ${format.bytes(compression_saved_bytes)}, by deduplication: ${format.bytes(deduplication_saved_bytes)}.`,
    `Processor time: ${format.duration(processor_s)}.`,
  ];
  format.put(saved, parts.join(" "));
}

prepare(table);

export function show(gateway) {
  showSaved(gateway.optimiser);
  const names = new Set();
  for (const store of gateway.stores) {
    names.add(store.store);
    if (!rows.has(store.store)) rows.set(store.store, row());
    const made = rows.get(store.store);
    if (!made.isConnected) body.append(made);
    const texts = [
      store.peer, store.tenant || "–", store.is_rebuilding ? "rebuilding" : "ready", format.count(store.chunks),
      `${format.bytes(store.disk_bytes)} of ${format.bytes(store.size_max_bytes)}`, format.bytes(store.index_bytes),
      format.count(store.hits), format.count(store.misses), format.count(store.damaged),
      format.count(store.dropped + store.write_errors),
    ];
    texts.forEach((text, at) => format.put(made.cells[at], text));
  }
  for (const [name, made] of rows) {
    if (!names.has(name)) {
      made.remove();
      rows.delete(name);
    }
  }
  region.hidden = names.size === 0;
  const out = gateway.stores_left_out;
  format.put(note, out ? `${format.counted(out, "further store")}: see /status.json.` : names.size ? "" : "No chunk store is open.");
}
