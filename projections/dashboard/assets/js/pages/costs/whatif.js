// What another idle timeout or machine limit would have cost: bill against p95 wait, beside the recorded policy. Simulated when asked for.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { useQuery } from "../../core/router.js";
import { count, duration, money } from "../../core/words.js";
import { Await, Empty, Panel } from "../../ui/all.js";
import { Charted } from "../../ui/charts.js";
import { useWidth } from "../../ui/width.js";

const SWEEPS = { "idle-timeout": ["Idle timeout", "least=60&most=1800"], "max-vms": ["Machine limit", "least=1&most=6"] };
const KEEP = 120; // seconds: the p95 wait that the marked policy keeps
const HEIGHT = 220;
const PAD = { left: 64, right: 90, top: 16, bottom: 28 };
const wait = (seconds) => (seconds === null ? "–" : duration(seconds * 1000));
const COLUMNS = [
  { head: "Policy", cell: (row) => html`<strong>${row.policy}</strong>${row.cheapest && html` <span class="dim">cheapest within ${wait(KEEP)}</span>`}` },
  { head: "Bill", right: true, cell: (row) => money(row.best.bill_usd) },
  { head: "between", right: true, hide: "narrow", cell: (row) => (row.low ? `${money(row.low.bill_usd)}–${money(row.high.bill_usd)}` : "") },
  { head: "Cold starts", right: true, hide: "phone", cell: (row) => row.best.cold_starts },
  { head: "p95 wait", right: true, cell: (row) => wait(row.best.wait_p95_seconds) },
  { head: "Idle", right: true, hide: "phone", cell: (row) => `${Math.round(row.best.idle_share * 100)} %` },
];

function Scatter({ rows, said }) {
  const [at, width] = useWidth();
  const top = Math.max(...rows.map((row) => Number(row.best.bill_usd)), 1e-6);
  const far = Math.max(...rows.map((row) => row.best.wait_p95_seconds ?? 0), 1);
  const x = (row) => PAD.left + ((row.best.wait_p95_seconds ?? 0) / far) * (width - PAD.left - PAD.right);
  const y = (usd) => PAD.top + (1 - usd / top) * (HEIGHT - PAD.top - PAD.bottom);
  const labels = []; // where one has room: of points that lie together only the first is named
  const named = (row) => {
    const [across, down] = [x(row), y(Number(row.best.bill_usd))];
    if (labels.some((label) => Math.abs(label[0] - across) < 60 && Math.abs(label[1] - down) < 12)) return false;
    return labels.push([across, down]);
  };
  const size = (row) => (row.cheapest ? 7 : 4);
  return html`<div ref=${at}><svg viewBox="0 0 ${width} ${HEIGHT}" height=${HEIGHT} role="img" aria-label=${said}>
    ${[0, top].map((usd) => html`<g key=${usd}><line class="ground" x1=${PAD.left} x2=${width - PAD.right} y1=${y(usd)} y2=${y(usd)} /><text x=${PAD.left - 8} y=${y(usd) + 4} text-anchor="end">${money(usd.toFixed(6))}</text></g>`)}
    <text x=${width - PAD.right} y=${HEIGHT - 5} text-anchor="end">p95 wait ${wait(far)}</text>
    ${rows.map((row) => html`<g key=${row.policy}><rect class=${row.low ? "cold" : "warm"} x=${x(row) - size(row)} y=${y(Number(row.best.bill_usd)) - size(row)} width=${2 * size(row)} height=${2 * size(row)} rx=${size(row)} />${named(row) && html`<text x=${x(row) + 9} y=${y(Number(row.best.bill_usd)) + 4}>${row.policy.replace(/^.*=/, "")}</text>`}</g>`)}</svg></div>`;
}

export function WhatIf({ since }) {
  const [sweep, choose] = useQuery("whatif", "");
  const path = SWEEPS[sweep] ? `/api/whatif?sweep=${sweep}&${SWEEPS[sweep][1]}&keep_p95=${KEEP}&since=${since}` : null;
  const read = useData(path, { on: () => false });
  const more = html`${Object.entries(SWEEPS).map(([key, [text]]) => html`<button key=${key} type="button" class="button small" aria-pressed=${key === sweep} onClick=${() => choose(key === sweep ? null : key)}>${text}</button>`)}`;
  return html`<${Panel} title="What if" class="whole" more=${more}>${path === null ? html`<${Empty} title="Another policy" say="steno whatif --help">Choose what to vary: the recorded runs are decided again.<//>` : read.error?.status === 404 ? html`<${Empty} title="Nothing to decide again">${read.error.detail}<//>` : html`<${Await} read=${read} height="4">${(data) => {
    const rows = [{ policy: "recorded", best: data.recorded }, ...data.predictions.map((one) => ({ ...one, cheapest: one.policy === data.cheapest }))];
    const error = `${(data.error * 100).toFixed(2)} %`;
    return html`<p class="dim">${data.source}, ${count(data.runs, "run")}. The recorded policy, predicted alike, differs from its bill by ${error}.</p>
      <${Charted} path=${path} caption="What if" columns=${COLUMNS} rows=${rows}><${Scatter} rows=${rows} said=${`Bill against p95 wait of ${count(data.predictions.length, "policy", "policies")}`} /><//>`;
  }}<//>`}<//>`;
}
