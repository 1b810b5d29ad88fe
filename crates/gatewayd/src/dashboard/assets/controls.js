// What can be changed: rate limits and peers; and who may.
import { get, post } from "./ask.js";
import * as format from "./format.js";
import { rateLimit } from "./peers.js";

const byId = (id) => document.getElementById(id);
const rate = byId("rate"), invite = byId("invite"), choosePeer = byId("rate-peer");
let gateway = null;

async function attempt(tell, done, question) {
  try {
    await question();
    tell(done);
    return true;
  } catch (error) {
    tell(error.message);
    return false;
  }
}

function limitOf(name) {
  return name ? gateway?.peers.find((it) => it.name === name)?.rate_max : gateway?.rate_max;
}

function showLimit() {
  const limit = limitOf(choosePeer.value);
  if (!limit) return;
  const configured = limit.configured_bits_per_s == null ? "none" : format.rate(limit.configured_bits_per_s);
  format.put(byId("rate-now"), `Limit now: ${rateLimit(limit)}. In the configuration: ${configured}.`);
}

export async function start(tell, allow) {
  const look = async () => {
    const may = await get("dashboard/access").catch(() => null);
    if (!may) return;
    byId("controls").hidden = !may.change;
    byId("login").hidden = may.change || !may.has_token;
    byId("logout").hidden = !(may.has_token && may.change);
    for (const field of invite.querySelectorAll("input, button[type=submit]")) field.disabled = !may.invite;
    format.put(byId("invite-why"), may.invite ? "" : may.why_not ?? "");
    allow(may.change);
  };
  byId("login").addEventListener("submit", async (event) => {
    event.preventDefault();
    const field = event.target.elements.token;
    if (await attempt(tell, "Logged in.", () => post("dashboard/login", { token: field.value }))) {
      // Names of users, files and clients are shown from now on.
      location.reload();
    } else {
      field.select();
    }
  });
  byId("logout").addEventListener("click", async () => {
    await attempt(tell, "Logged out.", () => post("dashboard/logout"));
    location.reload();
  });
  const set = (text) => {
    const of = choosePeer.value;
    const said = `Rate limit of ${of || "all peers together"}: ${text ?? "none"}.`;
    return attempt(tell, said, () => post("dashboard/rate", { peer: of || null, rate_max: text }));
  };
  rate.addEventListener("submit", (event) => {
    event.preventDefault();
    set(rate.elements.rate.value.trim());
  });
  byId("rate-none").addEventListener("click", () => set(null));
  choosePeer.addEventListener("change", showLimit);
  invite.addEventListener("submit", async (event) => {
    event.preventDefault();
    const { endpoint, name, minutes } = invite.elements;
    await attempt(tell, "The invite is below. It works once.", async () => {
      const made = await post("dashboard/invite", {
        endpoint: endpoint.value.trim() || null, name: name.value.trim() || null, minutes: Number(minutes.value),
      });
      byId("invite-text").value = made.invite;
      byId("invite-made").hidden = false;
      byId("invite-text").select();
    });
  });
  byId("invite-copy").addEventListener("click", async () => {
    byId("invite-text").select();
    // A page without TLS has no clipboard; the text is marked for the keyboard.
    await attempt(tell, "Copied.", () => navigator.clipboard?.writeText(byId("invite-text").value) ?? Promise.reject(new Error("Copy the marked text.")));
  });
  await look();
}

export function show(fresh) {
  gateway = fresh;
  const names = ["", ...gateway.peers.map((it) => it.name)];
  if ([...choosePeer.options].map((it) => it.value).join("\n") !== names.join("\n")) {
    const chosen = choosePeer.value;
    choosePeer.replaceChildren(...names.map((name) => new Option(name || "all peers together", name, false, name === chosen)));
  }
  showLimit();
  const reserved = gateway.rate_reserved_bits_per_s;
  format.put(byId("policy"), reserved == null ? gateway.policy : `${gateway.policy}, ${format.rate(reserved)}`);
}
