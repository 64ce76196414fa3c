// Every case that the rules saw, what they make of it, and the rules that none reached; one case with runs that had it.
import { useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { Link, setQuery, useQuery } from "../core/router.js";
import { count, number } from "../core/words.js";
import { Await, Empty, PageHead, Panel, PollLink, RunLink, StateBadge, Table, Time } from "../ui/all.js";

export const title = () => "Cases";

const STATES = ["queued", "provisioning", "pulling", "running", "finishing", "succeeded", "failed", "stopped"];
const verdict = (one) => (one.state ? html`<${StateBadge} state=${one.state} bare=${one.reason ? `${one.state} · ${one.reason}` : one.state} />` : html`<span class="dim">no state</span>`);

export default function Page() {
  const [chosen] = useQuery("case");
  return chosen ? html`<${One} of=${chosen} />` : html`<${All} />`;
}

function All() {
  const [state] = useQuery("state");
  const read = useData(`/api/cases${state ? `?state=${encodeURIComponent(state)}` : ""}`, { every: 5000 });
  const columns = (sets) => [
    { head: "Case", right: true, cell: (row) => html`<${Link} class="row" to="/cases?case=${row.case}">${row.case}<//>` },
    { head: "What the rules see", below: true, cell: (row) => row.words },
    ...sets.map((name, place) => ({ head: name, cell: (row) => verdict(row.judged[place]) })),
    { head: "By rule", hide: "narrow", cell: (row) => html`<code class="dim">${row.judged[0]?.rule}</code>` },
    { head: "Seen", right: true, hide: "phone", cell: (row) => number(row.observations) },
    { head: "Runs", right: true, hide: "phone", cell: (row) => number(row.runs) },
    { head: "Since", hide: "phone", cell: (row) => html`<${Time} at=${row.first_at} relative />` },
  ];
  const unseen = [
    { head: "Rule", cell: (row) => html`<code>${row.rule}</code>` },
    { head: "Would take", below: true, cell: (row) => row.words },
    { head: "And say", cell: (row) => verdict(row.judged) },
  ];
  return html`<${PageHead} title="Cases" /><div class="filters" role="search"><label class="field"><span class="label">State</span>
      <select class="input" value=${state ?? ""} onChange=${(event) => setQuery({ state: event.target.value || null })}>
        <option value="">any</option>${STATES.map((one) => html`<option key=${one} value=${one}>${one}</option>`)}</select></label></div>
    <${Await} read=${read} height="5">${(data) => html`<div class="stack"><section class="panel flush">
      ${data.cases.length ? html`<${Table} caption="Cases that the rules saw" columns=${columns(data.cases[0].judged.map((one) => one.rules))} rows=${data.cases} rowKey=${(row) => row.case} />`
        : html`<${Empty} title="No case">${state ? "No observation led to this state." : "No poll has shown a run yet."}<//>`}</section>
      ${data.unseen.length > 0 && html`<${Panel} title="Rules that no observation reached" flush more=${count(data.unseen.length, "rule")}>
        <${Table} caption="Rules that no observation reached" columns=${unseen} rows=${data.unseen} rowKey=${(row) => `${row.rules} ${row.rule}`} /><//>`}</div>`}<//>`;
}

function One({ of }) {
  const read = useData(`/api/cases/${encodeURIComponent(of)}`, { every: 5000 });
  const runs = [
    { head: "Run", cell: (row) => html`<${RunLink} id=${row.run_id} name=${row.name} row />` },
    { head: "Shown at", cell: (row) => html`<${Time} at=${row.at} />` },
    { head: "Poll", right: true, cell: (row) => html`<${PollLink} position=${row.position} />` },
  ];
  const sets = [
    { head: "Rule set", cell: (row) => row.rules },
    { head: "Verdict", cell: (row) => verdict(row) },
    { head: "By rule", cell: (row) => html`<code>${row.rule}</code>` },
  ];
  return html`<p class="crumbs"><${Link} to="/cases">Cases<//></p><${PageHead} title=${`Case ${of}`} />
    <${Await} read=${read} height="5">${(data) => html`<div class="stack"><p>${data.words} <span class="dim">${count(data.observations, "observation")} in ${count(data.runs, "run")}</span></p>
      <${Panel} title="What the rules make of it" flush><${Table} caption="What each rule set makes of it" columns=${sets} rows=${data.judged} rowKey=${(row) => row.rules} /><//>
      <${Panel} title="Runs that showed it" flush><${Table} caption="Runs that showed it" columns=${runs} rows=${data.examples} rowKey=${(row) => row.run_id} /><//></div>`}<//>`;
}
