// Verbatim text and JSON: selectable, copyable, coloured.
import { html, useMemo, useState } from "../core/dom.js";

function Copy({ text }) {
  const [done, say] = useState(false);
  const copy = async () => {
    try { await navigator.clipboard.writeText(text); say(true); setTimeout(say, 1500, false); } catch { /* not allowed here */ }
  };
  return html`<button type="button" class="button small copy" onClick=${copy}>${done ? "Copied" : "Copy"}</button>`;
}

// `label` names the region for screen readers; `wrap` breaks long lines.
export function Code({ text, label = "Text", wrap = false, copy = true, children }) {
  return html`<div class="code">${copy && html`<${Copy} text=${text} />`}
    <pre tabindex="0" role="region" aria-label=${label} class=${wrap ? "wrap" : ""}>${children ?? text}</pre></div>`;
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|\b(true|false|null)\b/g;
const LARGEST = 200_000; // characters; beyond it colour costs more than it gives

export function Json({ value, label = "JSON", wrap = true }) {
  const text = useMemo(() => (typeof value === "string" ? value : JSON.stringify(value, null, 2)), [value]);
  const parts = useMemo(() => (text.length > LARGEST ? text : coloured(text)), [text]);
  return html`<${Code} text=${text} label=${label} wrap=${wrap}>${parts}<//>`;
}

function coloured(text) {
  const parts = [];
  let from = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [, string, colon, number, word] = found;
    if (found.index > from) parts.push(text.slice(from, found.index));
    const kind = string ? (colon ? "key" : "string") : number ? "number" : "word";
    parts.push(html`<span class="j-${kind}">${string ?? number ?? word}</span>`, colon ?? "");
    from = found.index + found[0].length;
  }
  parts.push(text.slice(from));
  return parts;
}
