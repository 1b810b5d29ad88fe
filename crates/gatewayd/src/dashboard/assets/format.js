// Quantities as text.

const scale = (value, units) => {
  let at = 0;
  while (value >= 999.5 && at < units.length - 1) {
    value /= 1000;
    at += 1;
  }
  const digits = at === 0 || value >= 99.5 ? 0 : value >= 9.95 ? 1 : 2;
  return `${value.toFixed(digits)} ${units[at]}`;
};

export const bytes = (value) => scale(value, ["B", "kB", "MB", "GB", "TB", "PB"]);
// Bytes of a file, and what of it was on the WAN where that is less.
export const shrunk = (value, wan) => (wan > 0 && wan < value ? `${bytes(value)}, ${bytes(wan)} on the WAN` : bytes(value));
export const rate = (bitsPerS) => scale(bitsPerS, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
export const ms = (value) => (value == null ? "–" : `${value.toFixed(value < 10 ? 2 : 1)} ms`);
export const percent = (share) => (share == null ? "–" : `${(share * 100).toFixed(share < 0.1 ? 2 : 1)} %`);
export const count = (value) => value.toLocaleString("en");
// A number of things, with the noun in singular or plural.
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

export const duration = (seconds) => {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172800) return `${(seconds / 3600).toFixed(1)} h`;
  return `${(seconds / 86400).toFixed(1)} d`;
};

// The time of day, with the date if that is not today's; as ISO 8601 has both.
export const time = (unixMs) => {
  const local = (at) => new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString();
  const [date, clock] = local(unixMs).slice(0, 19).split("T");
  return date === local(Date.now()).slice(0, 10) ? clock : `${date} ${clock}`;
};

// The time of day, for axes.
export const clock = (unixS, hasSeconds) => {
  const two = (value) => String(value).padStart(2, "0");
  const at = new Date(unixS * 1000);
  return `${two(at.getHours())}:${two(at.getMinutes())}${hasSeconds ? `:${two(at.getSeconds())}` : ""}`;
};

// Sets a text only where it differs, so that the browser draws nothing anew.
export const put = (element, text) => {
  if (element.textContent !== text) element.textContent = text;
};
