// What everything cost, by machine, run, day, user or GPU; rows sum to the machines' bills exactly.
import { html, useState } from "../core/dom.js";
import { several } from "./runs/filters.js";
import { useData } from "../core/data.js";
import { useNow } from "../core/clock.js";
import { useAt } from "../core/moment.js";
import { Link } from "../core/router.js";
import { cents, duration, money, ms, price, short, signed } from "../core/words.js";
import { ArchiveMark, Await, Empty, Money, PageHead, Panel, RunLink, Table, Tabs, VmLink } from "../ui/all.js";
import { NoBudget } from "./overview.js";
import { Charts, useShown } from "./costs/charts.js";
import { Owners } from "./costs/owners.js";
import { WhatIf } from "./costs/whatif.js";
import { Sides } from "./run/costs.js";
import { Burn } from "../ui/burn.js";

export const title = () => "Costs";

const BY = [["vm", "Machine"], ["run", "Run"], ["day", "Day"], ["user", "User"], ["gpu", "GPU"]].map(([key, label]) => ({ key, label }));
const LINES = ["provisioning", "busy", "idle", "terminating", "unconfirmed", "unattributed", "rounding"];

// Things of one name also show the beginning of their id.
const linked = (by, row, shared) => {
  const id = shared.has(row.label) && html` <span class="dim mono">${short(row.key)}</span>`;
  if (by === "vm") return html`<${VmLink} id=${row.key} name=${row.label} row />${id}<${ArchiveMark} of=${row} />`;
  if (by === "run" && /^[0-9a-f-]{36}$/.test(row.key)) return html`<${RunLink} id=${row.key} name=${row.label} row />${id}<${ArchiveMark} of=${row} />`;
  return html`<strong>${row.label}</strong>`;
};

const MANY = 200; // rows of a page

// `pages`: the cursors that led here, the newest page's left out; `turn` goes to another.
function Report({ data, by, head, pages, turn }) {
  if (!data.rows.length && !pages.length && Number(data.reconciliation.ours_usd)) return html`<${Empty} title="Nothing in this range">Choose a longer range above.<//>`;
  if (!data.rows.length && !pages.length) return html`<${Empty} title="Nothing has cost anything yet" say="steno vms">Costs begin with the first machine that has a price.<//>`;
  const lines = LINES.filter((line) => Number(data.total.lines[line]));
  const spot = Number(data.total.spot_usd) > 0;
  const shared = several(data.rows.map((row) => row.label));
  const columns = [
    { head, cell: (row) => linked(by, row, shared) },
    ...lines.map((line) => ({ head: line, right: true, hide: "narrow", cell: (row) => (Number(row.lines[line]) ? money(row.lines[line]) : html`<span class="dim">–</span>`) })),
    ...(spot ? [{ head: "spot", right: true, hide: "narrow", cell: (row) => money(row.spot_usd) }] : []),
    { head: "time", right: true, hide: "phone", cell: (row) => duration(row.machine_seconds * 1000) },
    { head: "total", right: true, cell: (row) => html`<strong><${Money} usd=${row.total_usd} /></strong>` },
  ];
  const foot = ["total", ...lines.map((line) => money(data.total.lines[line])), ...(spot ? [money(data.total.spot_usd)] : []), duration(data.total.machine_seconds * 1000), money(data.total.total_usd)];
  return html`<${Table} caption="Costs by ${head.toLowerCase()}" columns=${columns} rows=${[...data.rows].reverse()} rowKey=${(row) => row.key} foot=${foot} />
    ${(pages.length > 0 || data.next) && html`<nav class="bar foot" aria-label="Pages of costs">
      <button type="button" class="button small" disabled=${!pages.length} onClick=${() => turn([])}>Newest</button>
      <button type="button" class="button small" disabled=${!pages.length} onClick=${() => turn(pages.slice(0, -1))}>← Newer</button>
      <button type="button" class="button small" disabled=${!data.next} onClick=${() => turn([...pages, data.next])}>Older →</button>
      <span class="dim">${MANY} rows a page; the totals cover all rows.</span></nav>`}`;
}

