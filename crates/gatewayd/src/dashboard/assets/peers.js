// The table of peers.
import * as format from "./format.js";
import { label, prepare } from "./table.js";

const rows = new Map();
const table = document.getElementById("peers");
const body = table.tBodies[0];
const note = document.getElementById("peers-note");
const CELLS = 12;

const STATES = { up: "up", silent: "silent", connecting: "connecting", refused: "refused", "never-answered": "never answered", dismissed: "removed this gateway" };

export function rateLimit(limit) {
  const now = limit.now_bits_per_s == null ? "none" : format.rate(limit.now_bits_per_s);
  return limit.is_by_hand ? `${now}, by hand` : now;
}

function row(name) {
  const element = document.createElement("tr");
  const head = document.createElement("th");
  head.scope = "row";
  head.textContent = name;
  element.append(head);
  for (let at = 1; at < CELLS; at += 1) element.append(document.createElement("td"));
  return label(table, element);
}

prepare(table);

export function show(gateway) {
  const names = new Set();
  for (const peer of gateway.peers) {
    names.add(peer.name);
    if (!rows.has(peer.name)) {
      rows.set(peer.name, row(peer.name));
      body.append(rows.get(peer.name));
    }
    const cells = rows.get(peer.name).cells;
    const texts = [
      STATES[peer.state] ?? peer.state, format.ms(peer.rtt_ms), format.ms(peer.queue_delay_ms), format.percent(peer.loss),
      format.rate(peer.send_bits_per_s), format.rate(peer.receive_bits_per_s), format.rate(peer.allowed_bits_per_s),
      format.count(peer.transfers_open), peer.limit || "–", rateLimit(peer.rate_max),
      peer.plain_tcp_bits_per_s == null ? "–" : format.rate(peer.plain_tcp_bits_per_s),
    ];
    texts.forEach((text, at) => format.put(cells[at + 1], text));
    cells[1].className = peer.state === "up" ? "good" : "bad";
  }
  for (const [name, element] of rows) {
    if (!names.has(name)) {
      element.remove();
      rows.delete(name);
    }
  }
  const out = gateway.peers_left_out;
  format.put(note, out ? `${format.counted(out, "further peer")}: see /status.json.` : names.size ? "" : "No peer yet.");
}
