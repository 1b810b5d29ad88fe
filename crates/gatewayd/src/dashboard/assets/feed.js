// What happens at the gateway, from one stream of events that all tabs of a browser share: a browser opens six connections
// to a host at most. The tab that holds the lock has the stream, and passes its events to the others.

const SILENCE_MS = 5000, AGAIN_MS = 2000;

export function follow({ changed, connection }) {
  const state = { gateway: null, transfers: new Map() };
  const channel = "BroadcastChannel" in window ? new BroadcastChannel("longhaul") : null;
  let isLeader = false, hasAll = false, heardMs = 0;

  const take = (name, data) => {
    heardMs = performance.now();
    if (name === "gateway") {
      state.gateway = data;
    } else {
      if (data.is_all) state.transfers.clear();
      else if (!hasAll) return;
      hasAll = true;
      for (const transfer of data.opened) state.transfers.set(transfer.id, transfer);
      for (const [id, up, down, bits, limit, age, wan] of data.moved) {
        const transfer = state.transfers.get(id);
        if (transfer) Object.assign(transfer, { up_bytes: up, down_bytes: down, wan_bytes: wan, bits_per_s: bits, limit, age_s: age });
      }
      for (const id of data.closed) state.transfers.delete(id);
    }
    if (state.gateway && hasAll) {
      connection(true);
      changed(state);
    }
  };

  const lead = () => {
    isLeader = true;
    const source = new EventSource("dashboard/events");
    for (const name of ["gateway", "transfers"]) {
      source.addEventListener(name, (event) => {
        const data = JSON.parse(event.data);
        channel?.postMessage({ name, data });
        take(name, data);
      });
    }
    source.addEventListener("error", async () => {
      connection(false);
      if (source.readyState !== EventSource.CLOSED) return;
      const may = await fetch("dashboard/access").then((it) => it.json(), () => null);
      if (may && !may.look) location.reload();
      else setTimeout(lead, AGAIN_MS);
    });
  };

  channel?.addEventListener("message", ({ data: message }) => {
    if (message.name === "hello") {
      if (!isLeader || !state.gateway) return;
      const opened = [...state.transfers.values()];
      channel.postMessage({ name: "gateway", data: state.gateway });
      channel.postMessage({ name: "transfers", data: { is_all: true, opened, moved: [], closed: [] } });
    } else if (!isLeader) {
      take(message.name, message.data);
    }
  });
  // Browsers have locks only for loopback and TLS.
  if (channel && navigator.locks) {
    navigator.locks.request("longhaul-events", () => {
      lead();
      return new Promise(() => {});
    });
    channel.postMessage({ name: "hello" });
  } else {
    lead();
  }
  setInterval(() => {
    if (heardMs && performance.now() - heardMs > SILENCE_MS) connection(false);
  }, 1000);
}
