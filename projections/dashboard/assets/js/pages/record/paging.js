// Pages of a list that is sorted by position: newest first, from the head or from a position, either way.
import { html } from "../../core/dom.js";
import { setQuery, useQuery } from "../../core/router.js";
import { number } from "../../core/words.js";

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

export function PageBar({ pages, rows, next, noun }) {
  const newer = pages.newer(rows, next);
  const older = pages.older(rows, next);
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
