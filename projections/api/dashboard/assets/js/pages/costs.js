// What everything cost, by machine, run, day, user or GPU; rows sum to the machines' bills exactly.
import { html, useState } from "../core/dom.js";
import { about, useData } from "../core/data.js";
import { useNow } from "../core/clock.js";
import { useAt } from "../core/moment.js";
import { count, duration, money, ms, number, price, signed } from "../core/words.js";
import { Await, Empty, Money, PageHead, Panel, RunLink, Table, Tabs, VmLink } from "../ui/all.js";
import { NoBudget } from "./overview.js";
import { Burn } from "../ui/burn.js";

export const title = () => "Costs";

const BY = [["vm", "Machine"], ["run", "Run"], ["day", "Day"], ["user", "User"], ["gpu", "GPU"]].map(([key, label]) => ({ key, label }));
const LINES = ["provisioning", "busy", "idle", "terminating", "unconfirmed", "unattributed", "rounding"];

const linked = (by, row) => {
  if (by === "vm") return html`<${VmLink} id=${row.key} name=${row.label} row />`;
  if (by === "run" && /^[0-9a-f-]{36}$/.test(row.key)) return html`<${RunLink} id=${row.key} name=${row.label} row />`;
  return html`<strong>${row.label}</strong>`;
};

const MANY = 200; // rows drawn unless all are asked for

function Report({ data, by, head }) {
  const [all, showAll] = useState(false);
  if (!data.rows.length) return html`<${Empty} title="Nothing has cost anything yet" say="steno vms">Bills begin with the first machine that has a price.<//>`;
  const lines = LINES.filter((line) => Number(data.total.lines[line]));
  const spot = Number(data.total.spot_usd) > 0;
  const columns = [
    { head, cell: (row) => linked(by, row) },
    ...lines.map((line) => ({ head: line, right: true, hide: "narrow", cell: (row) => (Number(row.lines[line]) ? money(row.lines[line]) : html`<span class="dim">–</span>`) })),
    ...(spot ? [{ head: "spot", right: true, hide: "narrow", cell: (row) => money(row.spot_usd) }] : []),
    { head: "time", right: true, hide: "phone", cell: (row) => duration(row.machine_seconds * 1000) },
    { head: "total", right: true, cell: (row) => html`<strong><${Money} usd=${row.total_usd} /></strong>` },
  ];
  const foot = ["together", ...lines.map((line) => money(data.total.lines[line])), ...(spot ? [money(data.total.spot_usd)] : []), duration(data.total.machine_seconds * 1000), money(data.total.total_usd)];
  return html`<${Table} caption="Costs by ${head.toLowerCase()}" columns=${columns} rows=${all ? data.rows : data.rows.slice(-MANY)} rowKey=${(row) => row.key} foot=${foot} />
    ${!all && data.rows.length > MANY && html`<p class="rest"><button type="button" class="button" onClick=${() => showAll(true)}>Show all ${number(data.rows.length)}</button> <span class="dim">The newest ${MANY} are shown; the sums are of all.</span></p>`}`;
}

function Split({ total, low, high }) {
  const rows = LINES.filter((line) => Number(total.lines[line]));
  return html`<${Panel} title="Where it went">${rows.length ? html`<dl class="facts">${rows.map((line) => html`<dt key=${line}>${line}</dt><dd class="right">${money(total.lines[line])} <span class="dim">${Number(total.total_usd) ? `${Math.round((Number(total.lines[line]) * 1000) / Number(total.total_usd)) / 10} %` : ""}</span></dd>`)}
    <dt><strong>together</strong></dt><dd class="right"><strong>${money(total.total_usd)}</strong></dd></dl>${low !== high && html`<p class="dim">Between ${money(low)} and ${money(high)}, for what happened between two polls.</p>`}` : html`<span class="dim">Nothing yet.</span>`}<//>`;
}

const COMPARED = 200; // runs, the newest

// Both figures of the newest runs that have both; why they differ stands line by line on each run's page.
function Theirs() {
  const { data } = useData(`/api/runs?limit=${COMPARED}`, { every: 10_000, on: about.runs });
  const both = (data?.runs ?? []).filter((run) => run.cost_usd !== null && run.provider_cost_usd !== null);
  const sum = (key) => both.reduce((total, run) => total + Number(run[key]), 0).toFixed(6);
  const [ours, theirs] = [sum("cost_usd"), sum("provider_cost_usd")];
  return html`<${Panel} title="Against the provider’s figure" more=${count(both.length, "run")}>${both.length ? html`<dl class="facts"><dt>ours</dt><dd class="right">${money(ours)}</dd><dt>theirs</dt><dd class="right">${money(theirs)}</dd>
    <dt><strong>ours, less theirs</strong></dt><dd class="right"><strong>${signed((Number(ours) - Number(theirs)).toFixed(6))}</strong></dd></dl>
    <p class="dim">The newest runs with both figures. Theirs counts queueing and leaves idle time out; each run’s page has the causes, which sum to its difference exactly.</p>`
    : html`<span class="dim">No run has both figures yet.</span>`}<//>`;
}

function Budget({ budget, burn, now }) {
  return html`<${Panel} title="Budget"><${Burn} points=${burn} budget=${budget} now=${now} height=${170}><${NoBudget} /><//>
    <dl class="facts"><dt>total</dt><dd class="right">${money(budget.total_usd)}</dd><dt>for new runs</dt><dd class="right">${money(budget.available_usd)}</dd><dt>billed now</dt><dd class="right">${price(budget.rate_now_usd_per_hour)} an hour</dd>
    <dt>last 24 hours</dt><dd class="right">${money(budget.spent_24h_usd)}</dd>${budget.alerts.map((one) => html`<dt key=${one.threshold}>alert at ${Math.round(one.threshold * 1000) / 10} %</dt><dd class="right">${one.told_at_position !== null ? `given at ${one.told_at_position}` : one.reached ? "reached" : "not reached"}</dd>`)}</dl><//>`;
}

function By({ by }) {
  const read = useData(`/api/costs?by=${by}`, { every: 5000 });
  const overview = useData("/api/overview", { every: 2000 });
  const at = useAt();
  const now = useNow();
  return html`<${Await} read=${overview.data === null ? { ...read, data: null } : read} height="5">${(data) => html`<div class="costs-grid"><section class="panel flush"><${Report} data=${data} by=${data.by} head=${BY.find((one) => one.key === data.by).label} /></section>
    <div class="stack"><${Budget} budget=${overview.data.budget} burn=${overview.data.burn} now=${at === null ? now : ms(overview.data.at)} />
      <${Split} total=${data.total} low=${data.low_usd} high=${data.high_usd} /><${Theirs} /></div></div>`}<//>`;
}

export default function Page() {
  return html`<${PageHead} title="Costs" /><${Tabs} tabs=${BY} name="by" label="What a row stands for">${(by) => html`<${By} by=${by} />`}<//>`;
}
