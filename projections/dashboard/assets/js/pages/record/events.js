// Events, newest first, of every stream and type or of one.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { Link, setQuery, useQuery } from "../../core/router.js";
import { number } from "../../core/words.js";
import { Await, Empty, Table, Time } from "../../ui/all.js";
import { Stream } from "./stream.js";
import { TYPES, gist } from "./data.js";
import { PageBar, usePages } from "./paging.js";
import { useTyped } from "./typed.js";

const filter = (part) => setQuery({ before: null, after: null, ...part });

const COLUMNS = [
  { head: "Position", right: true, cell: (event) => html`<${Link} class="row" to=${`/record/${event.position}`}>${number(event.position)}<//>` },
  { head: "Observed", cell: (event) => html`<${Time} at=${event.observed_at} />` },
  { head: "Type", cell: (event) => event.type },
  { head: "Stream", cell: (event) => html`<${Stream} name=${event.stream} onOnly=${() => filter({ stream: event.stream })} />` },
  { head: "Says", hide: "narrow", cell: (event) => html`<span class="dim">${gist(event)}</span>` },
];

export function Events() {
  const [stream] = useQuery("stream", "");
  const [type] = useQuery("type", "");
  const pages = usePages();
  const [typed, setTyped] = useTyped(stream, (text) => filter({ stream: text.trim() }));
  const path = `/api/events?${pages.query}${stream ? `&stream=${encodeURIComponent(stream)}` : ""}${type ? `&type=${encodeURIComponent(type)}` : ""}`;
  const read = useData(path, { every: 1500 });
  const filtered = Boolean(stream || type);
  return html`<div class="filters" role="search">
      <label class="field grow"><span class="label">Stream</span><input class="input mono" data-filter type="search" placeholder="run/…, vm/…, source/…; empty: all" spellcheck="false"
        value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <label class="field"><span class="label">Type</span><select class="input" value=${type} onChange=${(event) => filter({ type: event.target.value })}><option value="">every type</option>
        ${TYPES.map(([group, names]) => html`<optgroup key=${group} label=${group}>${names.map((name) => html`<option key=${name} value=${name} selected=${name === type}>${name}</option>`)}</optgroup>`)}</select></label></div>
    <${Await} read=${read} height="5">${(data) => {
      const rows = pages.newestFirst(data.events);
      return html`<section class="panel flush">${rows.length ? html`<${Table} caption="Events, newest first" columns=${COLUMNS} rows=${rows} rowKey=${(event) => event.position} />`
        : html`<${Empty} title="No matching events">${filtered ? "The record has no events of this stream and type at this moment." : "The record is empty at this moment."}
          ${filtered && html`<div><button type="button" class="button small" onClick=${() => filter({ stream: null, type: null })}>Show all events</button></div>`}<//>`}
        <${PageBar} pages=${pages} rows=${rows} next=${data.next} noun="events" /></section>`;
    }}<//>`;
}
