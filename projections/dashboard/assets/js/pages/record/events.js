// Events, newest first, of every stream and type or of one.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { Link, setQuery, useQuery } from "../../core/router.js";
import { number } from "../../core/words.js";
import { Await, Empty, Table, Time } from "../../ui/all.js";
import { Stream } from "./stream.js";
import { TYPES, gist } from "./data.js";
import { PageBar, useHeld, usePages } from "./paging.js";
import { useTyped } from "./typed.js";

const filter = (part) => setQuery({ before: null, after: null, ...part });

const COLUMNS = [
  { head: "Position", right: true, cell: (event) => html`<${Link} class="row" to=${`/record/${event.position}`}>${number(event.position)}<//>` },
  { head: "Observed", cell: (event) => html`<${Time} at=${event.observed_at} />` },
  { head: "Type", cell: (event) => event.type },
  { head: "Stream", below: true, cell: (event) => html`<${Stream} name=${event.stream} onOnly=${() => filter({ stream: event.stream })} />` },
  { head: "Says", hide: "narrow", cell: (event) => html`<span class="dim">${gist(event)}</span>` },
];

export function Events() {
  const [stream] = useQuery("stream", "");
  const [type] = useQuery("type", "");
  const [typed, setTyped] = useTyped(stream, (text) => filter({ stream: text.trim() }));
  const filtered = Boolean(stream || type);
  return html`<div class="filters" role="search">
      <label class="field grow"><span class="label">Stream</span><input class="input mono" data-filter type="search" placeholder="run/…, vm/…, source/…; empty: all" spellcheck="false"
        value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <label class="field"><span class="label">Type</span><select class="input" value=${type} onChange=${(event) => filter({ type: event.target.value })}><option value="">every type</option>
        ${TYPES.map(([group, names]) => html`<optgroup key=${group} label=${group}>${names.map((name) => html`<option key=${name} value=${name} selected=${name === type}>${name}</option>`)}</optgroup>`)}</select></label></div>
    <${EventList} stream=${stream} type=${type}>${filtered && html`<div><button type="button" class="button small" onClick=${() => filter({ stream: null, type: null })}>Show all events</button></div>`}<//>`;
}

// The events of a stream and type, or of all; `children` under the words that there are none.
export function EventList({ stream, type, own = false, children }) {
  const pages = usePages();
  const path = `/api/events?${pages.query}${stream ? `&stream=${encodeURIComponent(stream)}` : ""}${type ? `&type=${encodeURIComponent(type)}` : ""}`;
  const read = useData(path, { every: 1500, beat: 3000 });
  return html`<${Await} read=${read} height="5">${(data) => html`<${Shown} data=${data} pages=${pages} path=${read.stale ? null : path} own=${own} filtered=${Boolean(stream || type)}>${children}<//>`}<//>`;
}

function Shown({ data, pages, path, own, filtered, children }) {
  const { rows, next, bar } = useHeld({ rows: pages.newestFirst(data.events), next: data.next }, pages, path, "event");
  return html`<section class="panel flush">${bar}${rows.length ? html`<${Table} caption="Events, newest first" columns=${own ? COLUMNS.filter((one) => one.head !== "Stream") : COLUMNS} rows=${rows} rowKey=${(event) => event.position} />`
    : html`<${Empty} title=${filtered ? "No matching events" : "No events"}>${filtered ? "The record has no such events at this moment." : "The record is empty at this moment."}${children}<//>`}
    <${PageBar} pages=${pages} rows=${rows} next=${next} noun="events" /></section>`;
}
