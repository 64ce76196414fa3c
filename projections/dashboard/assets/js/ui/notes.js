// Placeholders: loading, empty, or failed.
import { html } from "../core/dom.js";
import { Link } from "../core/router.js";
import { moment } from "../core/words.js";

// `<${Empty} title="No run yet" say="steno submit …">What to do.<//>`; `say` is what to type.
export const Empty = ({ title, say, children }) => html`<div class="empty"><strong>${title}</strong>
  ${children && html`<div>${children}</div>`}
  ${say && [].concat(say).map((line) => html`<div><code class="say">${line}</code></div>`)}</div>`;

// The status of an answer in words.
const HEADS = { 400: "Not valid", 403: "Not allowed", 404: "Not found", 409: "Refused", 422: "Not valid", 502: "Not available now", 503: "Not available now" };

// An ApiProblem, with its field; `retry` adds a button. Building read models is not one: the frame shows its progress.
export function Problem({ error, retry }) {
  if (!error) return null;
  if (error.progress) return html`<${Loading} height="5" />`;
  const head = HEADS[error.status] ?? (error.status ? `${error.title || "Problem"} (${error.status})` : error.title || "Problem");
  return html`<div class="problem" role="alert"><strong>${head}</strong>
    <span>${withCode(error.detail || error.message)}${error.field && html` <span class="dim">Field: <code>${error.field}</code></span>`}</span>
    ${retry && html`<div><button type="button" class="button small" onClick=${retry}>Try again</button></div>`}</div>`;
}

// `steno logs` in a sentence is code, and a time of the service's is written as elsewhere on the page.
export const withCode = (text) => (text ?? "").split(/(`[^`\n]+`|\d{4}-\d\d-\d\dT[\d:.]+Z)/).map((part, place) => (place % 2 === 0 ? part
  : part[0] === "`" ? html`<code class="say">${part.slice(1, -1)}</code>` : html`<span class="nowrap">${moment(part)}</span>`));

// A whole page: the record has no run or machine of this id, or had none at the moment that is shown.
export const Missing = ({ kind, id, past }) => html`<${PageHead} title=${past ? "Not there yet" : `No such ${kind}`} />
  <section class="panel"><${Empty} title=${past ? `The record had no such ${kind} at this moment.` : `The record has no ${kind} ${id}.`}>
    <${Link} to="/${kind}s">All ${kind}s<//>${past && html` · <${Link} to=${`/${kind}s/${encodeURIComponent(id)}?at=`}>this ${kind} as it is now<//>`}<//></section>`;

// Space for the content: height 1 (a line) to 5 (a page).
export const Loading = ({ height = 3 }) => html`<div class="skeleton h-${height}" role="status"><span class="hidden-text">Loading</span></div>`;

// `<${Await} read=${useData(path)} height="4">${(data) => …}<//>`: skeleton, problem or content, old content dimmed meanwhile.
export function Await({ read, height = 3, children }) {
  const { data, error, stale, reload } = read;
  const problem = error && html`<${Problem} error=${error} retry=${reload} />`;
  if (data === null) return problem || html`<${Loading} height=${height} />`;
  return html`${problem}<div class=${stale ? "stale" : ""} aria-busy=${stale ? "true" : null}>${children(data)}</div>`;
}

export const PageHead = ({ title, children }) => html`<div class="page-head"><h1 tabindex="-1">${title}</h1>${children}</div>`;

export const Panel = ({ title, more, flush, children, id, class: names = "" }) => html`<section class="panel ${flush ? "flush" : ""} ${names}" aria-label=${title}>
  <header><h2 id=${id}>${title}</h2>${more && html`<span class="grow"></span><span class="more">${more}</span>`}</header>${children}</section>`;
