// States and marks: a colour and a shape each, never colour alone.
import { classes, html } from "../core/dom.js";

const SHAPES = {
  requested: "M3 8h.01M8 3v.01M8 13v.01M13 8h.01M4.5 4.5v.01M11.5 4.5v.01M4.5 11.5v.01M11.5 11.5v.01",
  queued: "M3 4h10M3 8h10M3 12h6",
  provisioning: "M4 2.5h8M4 13.5h8M5 2.5c0 3.5 6 7.500 6 11M11 2.5c0 3.500-6 7.500-6 11",
  pulling: "M8 2.500v8M4.500 7.500 8 11l3.500-3.500M3.500 13.500h9",
  running: "M5 3l8 5-8 5z",
  finishing: "M3.500 3.500 8 8l-4.500 4.500M8.500 3.500 13 8l-4.500 4.500",
  succeeded: "M3 8.500 6.500 12 13 4.500",
  failed: "M4 4l8 8M12 4l-8 8",
  stopped: "M4 4h8v8H4z",
  lost: "M5.500 5.800a2.600 2.600 0 1 1 3.700 2.400c-.8.4-1.200.9-1.200 1.800M8 13v.01",
  idle: "M8 3a5 5 0 1 0 0 10A5 5 0 0 0 8 3z",
  busy: "M5 3l8 5-8 5z",
  draining: "M4 3v10M8 5v6M12 7v2",
  terminating: "M8 2.500v5.500M4.500 5a5 5 0 1 0 7 0",
  terminated: "M3.500 8h9",
  unconfirmed: "M8 2.500 14 13H2zM8 6.500v3M8 11.300v.01",
  anomaly: "M8 2.500 14 13H2zM8 6.500v3M8 11.300v.01",
  blind: "M2 8s2.200-4 6-4 6 4 6 4-2.200 4-6 4-6-4-6-4zM3 3l10 10",
  stale: "M8 3v5l3 2M8 2.500a5.500 5.500 0 1 0 0 11 5.500 5.500 0 0 0 0-11z",
  fresh: "M2 8s2.200-4 6-4 6 4 6 4-2.200 4-6 4-6-4-6-4zM8 6.600a1.400 1.400 0 1 0 0 2.800 1.400 1.400 0 0 0 0-2.800z",
  cold: "M8 2v12M2.800 5l10.400 6M13.200 5 2.800 11",
  warm: "M8 2.500c.5 2.500 3.500 3.700 3.500 7a3.500 3.500 0 0 1-7 0c0-1.600.8-2.500 1.600-3.300.2 1 .8 1.500 1.400 1.700C7.200 6 7.300 4.200 8 2.500z",
};
for (const phase of ["compiling", "checking", "benchmarking"]) SHAPES[phase] = SHAPES.running;
const FILLED = new Set(["running", "busy", "stopped", "compiling", "checking", "benchmarking"]);

export const Glyph = ({ of }) => html`<svg viewBox="0 0 16 16" aria-hidden="true" focusable="false"><path d=${SHAPES[of] ?? SHAPES.idle}
  fill=${FILLED.has(of) ? "currentColor" : "none"} stroke="currentColor" stroke-width="1.9" stroke-linecap="round" stroke-linejoin="round"/></svg>`;

// How a kernel's run fails, in plain words; other reasons are shown as they are.
const REASONS = { compile_error: "compile error", wrong_answer: "wrong answer", runtime_error: "runtime error", cheating_suspected: "cheating suspected" };

// `word` replaces the state's name; so does `bare`, which keeps the name as hidden text.
// `<${StateBadge} state="failed" reason="exit_nonzero" exit=${1} />`; also `chip`, `large`; `of=${run}` takes all three from an object.
export function StateBadge({ of, state = of?.state, reason = of?.reason, exit = of?.exit_status, phase = of?.phase, word, bare, chip, large }) {
  const rest = [phase && phase !== state ? phase : null, REASONS[reason] ?? reason, exit === null || exit === undefined ? null : `exit ${exit}`].filter(Boolean);
  return html`<span class=${classes("badge", `s-${state}`, chip && "chip", large && "large")}>
    <${Glyph} of=${state} />${bare === undefined ? null : html`<span class="hidden-text">${state}</span>`}<span>${bare ?? word ?? state}${rest.length > 0 && html` <span class="reason">${rest.map((one) => html`<span class="nowrap">·\u00a0${one}</span> `)}</span>`}</span></span>`;
}

// Whether a run started warm or cold.
export const StartMark = ({ start }) => (start ? html`<span class="mark"><${Glyph} of=${start} />${start}</span>` : html`<span class="dim">–</span>`);

// Marks imported items: they are closed, and no budget counts them.
export const ArchiveMark = ({ of }) => (of?.archive ? html` <span class="dim nowrap" title=${of.archive === true ? "imported" : `imported as ${of.archive}`}>archive</span>` : null);
