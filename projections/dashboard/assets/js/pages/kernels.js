// The best times of kernels by problem, GPU and dtype; suspected cheats and times without evidence stand apart.
import { about, useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { useAt } from "../core/moment.js";
import { Link, setQuery, useQuery } from "../core/router.js";
import { useMay } from "../core/session.js";
import { count, number } from "../core/words.js";
import { Await, Empty, PageHead, Panel, RunLink, StartMark, StateBadge, Table, Time } from "../ui/all.js";
import { Plot } from "./kernels/plot.js";
import { LOOKS, SAID, floor, interval, time } from "./kernels/words.js";

export const title = () => "Kernels";

const EVERY = 5000; // milliseconds between two reads while runs move
const PLACES = 10;
const MOST = 500;
const FILTERS = [["problem", "Problem"], ["gpu", "GPU"], ["dtype", "dtype"]];

const COLUMNS = [
  { head: "#", right: true, cell: ({ rank }) => rank },
  { head: "Kernel", cell: ({ kernel }) => html`<${RunLink} id=${kernel.run_id} name=${kernel.name} row />` },
  { head: "Median", right: true, cell: (one) => html`<strong>${time(one.time.median_ms)}</strong>` },
  { head: "Interval", right: true, hide: "phone", cell: (one) => interval(one.time) },
  { head: "Processors", right: true, hide: "narrow", cell: (one) => time(one.time.cpu_ms) },
  { head: "Floor (share)", right: true, hide: "narrow", cell: (one) => floor(one.time) },
  { head: "By", hide: "phone", cell: ({ kernel }) => kernel.submitter ?? "–" },
  { head: "Machine", hide: "narrow", cell: ({ kernel }) => kernel.machine ?? "–" },
  { head: "Start", hide: "narrow", cell: ({ kernel }) => html`<${StartMark} start=${kernel.start} />` },
  { head: "Language", hide: "narrow", cell: ({ kernel }) => kernel.language },
  { head: "Submitted", hide: "phone", cell: ({ kernel }) => html`<${Time} at=${kernel.submitted_at} relative />` },
];

const APART = [
  { head: "Kernel", cell: (one) => html`<${RunLink} id=${one.run_id} name=${one.name} row />` },
  { head: "Result", cell: (one) => html`<${StateBadge} state=${LOOKS[one.now] ?? "failed"} bare=${SAID[one.now] ?? one.now} />${one.now !== one.said && html`<div class="dim">it ended ${SAID[one.said] ?? one.said}</div>`}` },
  { head: "What was seen", cell: (one) => (one.why.length ? one.why : [one.message]).map((why) => html`<div key=${why}>${why}</div>`) },
  { head: "For", hide: "phone", cell: (one) => `${one.problem} · ${one.gpu} · ${one.dtype}` },
  { head: "By", hide: "phone", cell: (one) => one.submitter ?? "–" },
  { head: "Submitted", hide: "phone", cell: (one) => html`<${Time} at=${one.submitted_at} relative />` },
];

export const named = (board) => `${board.problem} · ${board.gpu} · ${board.dtype} · ${count(board.cpus, "processor")}${board.definition === "shipped" ? "" : ` (definition ${board.definition})`}`;

function Board({ board, onMore }) {
  const ranked = board.places.length + board.more;
  return html`<section class="panel flush" aria-label=${named(board)}><header><h2 class="plain">${named(board)}</h2><span class="grow"></span><span class="more">${count(ranked, "time")}</span></header>
    <${Table} caption=${`The best times of ${named(board)}`} columns=${COLUMNS} rows=${board.places} rowKey=${(one) => one.kernel.run_id} />
    ${board.more > 0 && html`<div class="bar foot"><span class="dim">${number(board.more)} slower ${board.more === 1 ? "time" : "times"}</span>${onMore && html`<button type="button" class="button small" onClick=${onMore}>Show up to ${MOST}</button>`}</div>`}
    ${board.history.length > 1 && html`<${Plot} rows=${board.history} more=${ranked - board.history.length} />`}</section>`;
}

function Apart({ title: head, say, rows, more }) {
  if (!rows.length) return null;
  return html`<${Panel} title=${head} flush more=${count(rows.length + more, "kernel")}><p class="note dim">${say}</p>
    <${Table} caption=${`${head}, newest first`} columns=${APART} rows=${rows} rowKey=${(one) => one.run_id} />
    ${more > 0 && html`<p class="note dim">The newest ${rows.length} of ${rows.length + more}.</p>`}<//>`;
}

// Every value that a kernel has; the chosen one too, if none has it any more.
function Filters({ all, chosen }) {
  const kernels = all ? [...all.boards, ...all.suspected, ...all.unproven] : [];
  return html`<div class="filters" role="search">${FILTERS.map(([key, label], index) => { const values = [...new Set([...kernels.map((one) => one[key]), chosen[key]])].filter(Boolean).sort();
    return html`<label class="field" key=${key}><span class="label">${label}</span><select class="input" data-filter=${index === 0 ? "" : null} value=${chosen[key]} onChange=${(event) => setQuery({ [key]: event.target.value })}>
      <option value="">any</option>${values.map((one) => html`<option key=${one} value=${one} selected=${one === chosen[key]}>${one}</option>`)}</select></label>`; })}</div>`;
}

export default function Page() {
  const chosen = Object.fromEntries(FILTERS.map(([key]) => [key, useQuery(key, "")[0]]));
  const [places] = useQuery("places", String(PLACES));
  const filtered = Object.values(chosen).some(Boolean);
  const asked = new URLSearchParams(Object.entries({ limit: places, ...chosen }).filter(([, value]) => value));
  const live = { on: about.runs, every: EVERY };
  const read = useData(`/api/kernels/leaderboard?${asked}`, live);
  const all = useData(filtered ? `/api/kernels/leaderboard?limit=${PLACES}` : null, live).data ?? read.data;
  const isNow = useAt() === null;
  const may = useMay("submit");
  return html`<${PageHead} title="Kernels">${may && isNow && html`<${Link} class="button" to="/submit">Submit<//>`}<//>
    <${Filters} all=${all} chosen=${chosen} />
    <${Await} read=${read} height="5">${(data) => html`<div class="stack">
      ${data.boards.map((board) => html`<${Board} key=${`${named(board)}${board.definition}`} board=${board} onMore=${Number(places) < MOST ? () => setQuery({ places: MOST }) : null} />`)}
      ${!data.boards.length && html`<section class="panel flush"><${Nothing} filtered=${filtered} isNow=${isNow} apart=${data.suspected.length + data.unproven.length} /></section>`}
      <${Apart} title="Suspected of cheating" rows=${data.suspected} more=${data.more_suspected} say="The judge, or today's rules, saw what an honest kernel does not do. These times are on no board." />
      <${Apart} title="Not proven" rows=${data.unproven} more=${data.more_unproven} say="They ended timed, but the record lacks evidence that today's rules ask for. Submit them again." />
    </div>`}<//>`;
}

function Nothing({ filtered, isNow, apart }) {
  if (filtered) return html`<${Empty} title="No times of such kernels"><button type="button" class="button small" onClick=${() => setQuery({ problem: null, gpu: null, dtype: null })}>Show all kernels</button><//>`;
  if (apart) return html`<${Empty} title="No time that can be ranked" />`;
  return isNow ? html`<${Empty} title="No times yet" say=${["steno kernel problems", "steno kernel submit add.hip --problem vector-add --wait"]}>Submit a kernel here, or from a terminal:<//>` : html`<${Empty} title="No times at this moment" />`;
}
