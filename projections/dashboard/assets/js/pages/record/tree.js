// A JSON answer as a tree: one tab stop, arrow keys, search, and copying of a value or of the path `jq` finds it by.

import { html, useEffect, useMemo, useRef, useState } from "../../core/dom.js";
import { CopyButton } from "./copy.js";
import { everyPath, found, openedTo, rowsOf } from "./rows.js";

const MOST = 1500;

export function JsonTree({ value, label }) {
  const [open, setOpen] = useState(() => openedTo(value, 4));
  const [at, setAt] = useState(".");
  const [words, setWords] = useState("");
  const [hit, setHit] = useState(0);
  const [shown, setShown] = useState(MOST);
  const tree = useRef(null);
  const moved = useRef(false);
  useEffect(() => setOpen(openedTo(value, 4)), [value]);
  const hits = useMemo(() => found(value, words), [value, words]);
  const rows = useMemo(() => rowsOf(value, open), [value, open]);
  const marked = useMemo(() => new Set(hits.paths), [hits]);
  const here = Math.max(0, rows.findIndex((row) => row.path === at));

  useEffect(() => {
    if (!moved.current) return;
    moved.current = false;
    const row = tree.current?.querySelector('[tabindex="0"]');
    row?.scrollIntoView({ block: "nearest" });
    if (document.activeElement?.closest?.("[role=tree]") === tree.current) row?.focus({ preventScroll: true });
  }, [at, open]);

  const go = (path) => {
    moved.current = true;
    setAt(path);
    const index = rows.findIndex((row) => row.path === path);
    if (index >= shown) setShown(index + MOST);
  };
  const toggle = (path) => {
    const next = new Set(open);
    if (!next.delete(path)) next.add(path);
    setOpen(next);
  };
  const seek = (number) => {
    if (!hits.paths.length) return;
    const index = (number + hits.paths.length) % hits.paths.length;
    setHit(index);
    setOpen(new Set([...open, ...hits.open]));
    moved.current = true;
    setAt(hits.paths[index]);
    setShown(Math.max(shown, rowsOf(value, new Set([...open, ...hits.open])).findIndex((row) => row.path === hits.paths[index]) + 200));
  };
  const onKey = (event) => {
    const row = rows[here];
    const keys = {
      ArrowDown: () => go(rows[Math.min(rows.length - 1, here + 1)].path),
      ArrowUp: () => go(rows[Math.max(0, here - 1)].path),
      Home: () => go(rows[0].path),
      End: () => go(rows.at(-1).path),
      ArrowRight: () => row.branch && (open.has(row.path) ? row.size && go(rows[here + 1].path) : toggle(row.path)),
      ArrowLeft: () => (row.branch && open.has(row.path) ? toggle(row.path) : go(above(rows, here))),
      Enter: () => row.branch && toggle(row.path),
      " ": () => row.branch && toggle(row.path),
    };
    if (!keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  };

  return html`<div class="json">
    <div class="json-bar">
      <label class="json-find"><span class="hidden-text">Find in the answer</span>
        <input class="input" type="search" placeholder="Find in the answer" value=${words}
          onInput=${(event) => { setWords(event.target.value); setHit(-1); }}
          onKeyDown=${(event) => event.key === "Enter" && (event.preventDefault(), seek(event.shiftKey ? hit - 1 : hit + 1))} />
      </label>
      <button type="button" class="button small" disabled=${!hits.paths.length} onClick=${() => seek(hit + 1)}>Next</button>
      <span class="json-hits" role="status">${words.trim() ? `${hits.paths.length}${hits.paths.length === 500 ? "+" : ""} found` : ""}</span>
      <span class="spring"></span>
      <button type="button" class="button small" onClick=${() => setOpen(everyPath(value))}>Open all</button>
      <button type="button" class="button small" onClick=${() => setOpen(new Set(["."]))}>Close all</button>
      <${CopyButton} text=${() => JSON.stringify(value, null, 2)} label="Copy all" />
    </div>
    <ul class="json-tree" role="tree" aria-label=${label} ref=${tree} onKeyDown=${onKey}>
      ${rows.slice(0, shown).map((row, index) => html`<${Row} key=${row.path} row=${row} open=${open.has(row.path)}
        current=${index === here} marked=${marked.has(row.path)} onToggle=${() => toggle(row.path)} onPick=${() => setAt(row.path)} />`)}
    </ul>
    ${rows.length > shown && html`<button type="button" class="button small" onClick=${() => setShown(shown + MOST)}>
      ${(rows.length - shown).toLocaleString("en")} more rows</button>`}
    <div class="json-foot"><code>${rows[here].path}</code><span class="spring"></span>
      <${CopyButton} text=${() => rows[here].path} label="Copy path" />
      <${CopyButton} text=${() => plain(rows[here].value)} label="Copy value" /></div>
  </div>`;
}

function Row({ row, open, current, marked, onToggle, onPick }) {
  return html`<li role="treeitem" class=${`json-row${marked ? " hit" : ""}`} aria-level=${row.depth + 1}
    aria-posinset=${row.at} aria-setsize=${row.of} aria-expanded=${row.branch ? String(open) : undefined}
    aria-selected=${String(current)} tabindex=${current ? 0 : -1} style=${{ paddingInlineStart: `${row.depth * 1.1 + 0.3}rem` }}
    onFocus=${onPick} onClick=${() => { onPick(); if (row.branch) onToggle(); }}>
    <span class="json-arrow" aria-hidden="true">${row.branch && row.size ? (open ? "▾" : "▸") : ""}</span>
    ${row.key !== null && html`<span class=${typeof row.key === "number" ? "json-index" : "json-key"}>${row.key}</span>: `}
    ${row.branch ? html`<span class="json-size">${sized(row, open)}</span>` : html`<${Plain} value=${row.value} />`}
  </li>`;
}

const Plain = ({ value }) => html`<span class=${`json-${value === null ? "null" : typeof value}`}>${JSON.stringify(value)}</span>`;

const sized = (row, open) => {
  const [start, end] = row.array ? "[]" : "{}";
  if (!row.size) return start + end;
  const noun = row.array ? (row.size === 1 ? "item" : "items") : row.size === 1 ? "key" : "keys";
  return open ? start : `${start} ${row.size.toLocaleString("en")} ${noun} ${end}`;
};

const plain = (value) => (typeof value === "string" ? value : JSON.stringify(value, null, 2));

const above = (rows, here) => {
  for (let index = here; index >= 0; index -= 1) if (rows[index].depth < rows[here].depth) return rows[index].path;
  return rows[here].path;
};
