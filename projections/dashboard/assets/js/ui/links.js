// Links to what the record holds.
import { html, useContext } from "../core/dom.js";
import { PageRecord, all } from "../core/records.js";
import { Link } from "../core/router.js";
import { short } from "../core/words.js";

// `#1234`, to the poll or event at that position.
// `record`: of several, the one that has it; else the one whose page this is.
export function PollLink({ position, record, children, class: looks = "mono", ...rest }) {
  const page = useContext(PageRecord);
  const of = record ?? page;
  if (position === null || position === undefined) return html`<span class="dim">–</span>`;
  return html`<${Link} ...${rest} class=${looks} to=${`/record/${position}${of && all() ? `?record=${of}` : ""}`}>${children ?? `#${position}`}<//>`;
}
export const RunLink = ({ id, name, row }) => (id ? html`<${Link} to="/runs/${encodeURIComponent(id)}" class=${row ? "row" : ""}>${name || short(id)}<//>` : html`<span class="dim">–</span>`);
export const VmLink = ({ id, name, row }) => (id ? html`<${Link} to="/machines/${encodeURIComponent(id)}" class=${row ? "row" : ""}>${name || short(id)}<//>` : html`<span class="dim">–</span>`);

// `run/<id>`, `vm/<id>` or `source/<name>` as a link to its page.
export function SubjectLink({ subject, name }) {
  const [kind, id] = [subject.slice(0, subject.indexOf("/")), subject.slice(subject.indexOf("/") + 1)];
  if (kind === "run") return html`<${RunLink} id=${id} name=${name ?? `run ${short(id)}`} />`;
  if (kind === "vm") return html`<${VmLink} id=${id} name=${name ?? `machine ${short(id)}`} />`;
  return html`<${Link} to="/record?stream=${encodeURIComponent(subject)}">${name ?? subject}<//>`;
}
