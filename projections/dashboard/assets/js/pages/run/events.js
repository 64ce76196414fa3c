// The events of one run, with links into the record.
import { about, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { Link, useQuery } from "../../core/router.js";
import { Await, Empty, Table } from "../../ui/all.js";
import { gist } from "../record/data.js";
import { hour } from "./words.js";

const COLUMNS = [
  { head: "Position", right: true, cell: (event) => html`<${Link} class="row" to=${`/record/${event.position}`}>${event.position.toLocaleString("en-US")}<//>` },
  { head: "Observed", cell: (event) => html`<time datetime=${event.observed_at} class="nowrap">${hour(event.observed_at)}</time>` },
  { head: "Event", cell: (event) => event.type },
  { head: "Says", hide: "phone", cell: (event) => html`<span class="dim">${gist(event)}</span>` },
];

export function Events({ run }) {
  const [cursor, setCursor] = useQuery("events");
  const path = `/api/runs/${encodeURIComponent(run.run_id)}/events?limit=100${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`;
  const read = useData(path, { on: about.run(run.run_id) });
  return html`<${Await} read=${read} height="4">${(data) => html`<section class="panel flush">
    ${data.events.length ? html`<${Table} caption="Events of the run" columns=${COLUMNS} rows=${data.events} rowKey=${(event) => event.position} />`
      : html`<${Empty} title="No events of this run at this moment" />`}
    <nav class="bar foot" aria-label="Pages of events">${cursor && html`<button type="button" class="button small" onClick=${() => setCursor(null)}>First</button>`}
      ${data.next && html`<button type="button" class="button small" onClick=${() => setCursor(data.next, { replace: false })}>More →</button>`}
      <span class="spring"></span><${Link} to=${`/record?stream=${encodeURIComponent(`run/${run.run_id}`)}`}>In the record browser<//></nav></section>`}<//>`;
}
