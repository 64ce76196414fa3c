// A run's timeline: a row per state, its attempts, its machine's phases, and gaps, hatched by their kind; zoomed by buttons
// and by dragging across it.
import { useNow } from "../../core/clock.js";
import { html, useRef, useState } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { GAPS, ms } from "../../core/words.js";
import { Panel, PollLink, StateBadge, tip } from "../../ui/all.js";
import { TURN } from "../../ui/lanes.js";
import { rowsOf, scaleOf, ticksOf, zoomed } from "./scale.js";
import { hour, seconds } from "./words.js";

const DRAGGED = 8; // pixels under which a drag is a click

export function Timeline({ run, life, open, live }) {
  const now = useNow();
  const until = open && live ? Math.max(ms(life.until), now) : ms(life.until);
  const [view, setView] = useState(null);
  const whole = { from: ms(life.from), to: until };
  const shown = view ?? whole;
  const scale = scaleOf(shown.from, shown.to, whole.from);
  const gaps = life.blind.map((gap) => { const part = scale.part(gap.from, gap.to); return part && { ...part, kind: gap.kind }; }).filter(Boolean);
  const rows = rowsOf(life, until);
  const brush = useBrush((from, to) => setView(zoomed({ from: shown.from + from * (shown.to - shown.from), to: shown.from + to * (shown.to - shown.from) }, whole, {})));
  const draw = (row) => html`<${Row} key=${row.key} row=${row} scale=${scale} gaps=${gaps} open=${open && row.open} />`;
  return html`<${Panel} title="Timeline" more=${html`<${Zoom} view=${view} onZoom=${(step) => setView(step && zoomed(view, whole, step))} />`}>
    <table class="life" ...${brush.on}><caption class="hidden-text">The run's states in order, on one scale of time</caption><colgroup><col class="name" /><col /><col class="lasted" /><col class="poll" /></colgroup>
    <thead class="hidden-text"><tr><th scope="col">State</th><th scope="col">Drawn</th><th scope="col">Lasted</th><th scope="col">Began with</th></tr></thead>
    <tbody>${rows.filter((row) => !row.machine).map(draw)}${!open && run.transitions.length > 0 && html`<${End} move=${run.transitions.at(-1)} run=${run} scale=${scale} gaps=${gaps} />`}
      ${rows.filter((row) => row.machine).map(draw)}
      <tr class="life-axis" aria-hidden="true"><td></td><td><${Axis} scale=${scale} brush=${brush.area} /></td><td class="right">${seconds(scale.seconds)}</td><td></td></tr></tbody></table>
    ${Object.keys(GAPS).map((kind) => html`<${Legend} key=${kind} kind=${kind} gaps=${life.blind.filter((gap) => gap.kind === kind)} />`)}<//>`;
}

const Legend = ({ kind, gaps }) => gaps.length > 0 && html`<p class="life-legend dim"><i class="hatch g-${kind}"></i> ${GAPS[kind]} ${gaps.map((gap, index) => html`${index ? ", and " : ""}from ${hour(gap.from)} to ${hour(gap.to)} (${seconds(gap.seconds)}, ${gap.source})`)}</p>`;

const Zoom = ({ view, onZoom }) => html`<span class="zoom" role="group" aria-label="Zoom of the timeline">
  ${view && html`<button type="button" class="button small" aria-label="Earlier" title="Earlier" onClick=${() => onZoom({ move: -0.5 })}>←</button><button type="button" class="button small" aria-label="Later" title="Later" onClick=${() => onZoom({ move: 0.5 })}>→</button>`}
  <button type="button" class="button small" aria-label="Zoom out" title="Zoom out" disabled=${!view} onClick=${() => onZoom({ by: 2 })}>−</button><button type="button" class="button small" aria-label="Zoom in" title="Zoom in; or drag across the timeline" onClick=${() => onZoom({ by: 0.5 })}>+</button>
  <button type="button" class="button small" disabled=${!view} onClick=${() => onZoom(null)}>Whole run</button></span>`;

