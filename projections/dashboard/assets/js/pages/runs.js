// Every run the record knows, newest first; filtered by state and name.
import { about, useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { Link, setQuery, useQuery } from "../core/router.js";
import { useMay } from "../core/session.js";
import { useAt } from "../core/moment.js";
import { called, money } from "../core/words.js";
import { ArchiveMark, Await, Empty, Elapsed, PageHead, RunLink, StartMark, StateBadge, Table, Time, VmLink } from "../ui/all.js";
import { costs, ended, seconds, STATES } from "./run/words.js";
import { useTyped } from "./record/typed.js";

export const title = () => "Runs";

const COLUMNS = [
  { head: "Run", cell: (run) => html`<${RunLink} id=${run.run_id} name=${called(run)} row /><${ArchiveMark} of=${run} />` },
  { head: "Verdict", cell: (run) => html`<span class="verdict-cell"><${StateBadge} of=${run} />${run.attempts > 1 && html`<span class="dim nowrap">attempt ${run.attempts}</span>`}</span>` },
  { head: "Where", hide: "narrow", cell: (run) => run.provider },
  { head: "Machine", hide: "narrow", cell: (run) => html`<${VmLink} id=${run.vm_id} />` },
  { head: "Start", hide: "narrow", cell: (run) => html`<${StartMark} start=${run.start} />` },
  { head: "Submitted", hide: "phone", cell: (run) => html`<${Time} at=${run.submitted_at} relative />` },
  { head: "Ran", right: true, hide: "phone", cell: (run) => (run.execution_seconds === null && run.started_at && !ended(run)
    ? html`<${Elapsed} from=${run.started_at} />` : seconds(run.execution_seconds)) },
  { head: "Cost", right: true, cell: (run) => (costs(run) ? money(run.cost_usd) : run.provider_cost_usd === null || run.provider === "local" ? "–"
    : html`<span class="dim" title=${`${run.provider}'s own figure`}>(${money(run.provider_cost_usd)})</span>`) },
];

export default function Page() {
  const [state] = useQuery("state", "");
  const [name] = useQuery("name", "");
  const [cursor] = useQuery("cursor");
  const filter = (part) => setQuery({ cursor: null, ...part });
  const [typed, setTyped] = useTyped(name, (text) => filter({ name: text.trim() }));
  const asked = new URLSearchParams(Object.entries({ limit: "50", state, name, cursor: cursor ?? "" }).filter(([, value]) => value));
  const read = useData(`/api/runs?${asked}`, { on: about.runs, beat: 5000 }); // costs go on without a message
  const may = useMay("submit");
  const live = useAt() === null;
  return html`<${PageHead} title="Runs">${may && live && html`<${Link} class="button" to="/submit">Submit<//>`}<//>
    <div class="filters" role="search">
      <label class="field grow"><span class="label">Name</span><input class="input" type="search" data-filter list="names" placeholder="the whole name" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <datalist id="names">${[...new Set((read.data?.runs ?? []).map((run) => run.name))].map((one) => html`<option key=${one} value=${one} />`)}</datalist>
      <label class="field"><span class="label">State</span><select class="input" value=${state} onChange=${(event) => filter({ state: event.target.value })}>
        <option value="">any</option>${STATES.map((one) => html`<option key=${one} value=${one} selected=${one === state}>${one}</option>`)}</select></label></div>
    <${Await} read=${read} height="5">${(data) => html`<section class="panel flush">
      ${data.runs.length ? html`<${Table} caption="Runs, newest first" columns=${COLUMNS} rows=${data.runs} rowKey=${(run) => run.run_id} />`
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
