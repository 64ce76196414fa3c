// Pages of a list that is sorted by position: newest first, from the head or from a position, either way.
import { html, useRef, useState } from "../../core/dom.js";
import { setQuery, useQuery } from "../../core/router.js";
import { useAt } from "../../core/moment.js";
import { count, number } from "../../core/words.js";

const SIZE = 50;

// What to ask for, how to show it newest first, and where the neighbouring pages begin.
export function usePages() {
  const [before] = useQuery("before");
  const [after] = useQuery("after");
  const forward = after !== null;
  return {
    query: `limit=${SIZE}${forward ? "" : "&backwards=true"}${forward && after !== "0" ? `&cursor=${encodeURIComponent(after)}` : ""}${before && !forward ? `&cursor=${encodeURIComponent(before)}` : ""}`,
    atHead: !forward && before === null,
    newestFirst: (rows) => (forward ? [...rows].reverse() : rows),
    older: (rows, next) => (forward ? after !== "0" && rows.at(-1)?.position : next && rows.at(-1)?.position) || null,
    newer: (rows, next) => (forward ? next && rows[0]?.position : before !== null && (rows[0]?.position ?? Number(before) - 1)) || null,
  };
}

// The newest page as it was when it was opened, until it is asked to follow: no row moves under the reader.
//   {rows, next, bar}; `key`: of what is listed, null while that is still the list before.
export function useHeld({ rows, next }, pages, key, noun) {
  const [follow, setFollow] = useQuery("follow");
  const at = useAt();
  const kept = useRef(null);
  const [, redraw] = useState(0);
  const holds = pages.atHead && at === null && follow === null && key !== null && kept.current?.key === key && kept.current.rows.length > 0;
  if (!holds) kept.current = { key, rows, next };
  const fresh = rows.filter((row) => row.position > (kept.current.rows[0]?.position ?? 0)).length;
  const show = () => { kept.current = { key, rows, next }; redraw((number_) => number_ + 1); };
  const bar = pages.atHead && at === null && html`<div class="bar head follow"><label class="check"><input type="checkbox" checked=${follow !== null} onChange=${(event) => setFollow(event.target.checked ? "true" : null)} /> Follow</label>
    <span class="dim">${follow === null ? "" : `new ${noun}s appear at the top`}</span><span class="spring"></span>${fresh > 0 && html`<button type="button" class="button small fresh" onClick=${show}>Show ${count(fresh, `new ${noun}`)}${fresh === rows.length ? " or more" : ""}</button>`}</div>`;
  return { ...kept.current, bar };
}

export function PageBar({ pages, rows, next, noun }) {
  const newer = pages.newer(rows, next);
  const older = pages.older(rows, next);
  if (pages.atHead && !older && !newer) return null; // there is one page
  const go = (values) => {
    setQuery({ before: null, after: null, ...values }, { replace: false });
    scrollTo(0, 0);
  };
  return html`<nav class="bar foot" aria-label=${`Pages of ${noun}`}>
    <button type="button" class="button small" disabled=${pages.atHead} onClick=${() => go({})}>Newest</button>
    <button type="button" class="button small" disabled=${!newer} onClick=${() => go({ after: newer })}>← Newer</button>
    <span class="dim">${rows.length > 0 && `${number(rows.at(-1).position)} to ${number(rows[0].position)}`}</span>
    <button type="button" class="button small" disabled=${!older} onClick=${() => go({ before: older })}>Older →</button>
    <button type="button" class="button small" disabled=${!older} onClick=${() => go({ after: "0" })}>Oldest</button></nav>`;
}
