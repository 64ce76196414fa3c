// Spend by day, use of machines and start-up times, of one range of days.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { useNow } from "../../core/clock.js";
import { useAt } from "../../core/moment.js";
import { useQuery } from "../../core/router.js";
import { count, duration, money, ms } from "../../core/words.js";
import { Await, Empty, Loading, Panel } from "../../ui/all.js";
import { Bars, Charted, Distribution, Strips, bucketName, tone } from "../../ui/charts.js";

const RANGES = [["7", "7 days"], ["30", "30 days"], ["90", "90 days"], ["all", "All"]];
const STACKS = [["line", "purpose"], ["gpu", "GPU"], ["user", "user"]];
const STRIPS = [["gpu", "GPU"], ["vm", "machine"]];
const EVERY = { every: 10000, beat: 60000 };

const Choice = ({ label, options, value, choose }) => html`<label class="pick"><span>${label}</span> <select class="input" value=${value} onChange=${(event) => choose(event.target.value)}>${options.map(([key, text]) => html`<option key=${key} value=${key}>${text}</option>`)}</select></label>`;

// `now`: the moment shown (ms); the range ends with its day. What stands below, of the same range (`children(since)`), is drawn with the charts and once
// `others` are read, so that it does not move.
export function Charts({ now, others = [], children }) {
  const [kept, choose] = useQuery("range", "30");
  const range = RANGES.some(([key]) => key === kept) ? kept : "30";
  const day = Math.floor(now / 86400e3);
  const since = new Date(range === "all" ? 0 : (day - Number(range) + 1) * 86400e3).toISOString().slice(0, 10);
  const [stack, pile] = useQuery("stack", "line");
  const [strip, cut] = useQuery("strip", "gpu");
  const paths = { spend: `/api/spend?by=${stack}&since=${since}`, use: `/api/utilisation?by=${strip}&since=${since}`, starts: `/api/starts?since=${since}` };
  const [spend, use, starts] = [useData(paths.spend, EVERY), useData(paths.use, EVERY), useData(paths.starts, EVERY)];
  if ([spend, use, starts, ...others].some((read) => read.data === null && read.error === null)) return html`<${Loading} height="5" />`;
  return html`<div class="charts"><div class="whole range"><${Choice} label="Range of charts and table" options=${RANGES} value=${range} choose=${(key) => choose(key === "30" ? null : key)} /></div>
    <${SpendPanel} read=${spend} path=${paths.spend} by=${stack} choose=${pile} /><${UsePanel} read=${use} path=${paths.use} by=${strip} choose=${cut} /><${StartsPanel} read=${starts} path=${paths.starts} /></div>${children(since)}`;
}

// The moment shown (ms).
export function useShown() {
  const at = useAt();
  const now = useNow();
  const { data } = useData(at === null ? null : "/api/overview", { on: () => false });
  return at === null || data === null ? now : ms(data.at);
}

const none = html`<${Empty} title="Nothing in this range">A longer range may show more.<//>`;
const day = { head: "Day", cell: (row) => row.day };

function SpendPanel({ read, path, by, choose }) {
  const more = html`<${Choice} label="Stacked by" options=${STACKS} value=${by} choose=${(key) => choose(key === "line" ? null : key)} />`;
  return html`<${Panel} title="Spend by day" class="whole" more=${more}><${Await} read=${read} height="4">${(data) => {
    if (!data.days.length) return none;
    const series = data.series.map((one, place) => ({ ...one, css: tone(one.key, place) }));
    const rows = data.days.map((name, index) => ({ day: name, total: data.daily[index], parts: series.map((one) => one.daily[index]) }));
    const columns = [day, ...series.map((one, index) => ({ head: one.key, right: true, cell: (row) => money(row.parts[index]) })), { head: "total", right: true, cell: (row) => html`<strong>${money(row.total)}</strong>` }];
    const bars = rows.map((row) => ({ day: row.day, total: Number(row.total), parts: series.map((one, index) => ({ key: one.key, css: one.css, value: Number(row.parts[index]) })) }));
    return html`<${Charted} path=${path} caption="Spend by day" columns=${columns} rows=${[...rows].reverse()} foot=${["total", ...series.map((one) => money(one.total_usd)), money(data.total_usd)]}
      keys=${series.map((one) => ({ key: one.key, css: one.css, text: `${one.key} ${money(one.total_usd)}` }))}><${Bars} bars=${bars} said=${`Spend of ${count(data.days.length, "day")}: ${money(data.total_usd)}`} /><//>`;
  }}<//><//>`;
}

const LEVELS = ["below 20 %", "below 40 %", "below 60 %", "below 80 %", "80 % or more"].map((text, place) => ({ key: text, css: `heat h${place}`, text }));
const USE = [
  day, { head: "Machines", cell: (row) => row.label }, { head: "Billed", right: true, cell: (row) => duration(row.billed * 1000) }, { head: "Busy", right: true, cell: (row) => duration(row.busy * 1000) },
  { head: "Share", right: true, cell: (row) => (row.billed ? `${Math.round((1000 * row.busy) / row.billed) / 10} %` : "–") },
];

function UsePanel({ read, path, by, choose }) {
  const more = html`<${Choice} label="By" options=${STRIPS} value=${by} choose=${(key) => choose(key === "gpu" ? null : key)} />`;
  return html`<${Panel} title="Use of machines" more=${more}><${Await} read=${read} height="4">${(data) => {
    if (!data.days.length) return none;
    const strips = data.strips.length > 1 ? [...data.strips, data.total] : data.strips;
    const rows = data.days.flatMap((name, index) => strips.map((one) => ({ day: name, label: one.label, billed: one.days[index][0], busy: one.days[index][1] }))).filter((row) => row.billed);
    return html`<p class="dim">Busy of billed time.</p><${Charted} path=${path} caption="Use of machines by day" columns=${USE} rows=${rows.reverse()} keys=${LEVELS}><${Strips} days=${data.days} strips=${strips} /><//>`;
  }}<//><//>`;
}

const TIMES = [{ head: "Submitted → running", cell: bucketName }, { head: "Cold", right: true, cell: (row) => row.cold }, { head: "Warm", right: true, cell: (row) => row.warm }];
const figures = (kind, of) => (of.count ? `${kind}: ${count(of.count, "run")}, median ${duration(of.median_seconds * 1000)}, 95 % within ${duration(of.p95_seconds * 1000)}` : `${kind}: none`);

function StartsPanel({ read, path }) {
  return html`<${Panel} title="Start-up times"><${Await} read=${read} height="4">${(data) => (data.buckets.length ? html`<p class="dim">From submission to running: cold on a machine made for the run, warm on one that was there.</p>
    <${Charted} path=${path} caption="Start-up times" columns=${TIMES} rows=${data.buckets} keys=${[{ key: "cold", css: "cold", text: figures("cold", data.cold) }, { key: "warm", css: "warm", text: figures("warm", data.warm) }]}>
      <${Distribution} buckets=${data.buckets} said=${`Start-up times. ${figures("cold", data.cold)}. ${figures("warm", data.warm)}`} /><//>` : none)}<//><//>`;
}
