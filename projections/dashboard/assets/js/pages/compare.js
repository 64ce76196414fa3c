// Two runs side by side: outcome, times and cost, and what differs in what was asked for; or the choice of the second.
import { about, useData } from "../core/data.js";
import { html, useState } from "../core/dom.js";
import { Link, useQuery } from "../core/router.js";
import { called, duration, money, short } from "../core/words.js";
import { Await, Empty, PageHead, Panel, Problem, RunLink, StateBadge, Table, Time } from "../ui/all.js";
import { useTyped } from "./record/typed.js";

export const title = () => "Compare";

const to = (a, b) => `/compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`;

export default function Page() {
  const [a] = useQuery("a");
  const [b] = useQuery("b");
  if (!a) return html`<${PageHead} title="Compare two runs" /><section class="panel"><${Empty} title="No run is chosen">Open a run, then choose “Compare with…”. <div><${Link} to="/runs">All runs<//></div><//></section>`;
  return b ? html`<${Both} a=${a} b=${b} />` : html`<${Choose} a=${a} />`;
}

function Choose({ a }) {
  const [search, setSearch] = useState("");
  const [typed, setTyped] = useTyped(search, (text) => setSearch(text.trim()));
  const first = useData(`/api/runs/${encodeURIComponent(a)}`);
  const read = useData(`/api/runs?limit=50${search ? `&search=${encodeURIComponent(search)}` : ""}`, { on: about.runs });
  if (first.error) return html`<${PageHead} title="Compare two runs" /><${Problem} error=${first.error} />`;
  const name = first.data ? called(first.data) : a;
  const columns = [
    { head: "Run", cell: (run) => html`<${Link} class="row" to=${to(a, run.run_id)}>${called(run)}<//> <span class="dim mono">${short(run.run_id)}</span>` },
    { head: "Verdict", cell: (run) => html`<${StateBadge} of=${run} />` },
    { head: "Command", hide: "phone", cell: (run) => html`<span class="command-line mono dim">${run.ran?.command?.replaceAll("\n", "; ") ?? ""}</span>` },
    { head: "Submitted", hide: "phone", cell: (run) => html`<${Time} at=${run.submitted_at} relative />` },
  ];
  // Runs of the same name are the likely choice.
  const ranked = (runs) => runs.filter((run) => run.run_id !== first.data?.run_id).sort((one, other) => (called(other) === name) - (called(one) === name));
  return html`<p class="crumbs"><${Link} to="/runs">Runs<//> <span aria-hidden="true">/</span> <${RunLink} id=${a} name=${name} /></p><${PageHead} title="Compare ${name} with…" />
    <div class="filters" role="search"><label class="field grow"><span class="label">Search</span><input class="input" type="search" data-filter placeholder="text in name, command or id" maxlength="2000" spellcheck="false" value=${typed}
      onInput=${(event) => setTyped(event.target.value)} /></label></div>
    <${Await} read=${read} height="5">${(data) => html`<section class="panel flush">${ranked(data.runs).length ? html`<${Table} caption="Runs to compare with" columns=${columns} rows=${ranked(data.runs)} rowKey=${(run) => run.run_id} />`
      : html`<${Empty} title="No other runs">${search ? "No run has this text in its name, command or id." : "There is only this run."}<//>`}</section>`}<//>`;
}

function Both({ a, b }) {
  const read = useData(`/api/compare?a=${encodeURIComponent(a)}&b=${encodeURIComponent(b)}`, { on: (message) => about.run(a)(message) || about.run(b)(message) });
  return html`<${PageHead} title="Compare two runs"><span class="grow"></span><${Link} class="button small" to=${to(b, a)}>Swap<//><//>
    <${Await} read=${read} height="5">${(data) => html`<${Side} data=${data} />`}<//>`;
}

function Side({ data }) {
  const same = called(data.runs[0]) === called(data.runs[1]);
  const heads = data.runs.map((run) => html`<${RunLink} id=${run.run_id} name=${same ? `${called(run)} (${short(run.run_id)})` : called(run)} />`);
  const columns = (what) => [
    { head: what, cell: (one) => html`<span class=${one.values[0] === one.values[1] ? "dim" : "strong"}>${words(one.field)}</span>` },
    ...heads.map((head, place) => ({ head, cell: (one) => shown(one, one.values[place]) })),
    { head: "Difference", right: true, hide: "phone", cell: (one) => change(one) },
  ];
  return html`<div class="stack compare"><${Panel} title="Outcome" flush><${Table} caption="Outcome of both runs" columns=${columns("Of the run")} rows=${data.outcome} rowKey=${(one) => one.field} /><//>
    <${Panel} title="What was asked for" flush>${data.task.length ? html`<${Table} caption="What was asked for, where it differs" columns=${columns("Field").slice(0, 3)} rows=${data.task} rowKey=${(one) => one.field} />`
      : html`<p class="note">${data.task_known ? "The same was asked for." : "Not known: Steno did not submit both."}</p>`}<//></div>`;
}

const words = (field) => ({ waited_seconds: "waited", ran_seconds: "ran", whole_seconds: "from submission to end", cost_usd: "cost", exit_status: "exit status" }[field] ?? field);
const SECRET = /^steno:secret:/;

function shown({ field }, value) {
  if (value === null || value === undefined) return "–";
  if (field === "state") return html`<${StateBadge} state=${value} />`;
  if (field.endsWith("_seconds")) return duration(value * 1000);
  if (field === "cost_usd") return money(value);
  if (Array.isArray(value)) return html`<pre class="command" tabindex="0" role="region" aria-label="Commands">${value.join("\n")}</pre>`;
  return SECRET.test(value) ? html`<span class="dim">secret ${value.replace(SECRET, "").slice(0, 6)}…</span>` : html`<code>${typeof value === "object" ? JSON.stringify(value) : String(value)}</code>`;
}

// How much the second is over the first, of times and money.
function change({ field, values: [before, after] }) {
  if (before === null || after === null || !/_seconds$|_usd$/.test(field)) return "";
  const more = Number(after) - Number(before);
  if (!more) return html`<span class="dim">the same</span>`;
  const sign = more > 0 ? "+" : "−";
  return `${sign}${field === "cost_usd" ? money(Math.abs(more).toFixed(6)) : duration(Math.abs(more) * 1000)}`;
}
