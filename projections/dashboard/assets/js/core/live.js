// The tab's one stream of the record's events; resumes at its position after a break.
import { get, sse } from "./api.js";
import { store, useStore } from "./store.js";

// state: connecting, live, reconnecting, paused (the tab is hidden); position: the last one received.
export const connection = store({ state: "connecting", position: null, since: Date.now() });
export const useConnection = () => useStore(connection);

const listeners = new Set();
// `listener({position, event, …})` for every message; returns how to stop.
export function onLive(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
const resets = new Set();
// Called when messages were skipped (another record, or too far behind): reload everything.
export function onReset(listener) {
  resets.add(listener);
  return () => resets.delete(listener);
}

const HIDDEN = 10_000; // a hidden tab gives its connection back after this: browsers have six a host
const FAR = 5_000; // positions behind which reading again is cheaper than a message for each
const LONGEST = 10_000;

let source = null;
let recordId = null;
let lastId = null; // of the last message: its position, and the hash there
let refused = false; // the stream was asked for again and has not opened
let wait = 500;
let timer = null;
let hiding = null;

function say(state) {
  if (connection.get().state !== state) connection.patch({ state, since: Date.now() });
}

// Begins after `position` of the record `id`.
export function startLive(position, id) {
  recordId = id;
  begin(position);
  connect();
}

function begin(position) {
  lastId = position;
  refused = false;
  connection.patch({ position });
}

function connect() {
  clearTimeout(timer);
  source?.close();
  source = sse("/api/stream", {
    after: lastId ?? undefined,
    onOpen: () => { wait = 500; refused = false; say("live"); },
    onMessage: (message, id) => {
      const position = message.position ?? Number(id);
      if (connection.get().position !== null && position <= connection.get().position) return; // told twice
      lastId = id;
      connection.patch({ position });
      for (const listener of [...listeners]) listener(message);
    },
    onError: (from) => {
      say("reconnecting");
      if (from.readyState === EventSource.CLOSED) later();
    },
  });
}

function later() {
  clearTimeout(timer);
  timer = setTimeout(again, wait);
  wait = Math.min(LONGEST, wait * 2);
}

// Refused, or disconnected for long: first check for the same record and its position.
async function again() {
  try {
    const found = await get("/api/record");
    const position = connection.get().position;
    const other = recordId !== null && found.record_id !== recordId;
    // Refused again by a service that answers: the record was restored, and has not what this tab was told.
    if (other || refused || position === null || found.position < position || found.position - position > FAR) {
      recordId = found.record_id;
      begin(found.position);
      for (const listener of [...resets]) listener();
    }
    refused = true; // until it opens
    connect();
  } catch (error) {
    if (error.status !== 401) later();
  }
}

function hidden() {
  source?.close();
  clearTimeout(timer);
  say("paused");
}

document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(hidden, HIDDEN);
  else if (connection.get().state === "paused") { say("connecting"); again(); }
});
addEventListener("online", () => { if (connection.get().state === "reconnecting") again(); });
addEventListener("pagehide", () => source?.close());
addEventListener("pageshow", (event) => { if (event.persisted) again(); });
