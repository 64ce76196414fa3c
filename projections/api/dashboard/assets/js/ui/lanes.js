// Machines as lanes: what each was doing, which runs were on it, and the stretches in which nobody looked.
import { html, useRef } from "../core/dom.js";
import { Link } from "../core/router.js";
import { called, clock, duration, moment, money, ms, price, tick } from "../core/words.js";
import { Glyph, StateBadge } from "./badge.js";
import { clamp, share, ticksOf } from "./scale.js";
import { tip } from "./tip.js";
import { useWidth } from "./width.js";

const ROWS = 6; // lanes there is always room for, so that a machine more moves nothing
const pct = (value) => `${(value * 100).toFixed(3)}%`;
const name = (vm) => vm.name || vm.provider_id;

function where(from, to, window) {
  const left = clamp(share(from, window.from, window.to));
  return { left: pct(left), width: pct(clamp(share(to, window.from, window.to)) - left) };
}
const inside = (from, to, window) => to >= window.from && from <= window.to;
const lasted = (from, to, end) => `${clock(from)} to ${to === null ? "now" : clock(to)}, ${duration((to === null ? end : ms(to)) - ms(from))}`;

function blocks(lane, window, width) {
  const { vm } = lane;
  const found = [];
  for (const one of vm.intervals) {
    const [from, to] = [ms(one.from), one.to === null ? window.to : ms(one.to)];
    if (inside(from, to, window)) found.push({ from, key: `p${one.from}`, kind: "phase", style: where(from, to, window), phase: one.phase, text: `${one.phase}\n${lasted(one.from, one.to, window.to)}\n${money(one.cost_usd)} at ${price(vm.price_usd_per_hour)} an hour` });
  }
  for (const one of lane.runs) {
    const [from, to] = [ms(one.from), one.to === null ? window.to : ms(one.to)];
    if (!inside(from, to, window)) continue;
    const room = (clamp(share(to, window.from, window.to)) - clamp(share(from, window.from, window.to))) * width;
    found.push({ from: from + 1, key: one.run_id, kind: "run", style: where(from, to, window), run: one, room, text: `${one.name ?? one.run_id}, ${one.state}\n${lasted(one.from, one.to, window.to)}${one.start ? `\n${one.start} start` : ""}` });
  }
  return found.sort((a, b) => a.from - b.from);
}

// One stop for the keyboard; the arrows go from block to block.
function Lane({ lane, window, width }) {
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
  const { vm } = lane;
  return html`<li class="lane"><div class="label"><span class="badge s-${vm.state}" title=${vm.state}><${Glyph} of=${vm.state} /><span class="hidden-text">${vm.state}</span></span>
      <${Link} to="/machines/${vm.vm_id}">${name(vm)}<//><span class="rate">${price(vm.price_usd_per_hour)}/h</span></div>
    <div class="track" ref=${track} role="group" aria-label="${name(vm)}, ${vm.state}" onKeyDown=${move}>${blocks(lane, window, width).map((one, index) => {
      const common = { key: one.key, style: one.style, tabindex: index === 0 ? 0 : -1, ...tip(one.text) };
      if (one.kind === "phase") return html`<span class="block p-${one.phase}" role="img" ...${common}></span>`;
      return html`<${Link} to="/runs/${one.run.run_id}" class="block run s-${one.run.state} ${one.room < 22 ? "tiny" : ""}" ...${common}>${one.room >= 22 && html`<${Glyph} of=${one.run.start ?? one.run.state} />`}${one.room >= 46 && html`<span>${called(one.run)}</span>`}<//>`;
    })}</div></li>`;
}

function Gaps({ gaps, window }) {
  return html`<div class="gap-marks">${gaps.filter((gap) => inside(ms(gap.from), gap.to === null ? window.to : ms(gap.to), window)).map((gap) => {
    const to = gap.to === null ? window.to : ms(gap.to);
    const style = where(ms(gap.from), to, window);
    const text = `Nobody looked at ${gap.source}\n${moment(Math.max(ms(gap.from), 0))} to ${gap.to === null ? "now" : clock(gap.to)}, ${duration(to - ms(gap.from))}`;
    const middle = clamp((clamp(share(ms(gap.from), window.from, window.to)) + clamp(share(to, window.from, window.to))) / 2, 0.01, 0.99);
    return html`<span class="gap-mark" key=${`m${gap.source}${gap.from}`} style=${style}></span><button type="button" class="gap-handle" key=${`h${gap.source}${gap.from}`} style=${{ left: pct(middle) }} ...${tip(text)}><${Glyph} of="blind" /></button>`;
  })}</div>`;
}

const KEY = [["provisioning", "provisioning"], ["busy", "busy"], ["idle", "idle"], ["terminating", "terminating"], ["unconfirmed", "unconfirmed"]];

// lanes: [{vm, runs}]; window: {from, to} in ISO; gaps: [{source, from, to}]; `children` where there is no machine.
export function Lanes({ lanes, window, gaps = [], children }) {
  const [frame, width] = useWidth();
  const times = { from: ms(window.from), to: ms(window.to) };
  const { ticks } = ticksOf(times.from, times.to, Math.max(2, Math.floor(width / 110)));
  const spare = Math.max(0, ROWS - lanes.length);
  return html`<div class="lanes"><div class="frame" tabindex="0" role="region" aria-label="Machines over time"><div ref=${frame} class="lane-axis">${ticks.map((time) => {
    const x = share(time, times.from, times.to);
    return x > 0.03 && x < 0.97 && html`<span key=${time} style=${{ left: pct(x) }}>${tick(time, times.to - times.from)}</span>`;
  })}</div>
    ${lanes.length > 0 && html`<${Gaps} gaps=${gaps} window=${times} />`}
    <ol>${lanes.map((lane) => html`<${Lane} key=${lane.vm.vm_id} lane=${lane} window=${times} width=${width} />`)}${Array.from({ length: spare }, (_, index) => html`<li class="lane" key=${`empty${index}`} aria-hidden="true"></li>`)}</ol>
    ${lanes.length === 0 && html`<div class="lane-none">${children}</div>`}</div>
    <div class="lane-key" aria-hidden="true">${KEY.map(([phase, word]) => html`<span key=${phase}><i><b class="block p-${phase}"></b></i>${word}</span>`)}<span><i class="hatch"></i>nobody looked</span><span><span class="mark"><${Glyph} of="cold" /></span>cold start</span><span><span class="mark"><${Glyph} of="warm" /></span>warm start</span></div></div>`;
}
