// The record itself: its events and its polls as lists, or one of them in full.
import { html } from "../core/dom.js";
import { Entry } from "./record/entry.js";
import { Lists } from "./record/lists.js";

export const title = ({ position }) => (position ? `Position ${position}` : "Record");

export default function Page({ params }) {
  return params.position ? html`<${Entry} key=${params.position} position=${params.position} />` : html`<${Lists} />`;
}
