// Machines as lanes: their states, their runs, and gaps in which their source was not seen.
import { html, useRef } from "../core/dom.js";
import { Link } from "../core/router.js";
import { GAPS, called, clock, duration, moment, money, ms, price, tick } from "../core/words.js";
import { Glyph, StateBadge } from "./badge.js";
import { clamp, share, ticksOf } from "./scale.js";
import { tip } from "./tip.js";
import { useWidth } from "./width.js";

export const TURN = { no_answer: 45, not_polled: -45 }; // degrees of the hatching of each kind of gap
const ROWS = 6; // lanes there is always room for, so that a machine more moves nothing
const SHORTEST = 600e3; // milliseconds
const pct = (value) => `${(value * 100).toFixed(3)}%`;
const name = (vm) => vm.name || vm.provider_id;

function where(from, to, window) {
  const left = clamp(share(from, window.from, window.to));
  return { left: pct(left), width: pct(clamp(share(to, window.from, window.to)) - left) };
}
const inside = (from, to, window) => to >= window.from && from <= window.to;
const lasted = (from, to, end) => `${clock(from)} to ${to === null ? "now" : clock(to)}, ${duration((to === null ? end : ms(to)) - ms(from))}`;

const began = (vm) => ms(vm.intervals[0]?.from) ?? 0;
const ended = (vm) => { const last = vm.intervals.at(-1); return last && last.to !== null ? ms(last.to) : Infinity; };

const follows = (vm, before) => vm.source === before.source && name(vm) === name(before) && ended(before) <= began(vm);

// Machines of one source that reused a name share a lane, as a slot's do; live machines come first, then the
// newest.
function rowsOf(lanes) {
  const rows = [];
  for (const lane of [...lanes].sort((a, b) => began(a.vm) - began(b.vm))) {
    const row = rows.find((one) => follows(lane.vm, one.lives.at(-1).vm));
    if (row) row.lives.push(lane);
    else rows.push({ key: lane.vm.vm_id, lives: [lane] });
  }
  const rank = ({ lives }) => [lives.at(-1).vm.state === "terminated" ? 1 : 0, -began(lives.at(-1).vm)];
  return rows.sort((a, b) => rank(a)[0] - rank(b)[0] || name(a.lives.at(-1).vm).localeCompare(name(b.lives.at(-1).vm)) || rank(a)[1] - rank(b)[1]);
}

function blocks(lane, window, width, several) {
  const { vm } = lane;
  const found = [];
  const which = several ? `\nmachine ${vm.vm_id.slice(0, 8)}` : "";
  for (const one of vm.intervals) {
    const [from, to] = [ms(one.from), one.to === null ? window.to : ms(one.to)];
    if (inside(from, to, window)) found.push({ from, key: `p${vm.vm_id}${one.from}`, kind: "phase", style: where(from, to, window), phase: one.phase, text: `${one.phase}\n${lasted(one.from, one.to, window.to)}\n${money(one.cost_usd)} at ${price(vm.price_usd_per_hour)} an hour${which}` });
  }
  for (const one of lane.runs) {
    const [from, to] = [ms(one.from), one.to === null ? window.to : ms(one.to)];
    if (!inside(from, to, window)) continue;
    const room = (clamp(share(to, window.from, window.to)) - clamp(share(from, window.from, window.to))) * width;
    found.push({ from: from + 1, key: `r${vm.vm_id}${one.run_id}${one.from}`, kind: "run", style: where(from, to, window), run: one, room, text: `${one.name ?? one.run_id}, ${one.state}\n${lasted(one.from, one.to, window.to)}${one.start ? `\n${one.start} start` : ""}${which}` });
  }
  return found;
}

