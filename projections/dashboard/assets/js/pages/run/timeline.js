// A run's timeline: a row per state, its attempts, its machine's phases, and gaps without polls, hatched.
import { useNow } from "../../core/clock.js";
import { html } from "../../core/dom.js";
import { ms } from "../../core/words.js";
import { PollLink, StateBadge } from "../../ui/all.js";
import { rowsOf, scaleOf, ticksOf } from "./scale.js";
import { hour, seconds } from "./words.js";

export function Timeline({ run, life, open, live }) {
  const now = useNow();
  const until = open && live ? Math.max(ms(life.until), now) : ms(life.until);
  const scale = scaleOf(life, until);
  const gaps = life.blind.map((gap) => scale.part(gap.from, gap.to));
  const rows = rowsOf(life, until);
  const draw = (row) => html`<${Row} key=${row.key} row=${row} scale=${scale} gaps=${gaps} open=${open && row.open} />`;
  return html`<table class="life"><caption class="hidden-text">The run's states in order, on one scale of time</caption><colgroup><col class="name" /><col /><col class="lasted" /><col class="poll" /></colgroup>
    <thead class="hidden-text"><tr><th scope="col">State</th><th scope="col">Drawn</th><th scope="col">Lasted</th><th scope="col">Began with</th></tr></thead>
    <tbody>${rows.filter((row) => !row.machine).map(draw)}${!open && run.transitions.length > 0 && html`<${End} move=${run.transitions.at(-1)} run=${run} scale=${scale} gaps=${gaps} />`}
      ${rows.filter((row) => row.machine).map(draw)}
      <tr class="life-axis" aria-hidden="true"><td></td><td><${Axis} scale=${scale} /></td><td class="right">${seconds(scale.seconds)}</td><td></td></tr></tbody></table>
    ${life.blind.length > 0 && html`<p class="life-legend dim"><svg width="24" height="12" aria-hidden="true"><${Hatch} id="hatch-legend" /><rect width="24" height="12" fill="url(#hatch-legend)" /></svg>
      not observed ${life.blind.map((gap, index) => html`${index ? ", and " : ""}from ${hour(gap.from)} to ${hour(gap.to)} (${seconds(gap.seconds)} without an answer from ${gap.source})`)}</p>`}`;
}

function Row({ row, scale, gaps, open }) {
  if (row.attempt) return html`<tr class="life-attempt"><th scope="row" colspan="4">↻ attempt ${row.attempt}, from ${hour(row.from)}</th></tr>`;
  const { x, width } = scale.part(row.from, row.to);
  return html`<tr class=${row.machine ? "life-machine" : ""}>
    <th scope="row">${row.state ? html`<${StateBadge} state=${row.state} />` : html`<span class="dim">${row.label}</span>`}</th>
    <td><svg class="life-bar" width="100%" height="24" role="img" aria-label=${`from ${hour(row.from)}, ${seconds(row.seconds)}${open ? ", and going on" : ""}`}>
      <rect class="life-track" x="0" y="11.5" width="100%" height="1" />
      <rect class=${`life-fill ${row.css}`} x=${`${x}%`} y=${row.machine ? 8 : 5} width=${`${width}%`} height=${row.machine ? 8 : 14} rx="2" />
      <${Unseen} gaps=${gaps} hatch=${`hatch-${row.key}`} /></svg></td>
    <td class="right nowrap">${seconds(row.seconds)}${open ? " …" : ""}</td>
    <td class="life-poll">${row.position ? html`<${PollLink} position=${row.position} />` : ""}</td></tr>`;
}

// The verdict takes no time: a line where it fell.
const End = ({ move, run, scale, gaps }) => html`<tr><th scope="row"><${StateBadge} state=${run.state} /></th>
  <td><svg class="life-bar" width="100%" height="24" role="img" aria-label="at ${hour(move.at)}"><rect class="life-track" x="0" y="11.5" width="100%" height="1" />
    <rect class="life-fill s-${run.state}" x="${scale.part(move.at, move.at).x}%" y="2" width="3" height="20" rx="1.5" /><${Unseen} gaps=${gaps} hatch="hatch-end" /></svg></td>
  <td class="right nowrap dim">${hour(move.at)}</td><td class="life-poll"><${PollLink} position=${move.position} /></td></tr>`;

const Hatch = ({ id }) => html`<defs><pattern id=${id} width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
  <rect class="hatch-back" width="6" height="6" /><rect class="hatch-line" width="2" height="6" /></pattern></defs>`;

const Unseen = ({ gaps, hatch }) => gaps.length > 0 && html`<${Hatch} id=${hatch} />${gaps.map((gap) => html`<rect x=${`${gap.x}%`} width=${`${gap.width}%`} y="0" height="24" fill=${`url(#${hatch})`} />`)}`;

const Axis = ({ scale }) => html`<svg class="life-ruler" width="100%" height="22"><rect class="life-track" x="0" y="0" width="100%" height="1" />
  ${ticksOf(scale.seconds).map(({ share, text }) => html`<g key=${text}><rect class="life-track" x=${`${share}%`} y="0" width="1" height="5" />
    <text x=${`${share}%`} dx=${share ? 3 : 0} y="18">${text}</text></g>`)}</svg>`;
