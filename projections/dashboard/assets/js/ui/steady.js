// Lists that grow at the top: new rows wait behind a button, so that no row moves under the reader.
import { html, useRef, useState } from "../core/dom.js";
import { count } from "../core/words.js";

// `{rows, fresh, show}` of rows, newest first: the shown rows, the number of waiting rows, and a function that shows them.
// A new `reset` (the moment, the filter) starts again.
export function useSteady(rows, idOf, reset) {
  const kept = useRef(null);
  const [, redraw] = useState(0);
  if (kept.current === null || kept.current.reset !== reset || !kept.current.ids.size) kept.current = { reset, ids: new Set(rows.map(idOf)) };
  const { ids } = kept.current;
  const first = rows.findIndex((row) => ids.has(idOf(row)));
  const fresh = first < 0 ? rows.length : first;
  const shown = rows.slice(fresh);
  for (const row of shown) ids.add(idOf(row));
  const show = () => { kept.current = null; redraw((number) => number + 1); };
  return { rows: shown, fresh, show };
}

// The button; it keeps its space when there is nothing new.
export const Fresh = ({ steady, noun, plural }) => html`<button type="button" class="button fresh ${steady.fresh ? "" : "none"}" disabled=${!steady.fresh} onClick=${steady.show}>
  ${steady.fresh ? `Show ${count(steady.fresh, `new ${noun}`, plural && `new ${plural}`)}` : ""}</button>`;
