// A poll's evidence about a run, verbatim: each field under its object.
import { html } from "../../core/dom.js";
import { PollLink, Time } from "../../ui/all.js";

export const Quote = ({ quote }) => html`<figure class="quote">
  <figcaption><${PollLink} position=${quote.position}>${quote.kind} #${quote.position}<//> <${Time} at=${quote.at} /> <span class="dim">${quote.source} <code title=${quote.path}>${quote.asked}</code></span></figcaption>
  ${quote.fields.length === 0 ? html`<p class="dim">does not show the run</p>` : grouped(quote.fields).map((group) => html`<div class="quote-group" key=${group.parent}>
    <p class="quote-parent"><code>${group.parent || "."}</code></p>
    <dl class="quote-fields">${group.fields.map((field) => html`<dt title=${field.path}><code>${field.name}</code></dt><dd><code>${JSON.stringify(field.value)}</code></dd>`)}</dl></div>`)}
</figure>`;

function grouped(fields) {
  const groups = [];
  for (const field of fields) {
    const cut = field.path.lastIndexOf(".");
    const [parent, name] = [field.path.slice(0, cut), field.path.slice(cut + 1)];
    if (groups.at(-1)?.parent !== parent) groups.push({ parent, fields: [] });
    groups.at(-1).fields.push({ ...field, name });
  }
  return groups;
}

const SHORT = new Set([".error", ".why", ".detail"]);

// `run running, job done, exit 0`: the shortest form of a quote.
export function brief(quote) {
  if (!quote) return "";
  if (quote.kind === "event") {
    return [quote.path, ...quote.fields.filter((field) => SHORT.has(field.path) && field.value).map((field) => field.value)].join(", ");
  }
  const line = quote.fields[0]?.value; // of a text
  return quote.fields.map(word).filter(Boolean).join(", ") || (typeof line === "string" ? line : "");
}

function word({ path, value }) {
  if (value === null) return null;
  const who = path.includes(".jobs[") ? "job" : "run";
  return { status: `${who} ${value}`, exit_status: `exit ${value}`, termination_reason: String(value) }[path.slice(path.lastIndexOf(".") + 1)];
}
