// The use of a run's GPUs over its life: a line for each GPU, the times shaded in which all were idle, and both as tables.
import { html, useState } from "../../core/dom.js";
import { count, ms } from "../../core/words.js";
import { Await, Panel, Table } from "../../ui/all.js";
import { useWidth } from "../../ui/width.js";
import { ticksOf } from "./scale.js";
import { hour, seconds } from "./words.js";

const MOST = 8; // lines
const HEIGHT = 130;
const PAD = { left: 46, right: 8, top: 8, bottom: 22 };

const share = (part, whole) => `${Math.round((100 * part) / whole)} %`;
const gib = (mib) => (mib === null ? "–" : `${(mib / 1024).toFixed(1)} GB`);
const percent = (value) => (value === null ? "–" : `${Math.round(value)} %`);
const numbers = (values) => values.filter((value) => value !== null);
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);

const GPUS = [
  { head: "GPU", cell: (gpu) => gpu.device }, { head: "Mean", right: true, cell: (gpu) => percent(mean(numbers(gpu.mean))) },
  { head: "Lowest", right: true, hide: "phone", cell: (gpu) => percent(numbers(gpu.least).length ? Math.min(...numbers(gpu.least)) : null) },
  { head: "Highest", right: true, cell: (gpu) => percent(numbers(gpu.most).length ? Math.max(...numbers(gpu.most)) : null) },
  { head: "Highest memory", right: true, cell: (gpu) => `${gib(gpu.memory_mib)}${gpu.memory_total_mib === null ? "" : ` of ${gib(gpu.memory_total_mib)}`}` },
  { head: "Highest power", right: true, hide: "phone", cell: (gpu) => (gpu.power_watts === null ? "–" : `${gpu.power_watts} W`) },
];
const IDLE = [
  { head: "Idle from", cell: (one) => hour(one.from) }, { head: "To", cell: (one) => hour(one.to) },
  { head: "For", right: true, cell: (one) => seconds((ms(one.to) - ms(one.from)) / 1000) },
];

export function UsePanel({ read }) {
  if (read.data && !read.data.gpus.length) return null;
  return html`<${Panel} title="Use of its GPUs"><${Await} read=${read} height="3">${(use) => html`<${Use} use=${use} />`}<//><//>`;
}

function Use({ use }) {
  const [isOpen, open] = useState(false);
  const whole = (ms(use.to) - ms(use.from)) / 1000;
  const idle = use.stretches.filter((one) => one.kind === "idle");
  const shares = Object.entries(use.seconds).filter(([, part]) => part).map(([kind, part]) => `${kind} ${seconds(part)} (${share(part, whole)})`).join(", ");
  const left = use.gpus.length - MOST;
  return html`<p class="dim">The GPUs together: ${shares}.</p>
    <figure class="chart"><${Curve} use=${use} idle=${idle} whole=${whole} said=${`Use of ${count(use.gpus.length, "GPU")} over time: ${shares}`} />
      <figcaption>${use.gpus.slice(0, MOST).map((gpu, place) => html`<span key=${gpu.device}><i class=${`c-${place % 7}`}></i>GPU ${gpu.device}</span>`)}${idle.length > 0 && html`<span><i class="use-idle"></i>all idle</span>`}${left > 0 && html`<span class="dim">${count(left, "more GPU")} in the table</span>`}</figcaption>
      <div class="chart-foot"><details onToggle=${(event) => open(event.currentTarget.open)}><summary>As a table</summary>${isOpen && html`
        <${Table} caption="The use of each GPU" columns=${GPUS} rows=${use.gpus} />${idle.length > 0 && html`<${Table} caption="Times in which all GPUs were idle" columns=${IDLE} rows=${idle} />`}`}</details></div></figure>`;
}

function Curve({ use, idle, whole, said }) {
  const [at, width] = useWidth();
  const room = width - PAD.left - PAD.right;
  const y = (value) => PAD.top + (1 - Math.min(value, 100) / 100) * (HEIGHT - PAD.top - PAD.bottom);
  const x = (part) => PAD.left + part * room;
  const moment = (time) => x((ms(time) - ms(use.from)) / 1000 / whole);
  return html`<div ref=${at}><svg viewBox="0 0 ${width} ${HEIGHT}" height=${HEIGHT} role="img" aria-label=${said}>
    ${idle.map((one) => html`<rect key=${one.from} class="use-idle" x=${moment(one.from)} width=${Math.max(1, moment(one.to) - moment(one.from))} y=${PAD.top} height=${HEIGHT - PAD.top - PAD.bottom} />`)}
    ${[0, 50, 100].map((value) => html`<g key=${value}><line class="ground" x1=${PAD.left} x2=${width - PAD.right} y1=${y(value)} y2=${y(value)} /><text x=${PAD.left - 8} y=${y(value) + 4} text-anchor="end">${value} %</text></g>`)}
    ${ticksOf(whole).map((tick) => html`<text key=${tick.text} x=${x(tick.share / 100)} y=${HEIGHT - 5}>${tick.text}</text>`)}
    ${use.gpus.slice(0, MOST).map((gpu, place) => html`<path key=${gpu.device} class=${`use-line c-${place % 7}`} d=${lineOf(gpu.mean, x, y)} />`)}</svg></div>`;
}

// The path through the known points, broken where one is unknown; a point alone is a dot.
function lineOf(values, x, y) {
  const step = (value, place) => {
    if (value === null) return "";
    const [across, down] = [x((place + 0.5) / values.length).toFixed(1), y(value).toFixed(1)];
    return place > 0 && values[place - 1] !== null ? `L${across} ${down}` : `M${across} ${down}h0.1`;
  };
  return values.map(step).join("");
}
