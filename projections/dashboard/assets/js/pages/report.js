// The report of a month: spend, forecast, waste, waits, failures, machines, the provider's figures.
import { withParams } from "../core/api.js";
import { useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { Link, href, useQuery } from "../core/router.js";
import { duration, money, number } from "../core/words.js";
import { Await, Empty, PageHead, Panel, Table, Time, withCode } from "../ui/all.js";
import { useShown } from "./costs/charts.js";
import { sentence } from "./submit/fields.js";

export const title = () => "Report";

const MONTHS = 24; // that are offered
const monthOf = (at, back = 0) => { const date = new Date(at); return new Date(Date.UTC(date.getUTCFullYear(), date.getUTCMonth() - back, 1)).toISOString().slice(0, 7); };
const cell = (value, text) => (value === null ? "" : text(value));

// A column is there where a row has its figure.
const columns = (rows) => [
  { head: "What", cell: (row) => row.name },
  ...(rows.some((row) => row.detail) ? [{ head: "Detail", cell: (row) => row.detail.replaceAll("_", " ") }] : []),
  ...(rows.some((row) => row.runs !== null) ? [{ head: "Runs", right: true, cell: (row) => cell(row.runs, number) }] : []),
  ...(rows.some((row) => row.seconds !== null) ? [{ head: "Time", right: true, cell: (row) => cell(row.seconds, (seconds) => duration(seconds * 1000)) }] : []),
  ...(rows.some((row) => row.usd !== null) ? [{ head: "Cost", right: true, cell: (row) => cell(row.usd, money) }] : []),
];

export default function Page() {
  const now = useShown();
  const [chosen, choose] = useQuery("month");
  const month = chosen ?? monthOf(now);
  const path = withParams("/api/report", { month });
  const read = useData(path, { every: 30_000 });
  const names = [...Array(MONTHS).keys()].map((back) => monthOf(now, back));
  return html`<p class="crumbs"><${Link} to="/costs">Costs<//></p><${PageHead} title="Report" /><div class="filters">
      <label class="field"><span class="label">Month (UTC)</span><select class="input" value=${month} onChange=${(event) => choose(event.target.value === names[0] ? null : event.target.value)}>${(names.includes(month) ? names : [month, ...names]).map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label>
      <a class="button" href=${href(`${path}&format=csv`)} download>CSV</a></div>
    <${Await} read=${read} height="5">${(data) => (data.unknown ? html`<section class="panel"><${Empty} title="Nothing to report">${withCode(sentence(data.unknown))}.<//></section>` : html`<div class="stack">
      <p class="dim">Up to <${Time} at=${data.known_to} both />. For finance in other forms: <code class="say">steno report --month ${month} --format html</code>, or <code class="say">focus</code>.</p>
      ${[...Map.groupBy(data.rows, (row) => row.section)].map(([section, rows]) => html`<${Panel} key=${section} title=${section} flush><${Table} caption=${section} columns=${columns(rows)} rows=${rows} /><//>`)}</div>`)}<//>`;
}
