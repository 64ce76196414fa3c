// Tables: caption, sticky header, arrow keys between rows, columns that are hidden on narrow screens.
import { classes, html, useLayoutEffect, useRef } from "../core/dom.js";

function arrows(event) {
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const links = [...event.currentTarget.querySelectorAll("a.row")];
  const place = links.indexOf(document.activeElement);
  const next = links[place + (event.key === "ArrowDown" ? 1 : -1)];
  if (place < 0 || !next) return;
  event.preventDefault();
  next.focus();
}

// A table wider than the screen is reached by the keyboard, to be scrolled.
function scrollable(wrap, caption) {
  const watch = new ResizeObserver(() => {
    const is = wrap.scrollWidth > wrap.clientWidth;
    for (const [name, value] of [["tabindex", "0"], ["role", "group"], ["aria-label", caption]]) {
      if (is) wrap.setAttribute(name, value);
      else wrap.removeAttribute(name);
    }
  });
  for (const one of [wrap, wrap.firstElementChild]) watch.observe(one);
  return () => watch.disconnect();
}

// The head of a column that is sorted by a click; a second click turns the order.
function Sorter({ column, order, onSort }) {
  const place = column.sort.findIndex(([, key]) => key === order);
  const next = column.sort[place === 0 ? 1 : 0];
  return html`<button type="button" class="sorter" title="Sort, ${next[0]}" onClick=${() => onSort(next[1])}>${column.head} <span aria-hidden="true">${place < 0 ? "" : column.sort[place][0] === "ascending" ? "▲" : "▼"}</span></button>`;
}
const sorted = (column, order) => column.sort?.find(([, key]) => key === order)?.[0] ?? null;

// columns: [{head, cell(row), right, hide: "phone"|"narrow", below, key, sort: [["descending", key of the order], ["ascending", key]]}]; the link of a row is an `<${Link} class="row">` in a cell.
// `below`: on a phone the cell is a line of its own under the others, and the heads are only read aloud.
// `caption` is read aloud; it is shown with `titled`. `foot` is one row of cells for the sum.
export function Table({ caption, columns, rows, rowKey = (row, index) => index, foot, titled = false, stale = false, dense = false, order, onSort }) {
  const names = (column) => classes(column.right && "right", column.below && "below", column.hide && `hide-${column.hide}`);
  const wrap = useRef(null);
  useLayoutEffect(() => scrollable(wrap.current, caption), [caption]);
  return html`<div class=${classes("table-wrap", stale && "stale")} ref=${wrap}>
    <table class=${classes("table", dense && "dense", columns.some((column) => column.below) && "folds")} onKeyDown=${arrows}>
      <caption class=${titled ? "" : "hidden-text"}>${caption}</caption>
      <thead><tr>${columns.map((column) => html`<th scope="col" class=${names(column)} aria-sort=${sorted(column, order)}>${column.sort ? html`<${Sorter} ...${{ column, order, onSort }} />` : column.head || html`<span class="hidden-text">${column.say ?? "more"}</span>`}</th>`)}</tr></thead>
      <tbody>${rows.map((row, index) => html`<tr key=${rowKey(row, index)}>${columns.map((column) => html`<td class=${names(column)}>${column.cell(row, index)}</td>`)}</tr>`)}</tbody>
      ${foot && html`<tfoot><tr>${foot.map((cell, index) => html`<td class=${names(columns[index])}>${cell}</td>`)}</tr></tfoot>`}
    </table></div>`;
}
