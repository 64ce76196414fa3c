// The tape: the whole record from its first event to now, with its marks; every page shows the moment of its head.
import { classes, html, useEffect, useLayoutEffect, useRef, useState } from "../core/dom.js";
import { now } from "../core/clock.js";
import { pending } from "../core/data.js";
import { onKey } from "../core/keys.js";
import { useKept } from "../core/kept.js";
import { lookAt, markFrom, step, useMarks } from "../core/marks.js";
import { goTo, moment, preview, useMoment, useRecord } from "../core/moment.js";
import { useStore } from "../core/store.js";
import { toast } from "../ui/dialog.js";
import { said as why } from "./moment.js";
import { ahead, moment as utc, ms, number, tick, told, zoned } from "../core/words.js";

const SCALES = [["all", "All", Infinity], ["30d", "30 d", 30 * 86400e3], ["7d", "7 d", 7 * 86400e3], ["1d", "24 h", 86400e3], ["6h", "6 h", 6 * 3600e3], ["1h", "1 h", 3600e3], ["5m", "5 m", 300e3]];
const OFTEN = 120; // milliseconds between two moments while dragging
const PHONE = 760; // pixels: so narrow it begins low
const GHOST = 75; // pixels, half as wide as a time
const STEP = 900; // between two marks while playing
const STEPS = [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 432000, 604800, 1209600, 2592000, 7776000].map((seconds) => seconds * 1000);
const ROWS = { run: "M% 2V12", vm: "M% 13V21", anomaly: "M% 22V31" };

// Mark kind → row: runs, machines, anomalies.
const rowOf = ({ kind }) => (/^run_/.test(kind) ? "run" : /^vm_/.test(kind) ? "vm" : "anomaly");

function extentOf(record, scale, at) {
  const first = ms(record?.first_at) ?? now() - 3600e3;
  const last = Math.max(first + 1000, ms(record?.last_at) ?? now());
  const length = Math.min(last - first, SCALES.find(([key]) => key === scale)[2]);
  if (length === last - first || at === null) return { from: last - length, to: last, first, last };
  const from = Math.min(Math.max(first, at - length / 2), last - length);
  return { from, to: from + length, first, last };
}

function Marks({ marks, extent }) {
  const paths = { run: [], vm: [], anomaly: [] };
  const length = extent.to - extent.from;
  for (const mark of marks) {
    const x = ((ms(mark.at) - extent.from) / length) * 1000;
    if (x < 0 || x > 1000) continue;
    const row = rowOf(mark);
    paths[row].push(ROWS[row].replace("%", x.toFixed(1)));
  }
  return html`<svg viewBox="0 0 1000 32" preserveAspectRatio="none" aria-hidden="true">${Object.entries(paths).map(([row, path]) => html`<path class="m-${row}" d=${path.join("") || "M0 0"} />`)}</svg>`;
}

function Axis({ extent, width }) {
  const length = extent.to - extent.from;
  const room = Math.max(2, Math.floor(width / (width < 500 ? 90 : 130)));
  const size = STEPS.find((one) => length / one <= room) ?? STEPS.at(-1);
  const ticks = [];
  const zone = ahead(extent.from);
  for (let time = Math.ceil((extent.from + zone) / size) * size - zone; time < extent.to; time += size) ticks.push(time);
  return ticks.filter((time) => { const x = ((time - extent.from) / length) * width; return x > 34 && x < width - 34; })
    .map((time) => html`<span class="at" key=${time} style=${{ left: `${((time - extent.from) / length) * 100}%` }}>${tick(time, Math.max(length, size * 2))}</span>`);
}

function Readout() {
  const at = useMoment();
  const [text, write] = useState(null);
  const [wrong, blame] = useState(false);
  const field = useRef(null);
  useEffect(() => onKey("t", () => { field.current.focus(); field.current.select(); }), []);
  const shown = at.at === null ? "" : at.time === null ? `position ${number(at.position)}` : zoned(at.time)?.local ?? utc(at.time);
  const go = (event) => {
    event.preventDefault();
    const wanted = parsed(text ?? "");
    if (wanted === undefined) { blame(true); toast(why(text ?? "", null)); return; }
    blame(false); write(null); field.current.blur();
    goTo(wanted.at, { time: wanted.time, push: true });
  };
  return html`<form class="read" onSubmit=${go}><input class="readout" ref=${field} aria-label="Go to a time or a position" aria-invalid=${wrong ? "true" : null} spellcheck=${false} autocomplete="off"
    title="A time of your zone, as 15:00, yesterday 9:00 or 2026-11-20 15:00; with Z, of UTC; 10m for ten minutes ago; a position; or “live” (t)" placeholder="live; or type a time" value=${text ?? shown}
    onInput=${(event) => { write(event.target.value); blame(false); }} onFocus=${(event) => event.target.select()} onBlur=${() => { write(null); blame(false); }} onKeyDown=${(event) => { if (event.key === "Escape") event.target.blur(); }} /></form>`;
}

