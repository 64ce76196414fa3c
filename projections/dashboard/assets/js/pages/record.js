// The record itself: its events and its polls as lists, or one of them in full.
import { html } from "../core/dom.js";
import { Entry } from "./record/entry.js";
import { Lists } from "./record/lists.js";
import { all, records } from "../core/records.js";
import { Link } from "../core/router.js";
import { Empty, PageHead } from "../ui/all.js";

export const title = ({ position }) => (position ? `Position ${position}` : "Record");

// Positions are of one record: which one, before any list.
const Choice = ({ position }) => html`<${PageHead} title="Record" /><section class="panel"><${Empty} title="Which record?">Positions are of one record.
  <nav class="bar" aria-label="Records">${records.map((name) => html`<${Link} key=${name} class="button" to="/record${position ? `/${position}` : ""}?record=${name}&at=">${name}<//>`)}</nav><//></section>`;

export default function Page({ params }) {
  if (all()) return html`<${Choice} position=${params.position} />`;
  return params.position ? html`<${Entry} key=${params.position} position=${params.position} />` : html`<${Lists} />`;
}
