// An overlay while the server reads a long record for the first time; disappears by itself.
import { building } from "../core/building.js";
import { html } from "../core/dom.js";
import { useStore } from "../core/store.js";
import { number } from "../core/words.js";

const AFTER = "The page appears when this is done; recording continues meanwhile.";

export function Building() {
  const now = useStore(building);
  if (now === null) return null;
  const known = now.done !== null;
  const far = known ? `: ${Math.floor((100 * now.done) / Math.max(1, now.total))} %` : "";
  return html`<section class="building" aria-label="Building the read models">
    <strong>Building the read models${far}</strong>
    <progress class="far" aria-label="Progress" max=${now.total} value=${known ? now.done : undefined}></progress>
    <span class="dim">${known ? `${number(now.done)} of ${number(now.total)} events read.` : `Another process is reading the ${number(now.total)} events of the record.`} ${AFTER}</span></section>`;
}
