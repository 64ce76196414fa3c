// The reads of pages: each path once, old data kept while loading, reloaded on events, moved in time by the slider.
import { read, written } from "./api.js";
import { learn } from "./clock.js";
import { useEffect, useRef, useState } from "./dom.js";
import { connection, onLive, onReset } from "./live.js";
import { asked, moment, view } from "./moment.js";
import { store } from "./store.js";

const EVERY = 1000; // milliseconds between two reads of the same path while things happen
const KEPT = 120; // answers about the past that are kept: they never change
const AGAIN = 3000; // after a failure, unless the server says when
const PATHS = 80; // paths whose newest answer is kept though no page shows it
const REST = 4; // an answer that takes long is asked for again after this many times as long

const entries = new Map();
const past = new Map();
// Pending reads; the slider's playback waits for them.
export const pending = store(0);

class Entry {
  constructor(path) {
    Object.assign(this, { path, data: null, error: null, position: null, at: undefined, loading: false, least: 0, outdated: false });
    Object.assign(this, { listeners: new Set(), control: null, timer: null, last: 0, took: 0, every: EVERY });
  }

  tell() { for (const listener of [...this.listeners]) listener(); }

  // Reads for the view shown, now: at least what the stream has told; cancels reads for another moment.
  async load() {
    const at = view();
    const least = at === null ? Math.max(connection.get().position ?? 0, written.get()) : 0;
    if (this.loading && this.asked === at) { this.outdated ||= least > this.least; return; }
    this.control?.abort();
    clearTimeout(this.timer);
    this.timer = null;
    const kept = at === null ? undefined : past.get(`${at} ${this.path}`);
    if (kept) { this.take(kept, at); return; }
    const control = new AbortController();
    Object.assign(this, { control, loading: true, asked: at, least, outdated: false, last: performance.now() });
    this.tell();
    pending.set(pending.get() + 1);
    try {
      const found = await this.read(at, least, control.signal);
      if (this.control !== control) return;
      this.took = performance.now() - this.last;
      learn(found.date);
      if (at !== null && /^\d+$/.test(at)) keep(`${at} ${this.path}`, found);
      this.take(found, at);
    } catch (error) {
      if (error.name === "AbortError" || this.control !== control) return;
      Object.assign(this, { error, loading: false, at });
      this.tell();
      if (error.status === 0 || error.status >= 500) this.soon(1000 * error.retryAfter || AGAIN);
    } finally {
      if (this.control === control && this.outdated) this.soon();
      pending.set(pending.get() - 1);
    }
  }

  async read(at, least, signal) {
    if (at !== null) return read(this.path, { ...asked(at), signal });
    try {
      return await read(this.path, { min_position: least || undefined, signal });
    } catch (error) {
      if (!least || error.status !== 503) throw error;
      this.soon(AGAIN); // the projections are behind: what they have is better than nothing
      return read(this.path, { signal });
    }
  }

  take({ data, position }, at) {
    Object.assign(this, { data, position, at, error: null, loading: false });
    this.tell();
  }

  // Reads again, at most once in `every` milliseconds.
  soon(delay = Math.max(0, Math.max(this.every, REST * this.took) - (performance.now() - this.last))) {
    if (this.timer !== null) return;
    this.timer = setTimeout(() => {
      this.timer = null;
      if (this.listeners.size) this.load();
    }, delay);
  }
}

function keep(key, found) {
  past.set(key, found);
  if (past.size > KEPT) past.delete(past.keys().next().value);
}

function entryOf(path) {
  if (!entries.has(path)) {
    for (const [old, entry] of entries) if (entries.size >= PATHS && !entry.listeners.size) entries.delete(old);
    entries.set(path, new Entry(path));
  }
  return entries.get(path);
}

moment.listen(() => { for (const entry of entries.values()) if (entry.listeners.size && entry.asked !== view()) entry.load(); });
const reload = () => { for (const entry of entries.values()) if (entry.listeners.size) entry.load(); };
written.listen(reload); // what this tab has done is shown at once
onReset(() => { past.clear(); written.set(0); reload(); });

const NOTHING = { data: null, error: null, loading: false, stale: false, position: null, reload() {} };

// `{data, error, loading, stale, position, reload}` of a GET at the moment shown; `path` null reads nothing.
//   on(message): whether a live message concerns it (all do); every: milliseconds between two live reads.
//   beat: milliseconds between reloads without an event, for data that depends on the time.
//   data of the previous path stays, with stale true, until the next has loaded.
export function useData(path, { on, every = EVERY, beat = null } = {}) {
  const [, redraw] = useState(0);
  const before = useRef(null);
  const entry = path === null ? null : entryOf(path);
  useEffect(() => {
    if (entry === null) return undefined;
    const listener = () => redraw((count) => count + 1);
    entry.listeners.add(listener);
    entry.every = every;
    if (entry.asked !== view() || entry.data === null || moment.get().at === null) entry.load();
    listener();
    const off = onLive((message) => { if (moment.get().at === null && (!on || on(message))) entry.soon(); });
    const again = () => { if (moment.get().at === null && !document.hidden) entry.soon(); };
    const timer = beat === null ? null : setInterval(again, beat);
    return () => { entry.listeners.delete(listener); off(); clearInterval(timer); };
  }, [entry]);
  if (entry === null) return NOTHING;
  if (entry.data !== null) before.current = entry.data;
  const stale = entry.data === null || entry.at !== view();
  return {
    data: entry.data ?? before.current, error: entry.error, loading: entry.loading, stale, position: entry.position,
    reload: () => entry.load(),
  };
}

// Whether a live message is about this run, about this machine, or moved things of that kind.
export const about = {
  run: (id) => (message) => message.run?.run_id === id || Boolean(message.runs?.some((run) => run.run_id === id)),
  vm: (id) => (message) => message.vm?.vm_id === id || Boolean(message.vms?.some((vm) => vm.vm_id === id)),
  runs: (message) => Boolean(message.run || message.runs),
  vms: (message) => Boolean(message.vm || message.vms),
};

// Archive → its last poll (ms), if some of the shown items are from it: its time ends there.
export function useArchiveEnds(some) {
  const { data } = useData(some ? "/api/sources" : null, { on: () => false });
  return new Map((data?.sources ?? []).map((one) => [one.source, Date.parse(one.last_poll_at)]));
}
