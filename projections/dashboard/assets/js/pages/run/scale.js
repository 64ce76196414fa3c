// A timeline's rows and its scale: pure.
import { ms } from "../../core/words.js";

const STEPS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];
const SHORTEST = 20; // milliseconds that a zoomed timeline shows at least
const LEAST = 0.4; // percent: no bar is drawn narrower

// The stretch from `start` to `until` (milliseconds); `began`: where the ruler counts from.
export function scaleOf(start, until, began = start) {
  const length = Math.max(until - start, 1);
  const share = (at) => Math.min(100, Math.max(0, ((ms(at) - start) / length) * 100));
  return {
    seconds: length / 1000,
    first: (start - began) / 1000,
    // Where a part is, in percent; null: out of the stretch.
    part(from, to) {
      if (ms(to) < start || ms(from) > until) return null;
      const width = Math.max(LEAST, share(to) - share(from));
      return { x: Math.min(share(from), 100 - width), width };
    },
  };
}

// Rows top to bottom; an open span goes on to `until` (milliseconds).
export function rowsOf(life, until) {
  const rows = [];
  if (life.first_poll_at && life.first_poll_at > life.from) {
    rows.push({ key: "unseen", label: "not yet seen", css: "s-none thin", from: life.from, to: life.first_poll_at, seconds: between(life.from, life.first_poll_at) });
  }
  if (!life.spans.length && life.state === "requested") {
    rows.push({ key: "requested", state: "requested", css: "s-requested", from: life.from, to: until, open: true, seconds: between(life.from, until) });
  }
  let attempt = 1;
  life.spans.forEach((span, index) => {
    if (span.attempt !== attempt) {
      attempt = span.attempt;
      rows.push({ key: `attempt-${attempt}`, attempt, from: span.from });
    }
    const to = span.to ?? until;
    rows.push({ key: `span-${index}`, state: span.state, css: `s-${span.state}`, from: span.from, to, open: span.to === null, position: span.position,
      seconds: span.to === null ? between(span.from, to) : span.seconds });
  });
  for (const [index, phase] of (life.phases ?? []).entries()) {
    const to = phase.to ?? until;
    rows.push({ key: `phase-${index}`, label: phase.phase, css: `s-${phase.phase}`, from: phase.from, to, seconds: between(phase.from, to), position: phase.position });
  }
  for (const [index, phase] of life.machine.phases.entries()) {
    rows.push({ key: `machine-${index}`, label: `machine ${phase.phase}`, css: `s-${phase.phase}`, machine: true, from: phase.from, to: phase.to, seconds: phase.seconds });
  }
  return rows;
}

const between = (from, to) => Math.max(0, (ms(to) - ms(from)) / 1000);

// Round marks of a ruler that shows `seconds` from `first` on: {share (percent), text}.
export function ticksOf(seconds, first = 0) {
  const step = STEPS.find((one) => seconds / one <= 5) ?? STEPS.at(-1);
  const marks = [];
  for (let at = Math.ceil(first / step) * step; at - first <= seconds * 0.95; at += step) marks.push({ share: ((at - first) / seconds) * 100, text: said(at, step) });
  return marks;
}

// The stretch after a step: 0.5 shows half of it round its middle, 2 twice as much; `move` shifts it by a part of its
// length. null: the whole.
export function zoomed(view, whole, { by = 1, move = 0 }) {
  const { from, to } = view ?? whole;
  const length = Math.min(whole.to - whole.from, Math.max(SHORTEST, (to - from) * by));
  if (length >= whole.to - whole.from) return null;
  const start = Math.min(whole.to - length, Math.max(whole.from, (from + to - length) / 2 + (to - from) * move));
  return { from: start, to: start + length };
}

function said(at, step) {
  const two = (value) => String(value).padStart(2, "0");
  if (at === 0) return "0";
  if (step < 60) return at < 60 ? `${Number(at.toFixed(2))} s` : `${Math.floor(at / 60)}:${two(at % 60)}`;
  if (step < 3600) return at < 3600 ? `${at / 60} m` : `${Math.floor(at / 3600)}:${two((at % 3600) / 60)} h`;
  return step < 86400 ? `${at / 3600} h` : `${at / 86400} d`;
}