// One stop for the keyboard; the arrows go from block to block.
function Lane({ lives, window, width, unseen, several }) {
  const track = useRef(null);
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    const all = [...track.current.querySelectorAll(".block")];
    const next = all[all.indexOf(document.activeElement) + step];
    if (!next) return;
    event.preventDefault();
    for (const one of all) one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  };
  const { vm } = lives.at(-1);
  const all = lives.flatMap((lane) => blocks(lane, window, width, lives.length > 1)).sort((a, b) => a.from - b.from);
  return html`<li class="lane"><div class="label"><span class="badge s-${vm.state}" title=${vm.state}><${Glyph} of=${vm.state} /><span class="hidden-text">${vm.state}</span></span>
      <${Link} to="/machines/${vm.vm_id}">${name(vm)}<//><span class="rate" title=${vm.source}>${price(vm.price_usd_per_hour)}/h${lives.length > 1 ? ` · ${lives.length} machines` : ""}${several ? ` · ${vm.source}` : ""}</span></div>
    <div class="track" ref=${track} role="group" aria-label="${name(vm)}, ${vm.state}" onKeyDown=${move}>${all.map((one, index) => {
      const common = { key: one.key, style: one.style, tabindex: index === 0 ? 0 : -1, ...tip(one.text) };
      if (one.kind === "phase") return html`<span class="block p-${one.phase}" role="img" ...${common}></span>`;
      return html`<${Link} to="/runs/${one.run.run_id}" class="block run s-${one.run.state} ${one.room < 22 ? "tiny" : ""}" ...${common}>${one.room >= 22 && html`<${Glyph} of=${one.run.start ?? one.run.state} />`}${one.room >= 46 && html`<span>${called(one.run)}</span>`}<//>`;
    })}${unseen?.map((one) => html`<svg key=${one.kind} class="unseen g-${one.kind}" data-source=${vm.source} aria-hidden="true"><path class="fill" d=${one.fill} fill="url(#${one.kind})" /><path class="edge" d=${one.edge} /></svg>`)}</div></li>`;
}

// Source → its gaps of each kind, as hatched paths that are high enough for every lane.
function unseenOf(gaps, window, width) {
  const found = new Map();
  for (const [source, kind] of [...new Set(gaps.map((gap) => gap.source))].flatMap((one) => Object.keys(GAPS).map((kind) => [one, kind]))) {
    const parts = joined(gaps.filter((gap) => gap.source === source && gap.kind === kind), window)
      .map((one) => [one.start, one.end].map((time) => Math.round(clamp(share(time, window.from, window.to)) * width * 10) / 10))
      .map(([left, right]) => [left, Math.max(right, left + 2)]);
    if (parts.length) found.set(source, [...(found.get(source) ?? []), { kind, fill: parts.map(([left, right]) => `M${left} 0H${right}V60H${left}z`).join(""), edge: parts.map(([left, right]) => `M${left} 0V60M${right} 0V60`).join("") }]);
  }
  return found;
}

const Hatch = () => html`<svg class="hatching" width="0" height="0" aria-hidden="true"><defs>${Object.entries(TURN).map(([kind, turn]) => html`<pattern key=${kind} id=${kind} class="g-${kind}" width="9" height="9" patternUnits="userSpaceOnUse" patternTransform="rotate(${turn})"><rect width="1.500" height="9" /></pattern>`)}</defs></svg>`;

// Overlapping gaps are merged; one handle lists the gaps of all sources.
function joined(gaps, window) {
  const found = [];
  const within = gaps.map((gap) => ({ ...gap, start: ms(gap.from), end: gap.to === null ? window.to : ms(gap.to) })).filter((gap) => inside(gap.start, gap.end, window));
  for (const gap of within.sort((a, b) => a.start - b.start)) {
    const last = found.at(-1);
    if (last && gap.start <= last.end) Object.assign(last, { end: Math.max(last.end, gap.end), gaps: [...last.gaps, gap] });
    else found.push({ start: gap.start, end: gap.end, gaps: [gap] });
  }
  return found;
}

const silence = (gap) => `${GAPS[gap.kind]}: ${gap.source}, ${moment(gap.start)} to ${gap.to === null ? "now" : clock(gap.to)}, ${duration(gap.end - gap.start)}`;

// Where the handle of a gap is, as a share of the width.
const middle = (one, { from, to }) => clamp((clamp(share(one.start, from, to)) + clamp(share(one.end, from, to))) / 2, 0.01, 0.99);

function Gaps({ gaps, window }) {
  return html`<div class="gap-marks">${joined(gaps, window).map((one) => {
    const more = one.gaps.length > 6 ? `\nand ${one.gaps.length - 6} more` : "";
    const text = `${one.gaps.slice(0, 6).map(silence).join("\n")}${more}`;
    return html`<button type="button" class="gap-handle g-${one.gaps[0].kind}" key=${`h${one.start}`} style=${{ left: pct(middle(one, window)) }} ...${tip(text)}><${Glyph} of="blind" /></button>`;
  })}</div>`;
}

const KEY = [["provisioning", "provisioning"], ["busy", "busy"], ["idle", "idle"], ["terminating", "terminating"], ["unconfirmed", "unconfirmed"]];

// lanes: [{vm, runs}]; window: {from, to} in ISO; gaps: [{source, from, to, kind}].
export function Lanes({ lanes, window, gaps = [] }) {
  const [frame, width] = useWidth();
  const times = { from: ms(window.from), to: ms(window.to) };
  const first = Math.min(times.to - SHORTEST, ...lanes.map(({ vm }) => began(vm))); // a young record fills the width
  times.from = Math.max(times.from, first - (times.to - first) * 0.02);
  const handles = joined(gaps, times).map((one) => middle(one, times)); // they stand among the hours
  const { ticks } = ticksOf(times.from, times.to, Math.max(2, Math.floor(width / 110)));
  const free = ticks.filter((time) => !handles.some((at) => Math.abs(at - share(time, times.from, times.to)) * width < 26));
  const rows = rowsOf(lanes);
  const unseen = unseenOf(gaps, times, width);
  const several = new Set(lanes.map(({ vm }) => vm.source)).size > 1;
  const spare = Math.max(0, ROWS - rows.length);
  return html`<div class="lanes"><div class="frame" tabindex="0" role="region" aria-label="Machines over time"><div ref=${frame} class="lane-axis">${(free.length ? free : ticks).map((time) => {
    const x = share(time, times.from, times.to);
    return x > 0.03 && x < 0.97 && html`<span key=${time} style=${{ left: pct(x) }}>${tick(time, times.to - times.from)}</span>`;
  })}</div>
    <${Hatch} /><${Gaps} gaps=${gaps} window=${times} />
    <ol>${rows.map((row) => html`<${Lane} key=${row.key} lives=${row.lives} window=${times} width=${width} unseen=${unseen.get(row.lives[0].vm.source)} several=${several} />`)}${Array.from({ length: spare }, (_, index) => html`<li class="lane" key=${`empty${index}`} aria-hidden="true"></li>`)}</ol></div>
    <div class="lane-key" aria-hidden="true">${KEY.map(([phase, word]) => html`<span key=${phase}><i><b class="block p-${phase}"></b></i>${word}</span>`)}${Object.entries(GAPS).map(([kind, word]) => html`<span key=${kind}><i class="hatch g-${kind}"></i>${word}</span>`)}<span><span class="mark"><${Glyph} of="cold" /></span>cold start</span><span><span class="mark"><${Glyph} of="warm" /></span>warm start</span></div></div>`;
}