// A drag across a bar's cell: `done(from, to)` as shares of its width. `area`: what is dragged now.
function useBrush(done) {
  const start = useRef(null);
  const dragged = useRef(false);
  const [area, setArea] = useState(null);
  const share = (event, box) => Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
  const on = {
    onPointerDown: (event) => {
      const cell = event.target.closest("td:nth-child(2)");
      dragged.current = false;
      if (event.pointerType !== "mouse" || event.button !== 0 || !cell) return;
      start.current = { x: event.clientX, box: cell.getBoundingClientRect() };
    },
    onPointerMove: (event) => {
      if (!start.current || Math.abs(event.clientX - start.current.x) < DRAGGED) return;
      if (!dragged.current) event.currentTarget.setPointerCapture(event.pointerId);
      dragged.current = true;
      setArea([share({ clientX: start.current.x }, start.current.box), share(event, start.current.box)].sort((a, b) => a - b));
    },
    onPointerUp: () => {
      if (dragged.current && area) done(...area);
      start.current = null;
      setArea(null);
    },
    onPointerCancel: () => { start.current = null; setArea(null); },
    onDragStart: (event) => event.preventDefault(), // of a bar's link
    onClickCapture: (event) => { if (dragged.current) { event.preventDefault(); event.stopPropagation(); dragged.current = false; } },
  };
  return { on, area };
}

// A bar that says what it is, and leads to the poll that began it.
function Bar({ text, position, children }) {
  const drawn = html`<svg class="life-bar" width="100%" height="24" aria-hidden="true"><rect class="life-track" x="0" y="11.5" width="100%" height="1" />${children}</svg>`;
  return position ? html`<${Link} class="life-link" to=${`/record/${position}`} ...${tip(`${text}\nbegan with #${position}`)}>${drawn}<//>`
    : html`<span class="life-link" tabindex="0" role="img" ...${tip(text)}>${drawn}</span>`;
}

function Row({ row, scale, gaps, open }) {
  if (row.attempt) return html`<tr class="life-attempt"><th scope="row" colspan="4">↻ attempt ${row.attempt}, from ${hour(row.from)}</th></tr>`;
  const part = scale.part(row.from, row.to);
  return html`<tr class=${row.machine ? "life-machine" : ""}>
    <th scope="row">${row.state ? html`<${StateBadge} state=${row.state} />` : html`<span class="dim">${row.label}</span>`}</th>
    <td><${Bar} position=${row.position} text=${`${row.state ?? row.label}\n${hour(row.from)} to ${open ? "now" : hour(row.to)}\n${seconds(row.seconds)}`}>
      ${part && html`<rect class=${`life-fill ${row.css}`} x=${`${part.x}%`} y=${row.machine ? 8 : 5} width=${`${part.width}%`} height=${row.machine ? 8 : 14} rx="2" />`}
      <${Unseen} gaps=${gaps} hatch=${`hatch-${row.key}`} /><//></td>
    <td class="right nowrap">${seconds(row.seconds)}${open ? " …" : ""}</td>
    <td class="life-poll">${row.position ? html`<${PollLink} position=${row.position} />` : ""}</td></tr>`;
}

// The verdict takes no time: a line where it fell.
function End({ move, run, scale, gaps }) {
  const part = scale.part(move.at, move.at);
  return html`<tr><th scope="row"><${StateBadge} state=${run.state} /></th>
    <td><${Bar} position=${move.position} text=${`${run.state}\nat ${hour(move.at)}`}>${part && html`<rect class="life-fill s-${run.state}" x="${part.x}%" y="2" width="3" height="20" rx="1.5" />`}<${Unseen} gaps=${gaps} hatch="hatch-end" /><//></td>
    <td class="right nowrap dim">${hour(move.at)}</td><td class="life-poll"><${PollLink} position=${move.position} /></td></tr>`;
}

const Hatch = ({ id, kind }) => html`<defs><pattern id=${id} class="g-${kind}" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(${TURN[kind]})">
  <rect class="hatch-back" width="6" height="6" /><rect class="hatch-line" width="2" height="6" /></pattern></defs>`;

const Unseen = ({ gaps, hatch }) => gaps.length > 0 && html`${Object.keys(GAPS).map((kind) => html`<${Hatch} key=${kind} id=${`${hatch}-${kind}`} kind=${kind} />`)}${gaps.map((gap) => html`<rect x=${`${gap.x}%`} width=${`${gap.width}%`} y="0" height="24" fill=${`url(#${hatch}-${gap.kind})`} />`)}`;

const Axis = ({ scale, brush }) => html`<svg class="life-ruler" width="100%" height="22"><rect class="life-track" x="0" y="0" width="100%" height="1" />
  ${brush && html`<rect class="life-brush" x="${brush[0] * 100}%" width="${(brush[1] - brush[0]) * 100}%" y="-400" height="422" />`}
  ${ticksOf(scale.seconds, scale.first).map(({ share, text }) => html`<g key=${text}><rect class="life-track" x=${`${share}%`} y="0" width="1" height="5" />
    <text x=${`${share}%`} dx=${share ? 3 : 0} y="18">${text}</text></g>`)}</svg>`;
