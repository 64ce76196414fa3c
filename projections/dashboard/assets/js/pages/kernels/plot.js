// The times of one board in the order of their submissions, and the best so far. The same as a table stands below.
import { html, useState } from "../../core/dom.js";
import { day, ms, tick } from "../../core/words.js";
import { RunLink, Table, Time } from "../../ui/all.js";
import { amountsOf } from "../../ui/scale.js";
import { useWidth } from "../../ui/width.js";
import { time } from "./words.js";

const PAD = { left: 64, right: 16, top: 12, bottom: 22 };
const HEIGHT = 190;
const WIDE = 10; // times that differ by more than this factor are drawn on a logarithmic scale

// rows: [{run_id, name, submitted_at, median_ms}], oldest first
export function Plot({ rows, more }) {
  const [at, width] = useWidth();
  const [isOpen, open] = useState(false);
  let best = Infinity;
  const times = rows.map((one) => ({ ...one, best: (best = Math.min(best, one.median_ms)) }));
  return html`<figure class="times"><div ref=${at}><${Chart} times=${times} width=${width} /></div>
    <figcaption class="dim"><span class="times-key"><i class="dot"></i>a submission</span><span class="times-key"><i class="line"></i>best so far</span>
      ${more > 0 && html`<span>the newest ${rows.length} of ${rows.length + more}</span>`}</figcaption>
    <details onToggle=${(event) => open(event.currentTarget.open)}><summary>These times as a table</summary>${isOpen && html`<${Table} caption="Times by submission, newest first" columns=${COLUMNS} rows=${[...times].reverse()} rowKey=${(one) => one.run_id} />`}</details></figure>`;
}

const COLUMNS = [
  { head: "Kernel", cell: (one) => html`<${RunLink} id=${one.run_id} name=${one.name} row />` },
  { head: "Submitted", cell: (one) => html`<${Time} at=${one.submitted_at} />` },
  { head: "Median", right: true, cell: (one) => time(one.median_ms) },
  { head: "Best so far", right: true, cell: (one) => (one.best === one.median_ms ? html`<strong>${time(one.best)}</strong>` : time(one.best)) },
];

function Chart({ times, width }) {
  const all = times.map((one) => one.median_ms);
  const [low, high] = [Math.min(...all), Math.max(...all)];
  const isWide = low > 0 && high / low > WIDE;
  const [from, to] = isWide ? [Math.log10(low) - 0.1, Math.log10(high) + 0.1] : [0, high * 1.08 || 1];
  const x = (index) => PAD.left + (times.length > 1 ? index / (times.length - 1) : 0.5) * (width - PAD.left - PAD.right);
  const y = (value) => PAD.top + (1 - ((isWide ? Math.log10(value) : value) - from) / (to - from)) * (HEIGHT - PAD.top - PAD.bottom);
  const levels = isWide ? powersOf(low, high) : amountsOf(to, 4);
  const line = times.map((one, index) => `${index ? `H${x(index).toFixed(1)}V` : `M${x(0).toFixed(1)} `}${y(one.best).toFixed(1)}`).join("");
  const said = `Times of ${times.length} submissions from ${day(times[0].submitted_at)} to ${day(times.at(-1).submitted_at)}: the first ${time(all[0])}, the best ${time(low)}, the newest ${time(all.at(-1))}${isWide ? "; logarithmic scale" : ""}`;
  return html`<svg viewBox="0 0 ${width} ${HEIGHT}" height=${HEIGHT} role="img" aria-label=${said}>
    ${levels.map((value) => html`<line class="ground" x1=${PAD.left} x2=${width - PAD.right} y1=${y(value)} y2=${y(value)} /><text x=${PAD.left - 8} y=${y(value) + 4} text-anchor="end">${time(value)}</text>`)}
    ${marksOf(times, width).map((index) => html`<text x=${x(index)} y=${HEIGHT - 4} text-anchor=${index === 0 ? "start" : index === times.length - 1 ? "end" : "middle"}>${whenOf(times, index)}</text>`)}
    <path class="best" d=${line} />
    ${times.map((one, index) => html`<circle class=${one.best === one.median_ms ? "dot record" : "dot"} cx=${x(index)} cy=${y(one.median_ms)} r=${one.best === one.median_ms || times.length <= 150 ? 3.5 : 2}><title>${one.name ?? one.run_id}: ${time(one.median_ms)}</title></circle>`)}
  </svg>`;
}

// 1, 2 and 5 times powers of ten within, or only those powers where they are many.
function powersOf(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) for (const one of [1, 2, 5]) found.push(one * 10 ** power);
  const within = found.filter((value) => value >= low * 0.8 && value <= high * 1.25);
  return within.length > 6 ? within.filter((value) => Number.isInteger(Math.round(Math.log10(value) * 1e6) / 1e6)) : within;
}

// The day, or the time of day where all are of the same hours.
function whenOf(times, index) {
  const span = ms(times.at(-1).submitted_at) - ms(times[0].submitted_at);
  return span > 8 * 86400e3 ? day(times[index].submitted_at) : tick(times[index].submitted_at, span);
}

// The submissions whose time is written below: the first, the last, and as many between as have room.
function marksOf(times, width) {
  const many = Math.max(2, Math.min(times.length, Math.floor(width / 200)));
  const found = Array.from({ length: many }, (_, index) => Math.round((index * (times.length - 1)) / (many - 1)));
  return [...new Set(found)].filter((index, place, all) => place === 0 || whenOf(times, index) !== whenOf(times, all[place - 1]));
}
