// The events of one run, newest first, with links into the record.
import { html } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { EventList } from "../record/events.js";

export function Events({ run }) {
  const stream = `run/${run.run_id}`;
  return html`<${EventList} stream=${stream} own /><p class="note"><${Link} to=${`/record?stream=${encodeURIComponent(stream)}`}>These events in the record, to filter by type<//></p>`;
}
