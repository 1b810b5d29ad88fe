// Joins the parts of the page.
import { follow } from "./feed.js";
import * as controls from "./controls.js";
import * as format from "./format.js";
import * as overview from "./overview.js";
import * as peers from "./peers.js";
import * as plots from "./plots.js";
import * as recent from "./recent.js";
import * as running from "./running.js";
import * as stores from "./stores.js";

const TOLD_MS = 15_000;
const told = document.getElementById("told");
const connection = document.getElementById("connection");
let timer = 0;

const tell = (text) => {
  clearTimeout(timer);
  told.textContent = text;
  timer = setTimeout(() => (told.textContent = ""), TOLD_MS);
};

function showGateway(gateway) {
  const ended = `${format.counted(gateway.ftp_succeeded.transfers, "transfer")} completed, ${format.count(gateway.ftp_failed.transfers)} failed`;
  const sessions = format.counted(gateway.sessions_open, "session");
  format.put(document.getElementById("gateway"),
    `${gateway.version} on ${gateway.link_listen}, up for ${format.duration(gateway.now_unix_s - gateway.started_unix_s)}; ${sessions}; ${ended}`);
}

plots.start();
running.start(tell);
recent.start();
controls.start(tell, running.allow);
follow({
  connection(isUp) {
    format.put(connection, isUp ? "live" : "no connection to the gateway");
    connection.className = isUp ? "good" : "bad";
  },
  changed({ gateway, transfers }) {
    showGateway(gateway);
    overview.show({ gateway, transfers });
    peers.show(gateway);
    plots.show(gateway);
    running.show({ transfers });
    recent.show(gateway);
    stores.show(gateway);
    controls.show(gateway);
  },
});
