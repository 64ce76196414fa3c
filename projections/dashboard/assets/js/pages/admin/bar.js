// Pages of a list by the API's cursor.
import { html } from "../../core/dom.js";
import { setQuery } from "../../core/router.js";

export const CursorBar = ({ cursor, next, noun }) => (cursor || next) && html`<nav class="bar foot" aria-label="Pages of ${noun}">
  <button type="button" class="button small" disabled=${!cursor} onClick=${() => setQuery({ cursor: null })}>Newest</button>
  <button type="button" class="button small" disabled=${!cursor} onClick=${() => history.back()}>← Newer</button>
  <button type="button" class="button small" disabled=${!next} onClick=${() => setQuery({ cursor: next }, { replace: false })}>Older →</button></nav>`;
