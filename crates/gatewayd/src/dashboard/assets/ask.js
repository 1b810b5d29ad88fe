// Questions to the gateway. What it refuses is an Error with its reason.

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { ...options, credentials: "same-origin" });
  } catch {
    throw new Error("the gateway does not answer");
  }
  if (answer.ok) return answer.status === 204 ? null : answer.json();
  const said = await answer.json().catch(() => null);
  const error = new Error(said?.error ?? `the gateway answered with status ${answer.status}`);
  error.status = answer.status;
  throw error;
}

export const get = (path, fields = {}) => ask(`${path}?${new URLSearchParams(fields)}`);

export const post = (path, body = {}) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
