// A button that copies a text and confirms it.
import { html, useEffect, useState } from "../../core/dom.js";

// `text` is a function: a big text is made only on demand.
export function CopyButton({ text, label = "Copy" }) {
  const [said, setSaid] = useState(null);
  useEffect(() => {
    if (said === null) return undefined;
    const timer = setTimeout(setSaid, 1600, null);
    return () => clearTimeout(timer);
  }, [said]);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text());
      setSaid("Copied");
    } catch {
      setSaid(copiedByHand(text()) ? "Copied" : "Not allowed");
    }
  };
  return html`<button type="button" class="button small copies" onClick=${copy}><span class=${said ? "away" : ""}>${label}</span>
    <span class="copies-said" role="status">${said ?? ""}</span></button>`;
}

// Pages over plain HTTP from another host have no clipboard of their own.
function copiedByHand(text) {
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "hidden-text";
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy");
  area.remove();
  return done;
}
