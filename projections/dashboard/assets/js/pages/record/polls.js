// Polls, newest first: request, status, duration, changes.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { Link, setQuery, useQuery } from "../../core/router.js";
import { number } from "../../core/words.js";
import { Await, Empty, Table, Time } from "../../ui/all.js";
import { PageBar, useHeld, usePages } from "./paging.js";
import { Stream } from "./stream.js";

const SHOWN = 3;

const COLUMNS = [
  { head: "Position", right: true, cell: (poll) => html`<${Link} class="row" to=${`/record/${poll.position}`}>${number(poll.position)}<//>` },
  { head: "Time", cell: (poll) => html`<${Time} at=${poll.t} />` },
  { head: "Answer", cell: (poll) => html`<span class=${poll.answered ? "good" : "bad"}>${poll.status ?? "none"}</span>` },
  { head: "Took", right: true, hide: "phone", cell: (poll) => `${Math.round(poll.ms)} ms` },
  { head: "Path", below: true, cell: (poll) => html`<code title=${poll.path}>${poll.asked}</code>` },
  { head: "Source", hide: "narrow", cell: (poll) => poll.source },
  { head: "Changed", hide: "phone", cell: (poll) => html`${poll.changed.slice(0, SHOWN).map((name) => html`<${Stream} key=${name} name=${name} /> `)}${poll.changed.length > SHOWN
    && html`<span class="dim">and ${poll.changed.length - SHOWN} more</span>`}` },
];

export function Polls() {
  const [failed] = useQuery("failed");
  const pages = usePages();
  const path = `/api/polls?${pages.query}${failed ? "&failed=true" : ""}`;
  const read = useData(path, { every: 2000, beat: 3000 });
  const only = (event) => setQuery({ failed: event.target.checked ? "true" : null, before: null, after: null });
  return html`<div class="filters"><label class="check"><input type="checkbox" data-filter checked=${Boolean(failed)} onChange=${only} /> Failed polls only</label></div>
    <${Await} read=${read} height="5">${(data) => html`<${Shown} data=${data} pages=${pages} path=${read.stale ? null : path} failed=${failed} />`}<//>`;
}

function Shown({ data, pages, path, failed }) {
  const { rows, next, bar } = useHeld({ rows: pages.newestFirst(data.polls), next: data.next }, pages, path, "poll");
  return html`<section class="panel flush">${bar}${rows.length ? html`<${Table} caption="Polls, newest first" columns=${COLUMNS} rows=${rows} rowKey=${(poll) => poll.position} />`
    : html`<${Empty} title="No polls">${failed ? "No poll has failed up to this moment." : "No provider has been polled yet."}<//>`}
    <${PageBar} pages=${pages} rows=${rows} next=${next} noun="polls" /></section>`;
}