// What a person types: `live`, a position, `10m` (ago), `15:00`, `yesterday 9:00`, `2026-11-20`, `2026-11-20 15:00[:02][Z]`; undefined: nothing of these.
// Without a zone it is a time of the zone of who types.
function parsed(text) {
  const said = text.trim().replace(/,/g, "");
  if (said === "" || /^(live|now)$/i.test(said)) return { at: null, time: null };
  const position = /^(?:position |#)?(\d+)$/.exec(said);
  if (position) return { at: position[1], time: null };
  const before = /^-?(\d+) *([smhd])(?: ago)?$/.exec(said);
  const base = moment.get().time ?? now();
  let time;
  if (before) time = base - Number(before[1]) * { s: 1e3, m: 60e3, h: 3600e3, d: 86400e3 }[before[2]];
  else if (/^(today|yesterday|\d{1,2}:)/i.test(said)) time = newest(said, base);
  else if (/^\d{4}-\d\d-\d\d/.test(said)) time = Date.parse(said.length === 10 ? `${said}T00:00` : said.replace(" ", "T").replace(/ ?(Z|[+-]\d\d:?\d\d)?$/i, (zone) => zone.trim()));
  return time === undefined || Number.isNaN(time) ? undefined : { at: new Date(time).toISOString(), time };
}

// The newest `15:00[:02][Z]` that is not after now, of the day shown, of today or of yesterday.
function newest(text, base) {
  const found = /^(today|yesterday)?(?:(?:^| +)(\d{1,2}):(\d\d)(?::(\d\d))?)?( ?Z)?$/i.exec(text);
  if (!found) return undefined;
  const [, word, hours = 0, minutes = 0, seconds = 0, zone] = found;
  if (hours > 23 || minutes > 59 || seconds > 59) return undefined;
  const day = new Date(word ? now() : base);
  const time = zone ? day.setUTCHours(hours, minutes, seconds, 0) : day.setHours(hours, minutes, seconds, 0);
  return /^y/i.test(word) || (!word && time > now()) ? (zone ? day.setUTCDate(day.getUTCDate() - 1) : day.setDate(day.getDate() - 1)) : time;
}

function usePlay() {
  const [playing, play] = useState(false);
  const at = useMoment();
  useEffect(() => onKey("p", () => play((now_) => !now_)), []);
  const began = useRef(false);
  useEffect(() => {
    if (!playing) { began.current = false; return undefined; }
    if (at.at === null) {
      const first = began.current ? null : markFrom(-Infinity); // live: from the beginning, or it has arrived there
      if (first) goTo(first.position, { time: ms(first.at), push: true });
      else play(false);
      began.current = true;
      return undefined;
    }
    began.current = true;
    let timer = null;
    const next = () => { timer = pending.get() > 0 ? setTimeout(next, 100) : (step(1), null); };
    timer = setTimeout(next, STEP);
    return () => clearTimeout(timer);
  }, [playing, at.at]);
  return [playing, play];
}

export function Tape() {
  const record = useRecord();
  const marks = useMarks();
  const at = useMoment();
  const [scale, setScale] = useState("all");
  const [ghost, haunt] = useState(null);
  const [width, measure] = useState(800);
  const [playing, play] = usePlay();
  const [open, setOpen] = useKept("tape", innerWidth > PHONE);
  useEffect(() => (open ? undefined : onKey("t", () => setOpen(true))), [open]);
  useLayoutEffect(() => {
    document.documentElement.dataset.tape = open ? "open" : "low";
    return () => { document.documentElement.dataset.tape = "none"; };
  }, [open]);
  const track = useRef(null);
  const drag = useRef(null);
  const held = useRef(null);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => measure(entry.contentRect.width));
    watch.observe(track.current);
    return () => watch.disconnect();
  }, []);
  const extent = held.current ?? extentOf(record, scale, at.at === null ? null : at.time);
  const length = extent.to - extent.from;
  useEffect(() => lookAt(scale === "all" ? null : extent), [scale, extent.from, extent.to, record]);
  const time = at.at === null ? extent.last : at.time ?? extent.last;
  const place = Math.min(1, Math.max(0, (time - extent.from) / length));
  const timeOf = (event) => {
    const box = track.current.getBoundingClientRect();
    return extent.from + Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)) * length;
  };
  const end = (value) => value >= extent.last - length / 400; // the last pixels are live
  const show = (value) => { drag.current.sent = performance.now(); preview(value); };
  const down = (event) => {
    if (event.button !== 0 || !record) return;
    track.current.setPointerCapture(event.pointerId);
    track.current.focus({ preventScroll: true });
    play(false);
    held.current = extent;
    drag.current = { time: timeOf(event), sent: 0, timer: null };
    show(drag.current.time);
  };
  const over = (event) => {
    const value = timeOf(event);
    haunt(value);
    if (!drag.current) return;
    drag.current.time = value;
    clearTimeout(drag.current.timer);
    const wait = OFTEN - (performance.now() - drag.current.sent);
    if (wait <= 0) show(value);
    else { moment.patch({ time: value }); drag.current.timer = setTimeout(() => drag.current && show(value), wait); }
  };
  const up = () => {
    if (!drag.current) return;
    clearTimeout(drag.current.timer);
    const value = drag.current.time;
    drag.current = null; held.current = null;
    if (end(value)) goTo(null);
    else goTo(new Date(value).toISOString(), { time: value });
  };
  const move = (share) => {
    const value = time + share * length;
    if (value >= extent.last) goTo(null);
    else { const next = Math.max(extent.first, value); goTo(new Date(next).toISOString(), { time: next }); }
  };
  const keys = (event) => {
    const share = { ArrowLeft: -1 / 200, ArrowDown: -1 / 200, ArrowRight: 1 / 200, ArrowUp: 1 / 200, PageDown: -1 / 20, PageUp: 1 / 20 }[event.key];
    if (event.key === "Home") goTo(1);
    else if (event.key === "End") goTo(null);
    else if (share !== undefined) move(event.shiftKey ? share * 10 : share);
    else return;
    event.preventDefault();
  };
  const said = at.at === null ? "live" : `${told(time)}${at.position === null ? "" : `, position ${at.position}`}`;
  const scales = SCALES.filter(([key, , size]) => key === "all" || size < extent.last - extent.first);
  return html`<section class=${classes("tape", at.at !== null && "past", !open && "low")} aria-label="Time">
    <div class="reel-track" ref=${track} role="slider" tabindex="0" aria-label="Moment of the record" aria-orientation="horizontal" aria-valuemin=${0} aria-valuemax=${1000} aria-valuenow=${Math.round(place * 1000)} aria-valuetext=${said}
      onPointerDown=${down} onPointerMove=${over} onPointerUp=${up} onPointerCancel=${up} onPointerLeave=${() => haunt(null)} onKeyDown=${keys}>
      <${Marks} marks=${marks} extent=${extent} />${record && open && html`<${Axis} extent=${extent} width=${width} />`}
      ${place < 1 && html`<span class="after" style=${{ left: `${place * 100}%` }}></span>`}
      ${(at.at === null || at.time !== null) && html`<span class="head" style=${{ left: `${place * 100}%` }}></span>`}
      ${ghost !== null && html`<span class="ghost" style=${{ left: `${Math.min(1 - GHOST / width, Math.max(GHOST / width, (ghost - extent.from) / length)) * 100}%` }}>${end(ghost) ? "live" : zoned(ghost)?.local ?? utc(ghost)}</span>`}</div>
    <div class="controls">
      <button type="button" class="icon fold" aria-label="Whole tape" aria-expanded=${String(open)} title=${open ? "Make the tape low" : "Show the whole tape"} onClick=${() => setOpen(!open)}><svg viewBox="0 0 18 18" aria-hidden="true"><path d=${open ? "M4 7l5 5 5-5" : "M4 11l5-5 5 5"} fill="none" stroke="currentColor" stroke-width="1.800" stroke-linecap="round" stroke-linejoin="round"/></svg></button>
      ${open && html`
      <button type="button" class="icon" aria-label="One mark back" title="One mark back ([)" onClick=${() => step(-1)}><svg viewBox="0 0 18 18" aria-hidden="true"><path d="M4 3.500v11M14 4 7 9l7 5z" fill="currentColor" stroke="currentColor" stroke-width="1.600" stroke-linejoin="round"/></svg></button>
      <button type="button" class="icon" aria-label="Play through the marks" aria-pressed=${String(playing)} title="Play through the marks (p)" onClick=${() => play(!playing)}><svg viewBox="0 0 18 18" aria-hidden="true"><path d=${playing ? "M6 4v10M12 4v10" : "M5 3.500 14 9l-9 5.500z"} fill="currentColor" stroke="currentColor" stroke-width=${playing ? 2.6 : 1.4} stroke-linejoin="round"/></svg></button>
      <button type="button" class="icon" aria-label="One mark on" title="One mark on (])" disabled=${at.at === null} onClick=${() => step(1)}><svg viewBox="0 0 18 18" aria-hidden="true"><path d="M14 3.500v11M4 4l7 5-7 5z" fill="currentColor" stroke="currentColor" stroke-width="1.600" stroke-linejoin="round"/></svg></button>
      <${Readout} />
      <select class="scale" aria-label="How much of the record the tape shows" value=${scale} onChange=${(event) => setScale(event.target.value)}>${scales.map(([key, name]) => html`<option value=${key} key=${key}>${name}</option>`)}</select>`}
    </div></section>`;
}
