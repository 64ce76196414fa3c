// Charts by day: stacked bars, strips of shares, and a distribution. Each has its table below and its CSV.
import { withParams } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { asked, useView } from "../core/moment.js";
import { duration, money, number } from "../core/words.js";
import { Table } from "./table.js";
import { tip } from "./tip.js";
import { amountsOf } from "./scale.js";
import { useWidth } from "./width.js";

const PAD = { left: 58, right: 8, top: 12, bottom: 22 };
const HEIGHT = 200;
const PURPOSES = ["busy", "idle", "provisioning", "terminating", "unconfirmed", "unattributed", "rounding"];

// The class of a series: purposes have the colours of their states, others one each.
export const tone = (key, place) => {
  const purpose = PURPOSES.indexOf(key.replace(/[()]/g, ""));
  return purpose >= 0 ? `p-${purpose}` : `c-${place % 7}`;
};

const dollars = (usd) => `$${usd >= 1000 ? Math.round(usd).toLocaleString("en-US") : Number(usd.toFixed(6))}`;
const percent = (part, whole) => (whole ? `${Math.round((100 * part) / whole)} %` : "–");

// A figure with its legend, its table (drawn when opened) and its CSV; `path` is the read's own.
export function Charted({ keys, path, caption, columns, rows, foot, children }) {
  const view = useView();
  const [isOpen, open] = useState(false);
  const csv = withParams(path, { format: "csv", ...asked(view) });
  return html`<figure class="chart">${children}
    ${keys && html`<figcaption>${keys.map(({ key, css, text }) => html`<span key=${key}><i class=${css}></i>${text}</span>`)}</figcaption>`}
    <div class="chart-foot"><details onToggle=${(event) => open(event.currentTarget.open)}><summary>As a table</summary>${isOpen && html`<${Table} caption=${caption} columns=${columns} rows=${rows} foot=${foot} />`}</details>
      <a class="button small" href=${csv} download aria-label="${caption}: CSV">CSV</a></div></figure>`;
}

// One thing of a chart at a time is reached by Tab; arrows go to the others.
function arrows(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const marks = [...event.currentTarget.querySelectorAll("[data-mark]")];
  const next = marks[marks.indexOf(document.activeElement) + step];
  if (!next) return;
  event.preventDefault();
  next.focus();
}
const mark = (index, count, text) => ({ "data-mark": true, tabindex: index === count - 1 ? 0 : -1, role: "img", ...tip(text) });

// The days whose date is written: as many as have room, the last always.
function dated(days, room) {
  const step = Math.max(1, Math.ceil(days.length / Math.max(1, Math.floor(room / 64))));
  return days.map((day, index) => ({ day, index })).filter(({ index }) => (days.length - 1 - index) % step === 0);
}

// bars: [{day, total, parts: [{key, css, value}]}]
export function Bars({ bars, said }) {
  const [at, width] = useWidth();
  const top = Math.max(...bars.map((one) => one.total), 1e-6);
  const room = width - PAD.left - PAD.right;
  const step = room / Math.max(bars.length, 7);
  const wide = Math.max(1, Math.min(step * 0.76, 56));
  const x = (index) => PAD.left + step * (index + 0.5);
  const y = (usd) => PAD.top + (1 - usd / top) * (HEIGHT - PAD.top - PAD.bottom);
  return html`<div ref=${at}><svg viewBox="0 0 ${width} ${HEIGHT}" height=${HEIGHT} role="group" aria-label=${said} onKeyDown=${arrows}>
    ${amountsOf(top, 4, 1e-6).filter((usd) => usd <= top * 1.0001).map((usd) => html`<g key=${usd} aria-hidden="true"><line class="ground" x1=${PAD.left} x2=${width - PAD.right} y1=${y(usd)} y2=${y(usd)} /><text x=${PAD.left - 8} y=${y(usd) + 4} text-anchor="end">${dollars(usd)}</text></g>`)}
    ${dated(bars.map((one) => one.day), step * bars.length).map(({ day, index }) => html`<text key=${day} aria-hidden="true" x=${x(index)} y=${HEIGHT - 5} text-anchor=${x(index) > width - 24 ? "end" : "middle"}>${day.slice(5)}</text>`)}
    ${bars.map((bar, index) => {
      let sum = 0;
      const text = [bar.day, `${money(bar.total.toFixed(6))} in total`, ...bar.parts.filter((one) => one.value).map((one) => `${one.key} ${money(one.value.toFixed(6))}`)].join("\n");
      return html`<g key=${bar.day} class="bar" ...${mark(index, bars.length, text)}><rect class="reach" x=${x(index) - step / 2} width=${step} y=${PAD.top} height=${HEIGHT - PAD.top - PAD.bottom} />
        ${bar.parts.map((one) => { const from = y(sum); sum += one.value; return one.value > 0 && html`<rect key=${one.key} class=${one.css} x=${x(index) - wide / 2} width=${wide} y=${y(sum)} height=${Math.max(0, from - y(sum))} />`; })}</g>`;
    })}</svg></div>`;
}

