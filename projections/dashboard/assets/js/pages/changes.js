// What changed since a time: verdicts, machines, anomalies and gaps, money, settings.
import { withParams } from "../core/api.js";
import { useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { useQuery } from "../core/router.js";
import { count, money } from "../core/words.js";
import { Await, Empty, Money, PageHead, Panel, StateBadge, SubjectLink, Table, Time, withCode } from "../ui/all.js";
import { useShown } from "./costs/charts.js";

export const title = () => "Changes";

const HOURS = [["6", "6 hours"], ["24", "24 hours"], ["72", "3 days"], ["168", "7 days"], ["720", "30 days"]];
const STEP = 600e3; // the beginning moves in such steps: with each second it would be another read

const PANELS = [["run", "Runs that ended"], ["machine", "Machines"], ["anomaly", "Anomalies"], ["gap", "Nobody looked, or nobody answered"], ["money", "Money"], ["setting", "Settings and levers"]];
const what = { head: "What", below: true, cell: (row) => withCode(row.what) };
const at = { head: "When", right: true, cell: (row) => html`<${Time} at=${row.at} relative />` };
const cost = { head: "Cost", right: true, cell: (row) => html`<${Money} usd=${row.cost_usd} />` };
const user = { head: "User", hide: "phone", cell: (row) => row.user ?? "–" };
const name = (head) => ({ head, cell: (row) => (row.subjects.length === 1 ? html`<${SubjectLink} subject=${row.subjects[0]} name=${row.name} />` : row.name) });
const COLUMNS = {
  run: [name("Run"), { head: "Ended", cell: (row) => html`<${StateBadge} state=${row.state} />` }, user, what, cost, at],
  machine: [name("Machine"), { head: "Change", cell: (row) => html`<strong class=${row.state === "vanished" ? "bad" : ""}>${row.state}</strong>` }, user, what, cost, at],
  anomaly: [name("About"), { head: "Kind", cell: (row) => html`<code>${row.state}</code>` }, what, at],
  gap: [{ head: "Source", cell: (row) => row.name }, { head: "Why", cell: (row) => row.state }, what, at],
  money: [{ head: "User", cell: (row) => row.name }, cost],
  setting: [{ head: "Of", cell: (row) => row.name }, { head: "By", cell: (row) => row.user ?? "–" }, what, at],
};

export default function Page() {
  const [hours, choose] = useQuery("hours", "24");
  const [who, write] = useQuery("user", "");
  const end = Math.floor(useShown() / STEP) * STEP;
  const since = new Date(end - Number(hours) * 3600e3).toISOString().slice(0, 19) + "Z";
  const read = useData(withParams("/api/changes", { since, user: who, limit: 50 }), { every: 5000 });
  const users = useData("/api/filters", { every: 60_000 }).data?.users ?? [];
  return html`<${PageHead} title="Changes" /><div class="filters" role="search">
      <label class="field"><span class="label">Since</span><select class="input" value=${hours} onChange=${(event) => choose(event.target.value === "24" ? null : event.target.value)}>${HOURS.map(([key, text]) => html`<option key=${key} value=${key}>the last ${text}</option>`)}</select></label>
      <label class="field"><span class="label">User</span><select class="input" value=${who} onChange=${(event) => write(event.target.value || null)}><option value="">everybody</option>${users.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label></div>
    <${Await} read=${read} height="5">${(data) => html`<div class="stack"><p class="lead">${count(data.runs_submitted, "run")} submitted, ${money(data.total_usd)} spent since <${Time} at=${data.from} both />.</p>
      ${!data.changes.length && html`<section class="panel"><${Empty} title="Nothing changed">Choose a longer time above.<//></section>`}
      ${PANELS.map(([kind, text]) => { const rows = data.changes.filter((row) => row.kind === kind);
    return rows.length > 0 && html`<${Panel} key=${kind} title=${text} flush><${Table} caption=${text} columns=${COLUMNS[kind]} rows=${rows} /><//>`; })}
      ${data.more && html`<p class="dim">There are more anomalies, or more runs and machines, than this page holds.</p>`}</div>`}<//>`;
}
