// The moment every page shows: live, or a position of the record. `?at=` in the page's address holds it, and `&known=now`
// whether it shows what is known of that moment by now.
import { get } from "./api.js";
import { ms } from "./words.js";
import { onPlace, query, setQuery } from "./router.js";
import { store, useStore } from "./store.js";

// at: null (live), a position, or an ISO time while the slider moves; time (ms) and position if known.
const state = store({ at: query("at"), known: query("known"), time: null, position: positionOf(query("at")), dragging: false });
// The record's facts at its head, and its marks; null until the first answer.
const record = store(null);

// Milliseconds of a time as a person writes it: without a zone it is UTC, as for the server.
export const utc = (text) => Date.parse(/([zZ]|[+-]\d\d:?\d\d)$/.test(text.slice(10)) || text.length <= 10 ? text : `${text.replace(" ", "T")}Z`);

function positionOf(at) { return at !== null && /^\d+$/.test(at) ? Number(at) : null; }

export const moment = state;
export const recordFacts = record;
export const useAt = () => useStore(state, (now) => now.at);
export const useMoment = () => useStore(state);
export const useRecord = () => useStore(record);
export const isPast = () => state.get().at !== null;
// What the answers shown depend on: null (live), a moment, or a moment and by when it is known.
export const view = () => { const { at, known } = state.get(); return at === null || known === null ? at : `${at} ${known}`; };
export const useView = () => useStore(state, view);
// The parameters of a read for a view.
export const asked = (of) => { const [at, known] = of?.split(" ") ?? []; return { at, known }; };

// While dragging: pages follow, the address does not.
export function preview(time) {
  state.patch({ at: new Date(time).toISOString(), time, position: null, dragging: true });
}

// Goes to a position, an ISO time or null (live), and updates the address.
export function goTo(at, { time = null, push = false } = {}) {
  const text = at === null ? null : String(at);
  const wasLive = query("at") === null;
  problem.set(null);
  const known = text === null ? null : state.get().known;
  state.set({ at: text, known, time, position: positionOf(text), dragging: false });
  setQuery({ at: text, known }, { replace: !(push || (wasLive && text !== null)) });
  if (text !== null && (time === null || positionOf(text) === null)) settle(text);
}

let settling = null;
// Finds the time of a position, or the position of a time.
async function settle(at) {
  settling?.abort();
  settling = new AbortController();
  try {
    const found = await get("/api/record", { at, signal: settling.signal });
    if (state.get().at !== at) return;
    const time = /^\d{4}-/.test(at) ? utc(at) : ms(found.last_at); // a position has none of its own
    state.patch({ at: String(found.position), time, position: found.position, dragging: false });
    setQuery({ at: String(found.position) }, { replace: true });
  } catch (error) {
    if (error.name !== "AbortError") problem.set({ at, error });
  }
}

// Set if the moment in the address or the input is invalid: {at, error}.
export const problem = store(null);

onPlace(() => {
  const at = query("at"), known = query("known");
  if (state.get().dragging) return;
  if (at === state.get().at) { if (known !== state.get().known) state.patch({ known }); return; }
  problem.set(null);
  state.set({ at, known, time: null, position: positionOf(at), dragging: false });
  if (at !== null) settle(at);
});

// Loads the record's facts; always at the head.
export async function readRecord() {
  record.set(await get("/api/record"));
  return record.get();
}

export function startMoment() { if (state.get().at !== null) settle(state.get().at); }