// strips: [{key, label, days: [[billed, busy]], billed_seconds, busy_seconds}]; the darker, the busier.
export function Strips({ days, strips }) {
  const [at, width] = useWidth();
  const room = Math.max(80, width);
  const cell = room / Math.max(days.length, 7);
  return html`<div class="use-strips" ref=${at}>${strips.map((strip) => html`<div class="use-strip" key=${strip.key}>
      <div class="use-name"><span>${strip.label}</span><span class="dim">${percent(strip.busy_seconds, strip.billed_seconds)} of ${duration(strip.billed_seconds * 1000)}</span></div>
      <svg viewBox="0 0 ${room} 22" height="22" role="group" aria-label="${strip.label}, busy of billed time by day" onKeyDown=${arrows}><rect class="use-ground" width=${cell * days.length} height="22" rx="2" />
        ${strip.days.map(([billed, busy], index) => html`<g key=${days[index]} class="cell" ...${mark(index, days.length, `${days[index]}\n${billed ? `${percent(busy, billed)} busy: ${duration(busy * 1000)} of ${duration(billed * 1000)}` : "not billed"}`)}>
          <rect class="reach" x=${index * cell} width=${cell} height="22" />${billed > 0 && html`<rect class=${`heat h${Math.min(4, Math.floor((busy / billed) * 5))}`} x=${index * cell + (cell > 4 ? 0.5 : 0)} width=${Math.max(1, cell - (cell > 4 ? 1 : 0))} height="22" />`}</g>`)}</svg></div>`)}
    <svg class="use-days" viewBox="0 0 ${room} 16" height="16" aria-hidden="true">${dated(days, cell * days.length).map(({ day, index }) => html`<text key=${day} x=${(index + 0.5) * cell} y="12" text-anchor=${(index + 0.5) * cell > room - 24 ? "end" : index * cell < 20 ? "start" : "middle"}>${day.slice(5)}</text>`)}</svg></div>`;
}

const limit = (seconds) => (seconds < 60 ? `${seconds} s` : seconds < 3600 ? `${seconds / 60} m` : `${seconds / 3600} h`);
export const bucketName = (one) => (one.to_seconds === null ? `${limit(one.from_seconds)} or more` : `${limit(one.from_seconds)} – ${limit(one.to_seconds)}`);

// buckets: [{from_seconds, to_seconds, cold, warm}]
export function Distribution({ buckets, said }) {
  const [at, width] = useWidth();
  const most = Math.max(...buckets.map((one) => Math.max(one.cold, one.warm)), 1);
  const step = (width - PAD.left - PAD.right) / Math.max(buckets.length, 4);
  const wide = Math.min(26, step * 0.38);
  const y = (count) => PAD.top + (1 - count / most) * (HEIGHT - PAD.top - PAD.bottom);
  const levels = amountsOf(most, 4).filter(Number.isInteger);
  return html`<div ref=${at}><svg viewBox="0 0 ${width} ${HEIGHT}" height=${HEIGHT} role="group" aria-label=${said} onKeyDown=${arrows}>
    ${levels.filter((count) => count <= most).map((count) => html`<g key=${count} aria-hidden="true"><line class="ground" x1=${PAD.left} x2=${width - PAD.right} y1=${y(count)} y2=${y(count)} /><text x=${PAD.left - 8} y=${y(count) + 4} text-anchor="end">${number(count)}</text></g>`)}
    ${buckets.map((one, index) => { const x = PAD.left + step * index;
      return html`<g key=${one.from_seconds} class="bar" ...${mark(index, buckets.length, `${bucketName(one)}\n${number(one.cold)} cold, ${number(one.warm)} warm`)}><rect class="reach" x=${x} width=${step} y=${PAD.top} height=${HEIGHT - PAD.top - PAD.bottom} />
        <rect class="cold" x=${x + step / 2 - wide - 1} width=${wide} y=${y(one.cold)} height=${y(0) - y(one.cold)} /><rect class="warm" x=${x + step / 2 + 1} width=${wide} y=${y(one.warm)} height=${y(0) - y(one.warm)} />
        <text aria-hidden="true" x=${x} y=${HEIGHT - 5} text-anchor=${index ? "middle" : "start"}>${limit(one.from_seconds)}</text></g>`; })}</svg></div>`;
}
