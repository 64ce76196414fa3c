// The record's marks: thinned over the whole record, and at full density in the period that the tape shows.
import { get, withParams } from "./api.js";
import { onReset } from "./live.js";
import { goTo, isPast, moment, recordFacts } from "./moment.js";
import { store, useStore } from "./store.js";
import { ms } from "./words.js";

const WAIT = 200; // milliseconds a stretch is shown before its marks are asked for
const AGAIN = 3000; // after a failure
const PARTS = 4; // of a stretch: it is asked for by whole parts, so that the next moments lie within

// The marks of a period: {from, to, last (ms; of the record then), marks}; null while the whole record
// is shown.
const near = store(null);
let wanted = null;
let timer = null;
let asking = null;

// Sets the period {from, to} (ms) of the tape; null: all. If all marks are known, nothing is requested.
export function lookAt(extent) {
  const size = extent && (extent.to - extent.from) / PARTS;
  const next = extent && recordFacts.get()?.thinned
    ? { from: Math.floor(extent.from / size) * size, to: (Math.floor(extent.to / size) + 1) * size } : null;
  if (next?.from === wanted?.from && next?.to === wanted?.to) return;
  wanted = next;
  clearTimeout(timer);
  asking?.abort();
  if (next === null) near.set(null);
  else timer = setTimeout(ask, WAIT);
}

async function ask() {
  clearTimeout(timer);
  const { from, to } = wanted;
  const last = ms(recordFacts.get().last_at);
  const [since, until] = [from, to].map((time) => new Date(time).toISOString());
  asking?.abort();
  asking = new AbortController();
  try {
    const { marks } = await get(withParams("/api/record", { since, until }), { signal: asking.signal });
    if (wanted?.from === from && wanted.to === to) near.set({ from, to, last, marks });
  } catch (error) { // those of the whole record are still there
    if (error.name !== "AbortError" && error.status !== 401) timer = setTimeout(ask, AGAIN);
  }
}

// Newer marks count as near too if the period reached the record's end.
recordFacts.listen(() => { if (wanted && near.get() && near.get().to >= near.get().last) ask(); });
onReset(() => { clearTimeout(timer); wanted = null; near.set(null); }); // it may be another record

let joined = { record: null, near: null, marks: [] };
// All marks to step through, in order: the near marks, and those of the whole record before and after them.
function marksOf(record, close) {
  if (joined.record === record && joined.near === close) return joined.marks;
  const all = record?.marks ?? [];
  const apart = close && all.filter(({ at }) => ms(at) < close.from || ms(at) > close.to);
  joined = { record, near: close, marks: close ? [...apart, ...close.marks].sort((a, b) => a.position - b.position) : all };
  return joined.marks;
}

export function useMarks() {
  return marksOf(useStore(recordFacts), useStore(near));
}

// The mark before (-1) or after (+1) the moment shown, `steps` further; null: none.
export function markFrom(steps) {
  const marks = marksOf(recordFacts.get(), near.get());
  if (!marks.length) return null;
  const { at, position, time } = moment.get();
  const place = at === null ? marks.length : lowerBound(marks, position, time);
  if (steps < 0) return marks[Math.max(0, place + steps)];
  const same = place < marks.length && isAt(marks[place], position, time) ? 1 : 0;
  const next = place + same + steps - 1;
  return next >= marks.length ? null : marks[next];
}

const isAt = (mark, position, time) => (position === null ? ms(mark.at) === time : mark.position === position);

function lowerBound(marks, position, time) {
  const before = (mark) => (position === null ? ms(mark.at) < (time ?? 0) : mark.position < position);
  let low = 0;
  let high = marks.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (before(marks[middle])) low = middle + 1;
    else high = middle;
  }
  return low;
}

// Steps by marks; past the last one is live.
export function step(steps) {
  if (steps > 0 && !isPast()) return;
  const mark = markFrom(steps);
  if (mark) goTo(mark.position, { time: ms(mark.at) });
  else if (steps > 0) goTo(null);
}
