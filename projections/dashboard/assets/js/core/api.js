// The HTTP client: JSON reads and commands, and server-sent events. Every failure is an ApiProblem.
import { building } from "./building.js";
import { store } from "./store.js";

const WHO = "/api/session";

// progress: {done, total} while the read models are being built.
export class ApiProblem extends Error {
  constructor({ status = 0, title = "", detail = "", field = null, retryAfter = null, progress = null }) {
    super(detail || title);
    Object.assign(this, { name: "ApiProblem", status, title, detail: detail || title, field, retryAfter, progress });
  }
}

const unauthorized = new Set();
// Called on 401.
export const onUnauthorized = (listener) => { unauthorized.add(listener); return () => unauthorized.delete(listener); };

// A path with parameters added; null and undefined are left out.
export function withParams(path, params = {}) {
  const url = new URL(path, location.origin);
  for (const [name, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== "") url.searchParams.set(name, value);
  }
  return url.pathname + url.search;
}

async function problemOf(response) {
  let body = {};
  try { body = await response.json(); } catch { /* not a problem of ours: its status says it */ }
  return new ApiProblem({
    status: response.status,
    title: body.title || response.statusText,
    detail: body.detail,
    field: body.field ?? null,
    retryAfter: response.headers.get("Retry-After"),
    progress: body.progress ?? null,
  });
}

async function ask(path, options = {}) {
  let response;
  try {
    response = await fetch(path, { credentials: "same-origin", ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem({ title: "No answer", detail: "The server does not answer. Is `steno up` or `steno serve` running?" });
  }
  if (response.ok) return response;
  const problem = await problemOf(response);
  if (problem.progress) building.set(problem.progress);
  if (response.status === 401 && !path.startsWith(WHO)) for (const listener of unauthorized) listener(problem);
  throw problem;
}

// A read: {data, position, date}; `at` selects a past moment, `known` by when it is known, `min_position` waits for the projections.
export async function read(path, { at, known, min_position, signal } = {}) {
  const response = await ask(withParams(path, { at, known, min_position }), {
    signal, headers: { Accept: "application/json" }, cache: min_position === undefined ? "default" : "no-store",
  });
  const position = response.headers.get("Steno-Position");
  const date = Date.parse(response.headers.get("Date") ?? "");
  const data = await response.json();
  if (position !== null && (at ?? null) === null) building.set(null);
  return { data, position: position === null ? data.position ?? null : Number(position), date: Number.isNaN(date) ? null : date };
}

export const get = async (path, options) => (await read(path, options)).data;

// The position of the newest command of this tab: what is read after it shows it.
export const written = store(0);

const send = async (method, path, body, headers = {}) => {
  const response = await ask(path, {
    method,
    headers: { Accept: "application/json", ...(body === undefined ? {} : { "Content-Type": "application/json" }), ...headers },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  written.set(Math.max(written.get(), Number(response.headers.get("Steno-Position"))));
  const text = await response.text();
  return text ? JSON.parse(text) : null;
};

export const post = (path, body = {}, headers = {}) => send("POST", path, body, headers);
export const del = (path) => send("DELETE", path);

// The text of an answer as it comes: `onText` gets each piece.
export async function stream(path, { onText, signal } = {}) {
  const response = await ask(path, { signal });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    onText(value);
  }
}

// An EventSource whose messages are parsed; it reconnects by itself and resumes where it was.
export function sse(path, { after, onMessage, onOpen, onError, signal }) {
  const source = new EventSource(withParams(path, { after }));
  source.onmessage = (event) => onMessage(JSON.parse(event.data), event.lastEventId);
  if (onOpen) source.onopen = () => onOpen(source);
  if (onError) source.onerror = () => onError(source);
  signal?.addEventListener("abort", () => source.close());
  return source;
}

// Server-sent events as the answer to a POST: `onEvent({id, event, data})`, data parsed where it is JSON.
export async function postStream(path, body, { onEvent, signal, headers = {} } = {}) {
  const response = await ask(path, {
    method: "POST", signal, body: JSON.stringify(body),
    headers: { Accept: "text/event-stream", "Content-Type": "application/json", ...headers },
  });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const frames = (rest + value).split(/\r?\n\r?\n/);
    rest = frames.pop();
    for (const frame of frames) {
      const found = frameOf(frame);
      if (found) onEvent(found);
    }
  }
}

function frameOf(text) {
  const found = { id: null, event: "message", lines: [] };
  for (const line of text.split(/\r?\n/)) {
    if (line.startsWith(":")) continue;
    const [, name, value] = /^([^:]*):? ?(.*)$/.exec(line);
    if (name === "data") found.lines.push(value);
    else if (name === "id" || name === "event") found[name] = value;
  }
  if (!found.lines.length) return null;
  const text_ = found.lines.join("\n");
  let data = text_;
  try { data = JSON.parse(text_); } catch { /* plain text */ }
  return { id: found.id, event: found.event, data };
}
