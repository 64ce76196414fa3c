// The source editor: line numbers, a size, and a Tab key that indents without a keyboard trap.
import { html, useId, useMemo, useRef } from "../../core/dom.js";
import { count } from "../../core/words.js";
import { described, sentence } from "./fields.js";

const size = (bytes) => (bytes < 1000 ? `${bytes} bytes` : `${(bytes / 1000).toFixed(1)} kB`);

// Tab indents; after Esc, Tab moves on, as everywhere else. Shift+Tab takes an indent back.
export function Source({ value, onInput, label, hint, error, disabled }) {
  const id = useId();
  const area = useRef(null);
  const gutter = useRef(null);
  const leaving = useRef(false);
  const lines = useMemo(() => value.split("\n").length, [value]);
  const bytes = useMemo(() => new TextEncoder().encode(value).length, [value]);

  const onKey = (event) => {
    if (event.key === "Escape") { leaving.current = true; return; }
    if (event.key !== "Tab" || leaving.current || event.ctrlKey || event.altKey || event.metaKey) {
      if (event.key !== "Shift") leaving.current = false;
      return;
    }
    event.preventDefault();
    const { selectionStart: start, selectionEnd: end } = area.current;
    if (event.shiftKey || value.slice(start, end).includes("\n")) shift(area.current, event.shiftKey);
    else put(area.current, "    ", start, end);
    onInput(area.current.value);
  };
  return html`<div class="field source"><label for=${id}>${label}</label>
    <div class=${error ? "source-box wrong-box" : "source-box"}><pre class="source-lines" aria-hidden="true" ref=${gutter}>${numbers(lines)}</pre>
      <textarea id=${id} ref=${area} rows="20" spellcheck="false" autocapitalize="off" autocomplete="off" wrap="off" value=${value} aria-describedby=${`${described(id, true, error)} ${id}-size`}
        aria-invalid=${error ? "true" : null} onInput=${(event) => onInput(event.target.value)} onKeyDown=${onKey} onScroll=${() => { gutter.current.scrollTop = area.current.scrollTop; }}></textarea></div>
    ${error && html`<span class="wrong" id="${id}-wrong" role="alert">${sentence(error)}</span>`}
    <div class="bar hint"><span id="${id}-size">${count(lines, "line")}, ${size(bytes)}</span><span class="spring"></span><span>Tab indents; press Esc, then Tab, to leave. Saved in this browser.</span></div>
    <span class="hint" id="${id}-hint">${hint}</span></div>`;
}

const numbers = (lines) => Array.from({ length: lines }, (_, index) => index + 1).join("\n");

// Indent every selected line, or take an indent back.
function shift(area, back) {
  const { value, selectionStart, selectionEnd } = area;
  const from = value.lastIndexOf("\n", selectionStart - 1) + 1;
  const lines = value.slice(from, selectionEnd).split("\n");
  const moved = lines.map((line) => (back ? line.replace(/^( {1,4}|\t)/, "") : line ? `    ${line}` : line)).join("\n");
  put(area, moved, from, selectionEnd);
  area.setSelectionRange(from, from + moved.length);
}

// Insert through the browser, so that undo works.
function put(area, text, from, to) {
  area.setSelectionRange(from, to);
  if (!document.execCommand("insertText", false, text)) area.setRangeText(text, from, to, "end");
}
