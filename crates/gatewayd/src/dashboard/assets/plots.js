// How a peer was over time: plots, and a table of each for who does not see them.
import uPlot from "./uPlot.esm.js";
import { get } from "./ask.js";
import * as format from "./format.js";

const LIMITS = ["nothing", "client", "WAN", "server", "rate limit"];
const SECONDS = 600, HEIGHT = 170, DAY_AGAIN_MS = 60_000;

// The fields of each plot, with what they are called and the colour that they have.
const PLOTS = [
  { title: "Rate", text: format.rate, series: [["send_bits_per_s", "sends", "one"], ["receive_bits_per_s", "receives", "two"], ["allowed_bits_per_s", "allowed", "three"]] },
  { title: "Round trip and queue", text: format.ms, series: [["rtt_ms", "RTT", "one"], ["base_rtt_ms", "base RTT", "three"], ["queue_delay_ms", "queue", "two"]] },
  { title: "Loss", text: format.percent, least: 0.001, series: [["loss", "lost", "two"]] },
  { title: "Limited by", text: (value) => LIMITS[value] ?? "–", series: [["limit", "limit", "four"]], isLimit: true },
];
const FIELDS = ["unix_s", "send_bits_per_s", "receive_bits_per_s", "allowed_bits_per_s", "rtt_ms", "base_rtt_ms", "queue_delay_ms", "loss", "limit"];

const place = document.getElementById("plots");
const choosePeer = document.getElementById("plots-peer");
const chooseSpan = document.getElementById("plots-span");
let columns = empty(), figures = [], peer = null, asked = 0, dayTimer = 0;

function empty() {
  return Object.fromEntries(FIELDS.map((field) => [field, []]));
}

const limitNumber = (name) => Math.max(0, LIMITS.indexOf(name));

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function options(plot, width) {
  const axis = { stroke: colour("soft"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 } };
  const values = (_, splits) => splits.map((value) => (value == null ? "" : plot.text(value)));
  return {
    width, height: HEIGHT, legend: { show: false }, cursor: { show: false },
    scales: { y: plot.isLimit ? { range: [-0.3, 4.3] } : { range: (_, __, most) => [0, Math.max(plot.least ?? 1, most * 1.1)] } },
    axes: [
      { ...axis, space: 70, values: (_, splits) => splits.map((unixS) => format.clock(unixS, chooseSpan.value === "minutes")) },
      { ...axis, size: 84, values, ...(plot.isLimit ? { splits: () => [0, 1, 2, 3, 4] } : {}) },
    ],
    series: [{}, ...plot.series.map(([, label, name]) => ({
      label, stroke: colour(name), width: 1.5, points: { show: false }, spanGaps: false,
      ...(plot.isLimit ? { paths: uPlot.paths.stepped({ align: 1 }) } : {}),
    }))],
  };
}

const dataOf = (plot) => [columns.unix_s, ...plot.series.map(([field]) => columns[field])];

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text) made.textContent = text;
  return made;
}

function figure(plot) {
  const frame = element("figure");
  const caption = element("figcaption", "", plot.title);
  for (const [, label, name] of plot.series) caption.append(element("span", `key ${name}`, label));
  const canvas = element("div", "plot");
  canvas.setAttribute("role", "img");
  const details = element("details");
  details.append(element("summary", "", `${plot.title} as a table`));
  const table = element("table");
  details.append(table);
  frame.append(caption, canvas, details);
  place.append(frame);
  const made = { plot, canvas, details, table, chart: null };
  details.addEventListener("toggle", () => fillTable(made));
  return made;
}

function summary(values) {
  const known = values.filter((value) => value != null).sort((a, b) => a - b);
  if (!known.length) return null;
  return { now: values.at(-1), least: known[0], median: known[known.length >> 1], most: known.at(-1) };
}

function fillTable({ plot, table, details, canvas }) {
  const told = plot.series.map(([field, label]) => [label, columns[field]]);
  const now = told.map(([label, values]) => {
    const last = values.at(-1);
    return `${label} ${last == null ? "unknown" : plot.text(last)}`;
  });
  canvas.setAttribute("aria-label", `${plot.title} of ${peer ?? "no peer"}, now: ${now.join(", ")}`);
  if (!details.open) return;
  const line = (cells, kind) => {
    const row = element("tr");
    cells.forEach((text, at) => {
      const cell = element(at === 0 || kind === "th" ? "th" : "td", "", text);
      if (cell.localName === "th") cell.scope = kind === "th" ? "col" : "row";
      row.append(cell);
    });
    return row;
  };
  if (plot.isLimit) {
    const all = columns.limit;
    const share = (number) => format.percent(all.length ? all.filter((it) => it === number).length / all.length : 0);
    table.replaceChildren(line(["Limited by", "share of the time"], "th"), ...LIMITS.map((name, at) => line([name, share(at)])));
    return;
  }
  table.replaceChildren(line([plot.title, "now", "least", "median", "most"], "th"), ...told.map(([label, values]) => {
    const found = summary(values);
    return line([label, ...(found ? [found.now, found.least, found.median, found.most].map((it) => (it == null ? "–" : plot.text(it))) : ["–", "–", "–", "–"])]);
  }));
}

function draw() {
  for (const made of figures) {
    const width = Math.floor(made.canvas.clientWidth);
    if (!width) continue;
    if (made.chart) made.chart.setData(dataOf(made.plot));
    else made.chart = new uPlot(options(made.plot, width), dataOf(made.plot), made.canvas);
    fillTable(made);
  }
}

function redraw() {
  for (const made of figures) {
    made.chart?.destroy();
    made.chart = null;
  }
  draw();
}

async function load() {
  const mine = (asked += 1);
  clearTimeout(dayTimer);
  if (peer == null) return;
  const span = chooseSpan.value;
  const answer = await get("dashboard/history", { peer, span }).catch(() => null);
  if (mine !== asked) return;
  columns = empty();
  for (const sample of answer?.samples ?? []) append(sample);
  draw();
  if (span === "day") dayTimer = setTimeout(load, DAY_AGAIN_MS);
}

function append(sample) {
  sample.forEach((value, at) => {
    const field = FIELDS[at];
    columns[field].push(field === "limit" ? limitNumber(value) : value);
  });
  if (chooseSpan.value === "minutes" && columns.unix_s.length > SECONDS) for (const field of FIELDS) columns[field].shift();
}

export function start() {
  figures = PLOTS.map(figure);
  choosePeer.addEventListener("change", () => {
    peer = choosePeer.value;
    load();
  });
  chooseSpan.addEventListener("change", load);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  let width = 0;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    for (const { chart, canvas } of figures) chart?.setSize({ width: Math.floor(canvas.clientWidth), height: HEIGHT });
  }).observe(place);
}

export function show(gateway) {
  const names = gateway.peers.map((it) => it.name);
  if ([...choosePeer.options].map((it) => it.value).join("\n") !== names.join("\n")) {
    choosePeer.replaceChildren(...names.map((name) => new Option(name, name, false, name === peer)));
    if (!names.includes(peer)) {
      peer = names[0] ?? null;
      load();
    }
  }
  const now = gateway.peers.find((it) => it.name === peer);
  const last = columns.unix_s.at(-1);
  if (!now || last == null || gateway.now_unix_s <= last || chooseSpan.value !== "minutes") return;
  // The gap of a tab that slept is filled from the gateway.
  if (gateway.now_unix_s - last > 10) {
    load();
    return;
  }
  append([gateway.now_unix_s, ...FIELDS.slice(1).map((field) => now[field])]);
  draw();
}
