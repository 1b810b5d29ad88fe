// The gateway at a glance: running transfers, the total rate against the line, its limit, and plain TCP.
import * as format from "./format.js";

const byId = (id) => document.getElementById(id);
const share = byId("now-share");

const CAUSES = {
  client: "Clients send or read more slowly than the link.",
  WAN: "The path between the gateways has no more capacity.",
  server: "Servers send or read more slowly than the link.",
  "rate limit": "The configuration or this page sets the limit.",
};

const sum = (items, value) => items.reduce((total, it) => total + value(it), 0);
const busier = (peer) => Math.max(peer.send_bits_per_s, peer.receive_bits_per_s);
const busiest = (peers) => peers.reduce((best, it) => (best && busier(best) >= busier(it) ? best : it), null);

function showTransfers(gateway, transfers, rate) {
  format.put(byId("now-transfers"), format.count(transfers.size));
  format.put(byId("now-sessions"), `${format.counted(gateway.sessions_open, "session")}; ${format.rate(rate)} of content`);
}

// The lines of all peers together. Zero if the line of a busy peer is unknown. A peer without a limit is idle: its rate is
// that of keep-alives. A line has at least the present rate.
function totalLine(peers) {
  const isUnknown = (peer) => peer.line_bits_per_s == null && peer.limit !== "";
  return peers.some(isUnknown) ? 0 : sum(peers, (it) => Math.max(it.line_bits_per_s ?? 0, busier(it)));
}

function showRate({ peers, peers_left_out: out }) {
  const sends = sum(peers, (it) => it.send_bits_per_s);
  const receives = sum(peers, (it) => it.receive_bits_per_s);
  const line = totalLine(peers);
  const rate = Math.max(sends, receives);
  const [value, of] = byId("now-rate").children;
  format.put(value, format.rate(rate));
  format.put(of, line ? `of ${format.rate(line)}` : "");
  format.put(byId("now-directions"), `sends ${format.rate(sends)}, receives ${format.rate(receives)}${out ? `; without ${format.counted(out, "further peer")}` : ""}`);
  share.hidden = !line;
  if (line) share.value = Math.min(1, rate / line);
}

function showLimit(peers, contentRate) {
  const limited = peers.filter((it) => it.limit);
  const names = [...new Set(limited.map((it) => it.limit))];
  const totals = names.map((name) => [name, sum(limited.filter((it) => it.limit === name), busier)]);
  const [limit] = totals.reduce((best, it) => (best[1] >= it[1] ? best : it), ["", -1]);
  format.put(byId("now-limit"), limit || "–");
  const none = contentRate > 0 ? "The limit is not measured yet." : "No transfer moves bytes.";
  format.put(byId("now-cause"), limit ? CAUSES[limit] ?? "" : none);
}

// The name of a peer with the known values of its path.
function describe({ name, base_rtt_ms: rttMs, loss }) {
  const values = [];
  if (rttMs != null) values.push(format.ms(rttMs));
  if (loss != null) values.push(`${format.percent(loss)} loss`);
  return values.length ? `${name}, ${values.join(" and ")}` : name;
}

function showPlainTcp(peers) {
  const peer = busiest(peers.filter((it) => it.plain_tcp_bits_per_s != null));
  format.put(byId("now-plain"), peer ? format.rate(peer.plain_tcp_bits_per_s) : "–");
  const none = peers.some((it) => it.limit) ? "The rate of the path is not measured yet." : "No transfer used a path in ten minutes.";
  format.put(byId("now-path"), peer ? `one connection to ${describe(peer)}; calculated` : none);
}

export function show({ gateway, transfers }) {
  const contentRate = sum([...transfers.values()], (it) => it.bits_per_s);
  showTransfers(gateway, transfers, contentRate);
  showRate(gateway);
  showLimit(gateway.peers, contentRate);
  showPlainTcp(gateway.peers);
}
