// The runs that the filters in the address find.
import { about, useData } from "../core/data.js";
import { html, useState } from "../core/dom.js";
import { Link, setQuery, usePlace } from "../core/router.js";
import { useKept } from "../core/kept.js";
import { useMay } from "../core/session.js";
import { useAt } from "../core/moment.js";
import { called, count, money, short } from "../core/words.js";
import { ArchiveMark, Await, Empty, Elapsed, PageHead, RunLink, StartMark, StateBadge, Table, Time, VmLink } from "../ui/all.js";
import { costs, ended, seconds, STATES } from "./run/words.js";
import { asked, CHOICES, FILTERS, given, ORDERS, several } from "./runs/filters.js";
import { Selected } from "./runs/selected.js";
import { Views } from "./runs/views.js";
import { useTyped } from "./record/typed.js";

export const title = () => "Runs";

const GPU = (run) => run.ran?.gpu_got ?? run.ran?.gpu_asked ?? "–";
const columns = (fold, shared, checked, check) => [
  { head: "", say: "checked", cell: (run) => !run.runs && html`<input type="checkbox" class="pick" aria-label="Check ${called(run)} ${short(run.run_id)}" checked=${checked.has(run.run_id)} onChange=${() => check(run)} />` },
  { head: "Run", sort: [["ascending", "name"], ["descending", "name-back"]], cell: (run) => (run.runs ? html`<button type="button" class="button small" aria-expanded="false" onClick=${() => fold(whole(run))}>${called(run)} · ${count(run.runs.length, "run")} ▸</button>` : html`<${RunLink} id=${run.run_id} name=${called(run)} row />${shared.has(called(run)) && html` <span class="dim mono">${short(run.run_id)}</span>`}<${ArchiveMark} of=${run} />
    <span class="phone-only dim run-age"><${Time} at=${run.submitted_at} relative /></span>${run.ran?.command && html`<span class="command-line mono dim hide-phone">${run.ran.command.replaceAll("\n", "; ")}</span>`}`) },
  { head: "Verdict", cell: (run) => (run.runs ? html`<span class="verdict-cell">${counted(run.runs).map(([state, number]) => html`<${StateBadge} key=${state} state=${state} word=${`${number} ${state}`} />`)}</span>` : html`<span class="verdict-cell"><${StateBadge} of=${run} />${run.attempts > 1 && html`<span class="dim nowrap">attempt ${run.attempts}</span>`}${run.waits && html`<span class="dim">${run.waits.never ? "never runs: " : ""}${run.waits.why}</span>`}</span>`) },
  { head: "User", hide: "narrow", cell: (run) => run.ran?.submitter ?? run.ran?.user ?? "–" },
  { head: "GPU", hide: "narrow", cell: GPU },
  { head: "Where", hide: "narrow", cell: (run) => run.ran?.source ?? run.provider },
  { head: "Machine", hide: "narrow", cell: (run) => (run.runs ? "–" : html`<${VmLink} id=${run.vm_id} />`) },
  { head: "Start", hide: "narrow", cell: (run) => (run.runs ? "–" : html`<${StartMark} start=${run.start} />`) },
  { head: "Submitted", hide: "phone", sort: [["descending", ""], ["ascending", "oldest"]], cell: (run) => html`<${Time} at=${run.submitted_at} relative />` },
  { head: "Ran", right: true, hide: "phone", sort: [["descending", "duration"], ["ascending", "duration-back"]], cell: (run) => (run.runs ? "–" : run.execution_seconds === null && run.started_at && !ended(run)
    ? html`<${Elapsed} from=${run.started_at} />` : seconds(run.execution_seconds)) },
  { head: "Cost", right: true, sort: [["descending", "cost"], ["ascending", "cost-back"]], cell: (run) => (costs(run) ? money(run.cost_usd) : run.provider_cost_usd === null || run.provider === "local" ? "–"
    : html`<span class="dim" title=${`${run.provider}'s own figure`}>(${money(run.provider_cost_usd)})</span>`) },
];

// The runs of an array as one row, unless it is unfolded: how many are in each state, and what they cost together.
function folded(runs, unfolded) {
  const groups = Map.groupBy(runs, (run) => (whole(run) && !unfolded.has(whole(run)) ? `${run.provider} ${whole(run)}` : run.run_id));
  return [...groups.values()].map((all) => (all.length === 1 ? all[0] : array(all.filter((run) => !run.tasks))));
}
const array = (tasks) => ({ ...tasks[0], runs: tasks,
  cost_usd: tasks.every((run) => run.cost_usd === null) ? null : tasks.reduce((sum, run) => sum + Number(run.cost_usd ?? 0), 0) });
// The provider's id of the array that a run is, or is a task of.
const whole = (run) => run.group ?? (run.tasks ? run.provider_id : undefined);
const counted = (runs) => [...Map.groupBy(runs, (run) => run.state)].map(([state, all]) => [state, all.length]);

// The filters as the query of a view, and the checked runs as they are now.
const viewed = ({ cursor: _, ...found }) => String(new URLSearchParams(Object.entries(found).filter(([, value]) => value)));
const newest = (checked, runs = []) => [...checked.values()].map((run) => runs.find((one) => one.run_id === run.run_id) ?? run);

const filter = (part) => setQuery({ cursor: null, ...part });

export default function Page() {
  const found = given(usePlace().query);
  const [typed, setTyped] = useTyped(found.search ?? "", (text) => filter({ search: text.trim() }));
  const read = useData(`/api/runs?${asked(found)}`, { on: about.runs, beat: 5000 }); // costs go on without a message
  const [unfolded, setUnfolded] = useState(new Set());
  const [checked, setChecked] = useState(new Map());
  const [dense, setDense] = useKept("dense", false);
  const check = (run) => setChecked((before) => { const next = new Map(before); return (next.delete(run.run_id) ? next : next.set(run.run_id, run)); });
  const may = useMay("submit");
  const live = useAt() === null;
  const filtered = FILTERS.some((name) => found[name]);
  return html`<${PageHead} title="Runs">${may && live && html`<${Link} class="button" to="/submit">Submit<//>`}<//>
    <div role="search"><div class="filters">
      <label class="field grow"><span class="label">Search</span><input class="input" type="search" data-filter placeholder="text in name, command or id" maxlength="2000" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <${More} found=${found} filtered=${filtered} />
      <${Views} query=${viewed(found)} /><button type="button" class="button" aria-pressed=${String(dense)} onClick=${() => setDense(!dense)}>Dense</button></div></div>
    ${checked.size > 0 && html`<${Selected} runs=${newest(checked, read.data?.runs)} clear=${() => setChecked(new Map())} may=${may && live} reload=${read.reload} />`}
    ${FILTERS.includes(read.error?.field) ? html`<section class="panel"><${Empty} title="No matching runs">${read.error.detail}<//></section>` : html`<${Await} read=${read} height="5">${(data) => html`<section class="panel flush">
      ${data.runs.length ? html`<${Table} caption=${`Runs: ${ORDERS[found.order]}`} dense=${dense} order=${found.order} onSort=${(order) => filter({ order })} columns=${columns((group) => setUnfolded(new Set([...unfolded, group])), several(data.runs.map(called)), checked, check)} rows=${folded(data.runs, unfolded)} rowKey=${(run) => run.run_id} />`
        : html`<${Nothing} filtered=${filtered} further=${Boolean(found.cursor)} live=${live} />`}
      ${(found.cursor || data.next) && html`<nav class="bar foot" aria-label="Pages of runs">
        <button type="button" class="button small" disabled=${!found.cursor} onClick=${() => filter({})}>${found.order ? "First" : "Newest"}</button>
        <button type="button" class="button small" disabled=${!found.cursor} onClick=${() => history.back()}>← ${found.order ? "Previous" : "Newer"}</button>
        <button type="button" class="button small" disabled=${!data.next} onClick=${() => setQuery({ cursor: data.next }, { replace: false })}>${found.order ? "Next" : "Older"} →</button></nav>`}
    </section>`}<//>`}`;
}

const clear = () => filter(Object.fromEntries(FILTERS.map((name) => [name, null])));

// The filters beside the search. Those with few known values are lists; a value in the address is shown even if unknown.
function More({ found, filtered }) {
  const known = useData("/api/filters", { on: about.runs, every: 30_000 }).data ?? {};
  const [machine, setMachine] = useTyped(found.machine ?? "", (text) => filter({ machine: text.trim() }));
  const select = ([name, label, values]) => {
    const all = (name === "state" ? STATES : known[values]) ?? [];
    return html`<label key=${name} class="field"><span class="label">${label}</span><select class="input" value=${found[name] ?? ""} onChange=${(event) => filter({ [name]: event.target.value })}>
      <option value="" selected=${!found[name]}>any</option>${(found[name] && !all.includes(found[name]) ? [found[name], ...all] : all).map((one) => html`<option key=${one} value=${one} selected=${one === found[name]}>${one}</option>`)}</select></label>`;
  };
  const [state, ...others] = CHOICES;
  const set = FILTERS.filter((name) => found[name] && !["search", "state"].includes(name)).length;
  return html`${select(state)}
    <label class="field"><span class="label">Order</span><select class="input" value=${found.order} onChange=${(event) => filter({ order: event.target.value })}>
      ${Object.entries(ORDERS).map(([order, label]) => html`<option key=${order} value=${order} selected=${order === found.order}>${label}</option>`)}</select></label>
    ${filtered && html`<button type="button" class="button" onClick=${clear}>Clear filters</button>`}
    <details class="more" open=${set > 0 || null}><summary class="button">More filters${set > 0 && ` (${set})`}</summary><div class="filters">
      ${others.map(select)}
      <label class="field"><span class="label">Machine</span><input class="input" type="search" placeholder="name or id" maxlength="200" spellcheck="false" value=${machine} onInput=${(event) => setMachine(event.target.value)} /></label>
      ${[["since", "Submitted from (UTC)"], ["until", "Submitted until (UTC)"]].map(([name, label]) => html`<label key=${name} class="field"><span class="label">${label}</span><input class="input" type="date" value=${(found[name] ?? "").slice(0, 10)} onChange=${(event) => filter({ [name]: event.target.value })} /></label>`)}
      ${found.name && html`<button type="button" class="button" onClick=${() => filter({ name: null })}>Name is ${found.name} ✕</button>`}
    </div></details>`;
}

function Nothing({ filtered, further, live }) {
  if (filtered) return html`<${Empty} title="No matching runs"><button type="button" class="button small" onClick=${clear}>Show all runs</button><//>`;
  if (further) return html`<${Empty} title="No older runs" />`;
  return live ? html`<${Empty} title="No runs yet" say="steno submit -- make test">Submit one here, or from a terminal:<//>` : html`<${Empty} title="No runs at this moment" />`;
}
