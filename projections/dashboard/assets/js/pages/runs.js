// Every run the record knows, newest first; filtered by state and name.
import { about, useData } from "../core/data.js";
import { html, useState } from "../core/dom.js";
import { Link, setQuery, useQuery } from "../core/router.js";
import { useMay } from "../core/session.js";
import { useAt } from "../core/moment.js";
import { called, count, money } from "../core/words.js";
import { ArchiveMark, Await, Empty, Elapsed, PageHead, RunLink, StartMark, StateBadge, Table, Time, VmLink } from "../ui/all.js";
import { costs, ended, seconds, STATES } from "./run/words.js";
import { useTyped } from "./record/typed.js";

export const title = () => "Runs";

const columns = (fold) => [
  { head: "Run", cell: (run) => (run.runs ? html`<button type="button" class="button small" aria-expanded="false" onClick=${() => fold(run.group)}>${called(run)} · ${count(run.runs.length, "run")} ▸</button>` : html`<${RunLink} id=${run.run_id} name=${called(run)} row /><${ArchiveMark} of=${run} />`) },
  { head: "Verdict", cell: (run) => (run.runs ? html`<span class="verdict-cell">${counted(run.runs).map(([state, number]) => html`<${StateBadge} key=${state} state=${state} word=${`${number} ${state}`} />`)}</span>` : html`<span class="verdict-cell"><${StateBadge} of=${run} />${run.attempts > 1 && html`<span class="dim nowrap">attempt ${run.attempts}</span>`}${run.waits && html`<span class="dim">${run.waits.never ? "never runs: " : ""}${run.waits.why}</span>`}</span>`) },
  { head: "Where", hide: "narrow", cell: (run) => run.provider },
  { head: "Machine", hide: "narrow", cell: (run) => (run.runs ? "–" : html`<${VmLink} id=${run.vm_id} />`) },
  { head: "Start", hide: "narrow", cell: (run) => (run.runs ? "–" : html`<${StartMark} start=${run.start} />`) },
  { head: "Submitted", hide: "phone", cell: (run) => html`<${Time} at=${run.submitted_at} relative />` },
  { head: "Ran", right: true, hide: "phone", cell: (run) => (run.runs ? "–" : run.execution_seconds === null && run.started_at && !ended(run)
    ? html`<${Elapsed} from=${run.started_at} />` : seconds(run.execution_seconds)) },
  { head: "Cost", right: true, cell: (run) => (costs(run) ? money(run.cost_usd) : run.provider_cost_usd === null || run.provider === "local" ? "–"
    : html`<span class="dim" title=${`${run.provider}'s own figure`}>(${money(run.provider_cost_usd)})</span>`) },
];

// The runs of an array as one row, unless it is unfolded: how many are in each state, and what they cost together.
function folded(runs, unfolded) {
  const groups = Map.groupBy(runs, (run) => (run.group && !unfolded.has(run.group) ? `${run.provider} ${run.group}` : run.run_id));
  return [...groups.values()].map((all) => (all.length === 1 ? all[0] : { ...all[0], runs: all,
    cost_usd: all.every((run) => run.cost_usd === null) ? null : all.reduce((sum, run) => sum + Number(run.cost_usd ?? 0), 0) }));
}
const counted = (runs) => [...Map.groupBy(runs, (run) => run.state)].map(([state, all]) => [state, all.length]);

export default function Page() {
  const [state] = useQuery("state", "");
  const [name] = useQuery("name", "");
  const [cursor] = useQuery("cursor");
  const filter = (part) => setQuery({ cursor: null, ...part });
  const [typed, setTyped] = useTyped(name, (text) => filter({ name: text.trim() }));
  const asked = new URLSearchParams(Object.entries({ limit: "50", state, name, cursor: cursor ?? "" }).filter(([, value]) => value));
  const read = useData(`/api/runs?${asked}`, { on: about.runs, beat: 5000 }); // costs go on without a message
  const [unfolded, setUnfolded] = useState(new Set());
  const COLUMNS = columns((group) => setUnfolded(new Set([...unfolded, group])));
  const may = useMay("submit");
  const live = useAt() === null;
  return html`<${PageHead} title="Runs">${may && live && html`<${Link} class="button" to="/submit">Submit<//>`}<//>
    <div class="filters" role="search">
      <label class="field grow"><span class="label">Name</span><input class="input" type="search" data-filter list="names" placeholder="the whole name" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <datalist id="names">${[...new Set((read.data?.runs ?? []).map((run) => run.name))].map((one) => html`<option key=${one} value=${one} />`)}</datalist>
      <label class="field"><span class="label">State</span><select class="input" value=${state} onChange=${(event) => filter({ state: event.target.value })}>
        <option value="">any</option>${STATES.map((one) => html`<option key=${one} value=${one} selected=${one === state}>${one}</option>`)}</select></label></div>
    <${Await} read=${read} height="5">${(data) => html`<section class="panel flush">
      ${data.runs.length ? html`<${Table} caption="Runs, newest first" columns=${COLUMNS} rows=${folded(data.runs, unfolded)} rowKey=${(run) => run.run_id} />`
        : html`<${Nothing} filtered=${Boolean(state || name)} further=${cursor !== null} live=${live} onAll=${() => filter({ state: null, name: null })} />`}
      ${(cursor || data.next) && html`<nav class="bar foot" aria-label="Pages of runs">
        <button type="button" class="button small" disabled=${!cursor} onClick=${() => filter({})}>Newest</button>
        <button type="button" class="button small" disabled=${!cursor} onClick=${() => history.back()}>← Newer</button>
        <button type="button" class="button small" disabled=${!data.next} onClick=${() => setQuery({ cursor: data.next }, { replace: false })}>Older →</button></nav>`}
    </section>`}<//>`;
}

function Nothing({ filtered, further, live, onAll }) {
  if (filtered) return html`<${Empty} title="No matching runs"><button type="button" class="button small" onClick=${onAll}>Show all runs</button><//>`;
  if (further) return html`<${Empty} title="No older runs" />`;
  return live ? html`<${Empty} title="No runs yet" say="steno submit -- make test">Submit one here, or from a terminal:<//>` : html`<${Empty} title="No runs at this moment" />`;
}
