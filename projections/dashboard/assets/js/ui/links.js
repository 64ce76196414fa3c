// Links to what the record holds.
import { html } from "../core/dom.js";
import { Link } from "../core/router.js";
import { short } from "../core/words.js";

// `#1234`, to the poll or event at that position.
export const PollLink = ({ position, children }) => (position === null || position === undefined ? html`<span class="dim">–</span>`
  : html`<${Link} to="/record/${position}" class="mono">${children ?? `#${position}`}<//>`);
export const RunLink = ({ id, name, row }) => (id ? html`<${Link} to="/runs/${encodeURIComponent(id)}" class=${row ? "row" : ""}>${name || short(id)}<//>` : html`<span class="dim">–</span>`);
export const VmLink = ({ id, name, row }) => (id ? html`<${Link} to="/machines/${encodeURIComponent(id)}" class=${row ? "row" : ""}>${name || short(id)}<//>` : html`<span class="dim">–</span>`);

// `run/<id>`, `vm/<id>` or `source/<name>` as a link to its page.
export function SubjectLink({ subject, name }) {
  const [kind, id] = [subject.slice(0, subject.indexOf("/")), subject.slice(subject.indexOf("/") + 1)];
  if (kind === "run") return html`<${RunLink} id=${id} name=${name ?? `run ${short(id)}`} />`;
  if (kind === "vm") return html`<${VmLink} id=${id} name=${name ?? `machine ${short(id)}`} />`;
  return html`<${Link} to="/record?stream=${encodeURIComponent(subject)}">${name ?? subject}<//>`;
}