function Split({ total, low, high, archived }) {
  const rows = LINES.filter((line) => Number(total.lines[line]));
  return html`<${Panel} title="Where it went">${rows.length ? html`<dl class="facts">${rows.map((line) => html`<dt key=${line}>${line}</dt><dd class="right">${money(total.lines[line])} <span class="dim">${Number(total.total_usd) ? `${Math.round((Number(total.lines[line]) * 1000) / Number(total.total_usd)) / 10} %` : ""}</span></dd>`)}
    <dt><strong>total</strong></dt><dd class="right"><strong>${money(total.total_usd)}</strong></dd></dl>${low !== high && html`<p class="dim">The true cost is ${money(low)}–${money(high)}: exact start and end times are unknown.</p>`}${Number(archived) > 0 && html`<p class="dim">${money(archived)} of it is from archives and counts towards no budget.</p>`}` : html`<span class="dim">Nothing yet.</span>`}<//>`;
}

// From the provider's total to ours, each cause explained.
function Theirs({ sides }) {
  const some = Number(sides.theirs_usd) || Number(sides.ours_usd);
  return html`<${Panel} title="Against the provider’s figure">${some ? html`<${Sides} sides=${sides} provider="the provider" />
    <p class="dim">${signed((Number(sides.ours_usd) - Number(sides.theirs_usd)).toFixed(6))} in total over all runs and machines, whatever the range; each run’s page shows its own difference.</p>`
    : html`<span class="dim">No costs on either side yet.</span>`}<//>`;
}

function Budget({ budget, burn, now }) {
  return html`<${Panel} title="Budget"><${Burn} points=${burn} budget=${budget} now=${now} height=${170}><${NoBudget} /><//>
    <dl class="facts">${budget.total_usd !== null && html`<dt>total</dt><dd class="right">${money(budget.total_usd)}</dd><dt>for new runs</dt><dd class="right">${cents(budget.available_usd)}</dd>`}<dt>billed now</dt><dd class="right">${price(budget.rate_now_usd_per_hour)} an hour</dd>
    <dt>last 24 hours</dt><dd class="right">${money(budget.spent_24h_usd)}</dd>${budget.total_usd !== null && budget.alerts.map((one) => html`<dt key=${one.threshold}>alert at ${Math.round(one.threshold * 1000) / 10} %</dt><dd class="right">${one.told_at_position !== null ? `given at ${one.told_at_position}` : one.reached ? "reached" : "not reached"}</dd>`)}</dl><//>`;
}

function By({ by, since }) {
  const [pages, turn] = useState([]);
  const cursor = pages.length ? `&cursor=${pages[pages.length - 1]}` : "";
  const read = useData(`/api/costs?by=${by}&since=${since}&order=newest&limit=${MANY}${cursor}`, { every: 5000 });
  const overview = useData("/api/overview", { every: 2000 });
  const at = useAt();
  const now = useNow();
  return html`<${Await} read=${overview.data === null ? { ...read, data: null } : read} height="5">${(data) => html`<div class="costs-grid"><section class="panel flush"><${Report} data=${data} by=${data.by} head=${BY.find((one) => one.key === data.by).label} pages=${pages} turn=${turn} /></section>
    <div class="stack"><${Budget} budget=${overview.data.budget} burn=${overview.data.burn} now=${at === null ? now : ms(overview.data.at)} />
      <${Split} total=${data.total} low=${data.low_usd} high=${data.high_usd} archived=${data.archived_usd} /><${Theirs} sides=${data.reconciliation} /></div></div>`}<//>`;
}

export default function Page() {
  const now = useShown();
  const budget = useData("/api/budget", { every: 5000 });
  return html`<${PageHead} title="Costs"><span class="grow"></span><${Link} class="button small" to="/report">Report of the month<//><//><${Charts} now=${now} others=${[budget]}>${(since) => html`<div class="stack"><${Owners} read=${budget} /><${WhatIf} since=${since} /></div><${Tabs} tabs=${BY} name="by" label="Group by">${(by) => html`<${By} key=${`${by} ${since}`} by=${by} since=${since} />`}<//>`}<//>`;
}
