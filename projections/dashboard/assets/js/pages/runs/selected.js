// What is done to the runs that are checked.
import { html, useState } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { count } from "../../core/words.js";
import { repeatAll, spentOn, stopAll } from "../run/orders.js";
import { ended } from "../run/words.js";

export function Selected({ runs, clear, may, reload }) {
  const [busy, setBusy] = useState(false);
  const going = runs.filter((run) => !ended(run));
  const act = (order) => async () => {
    setBusy(true);
    if (await order()) { clear(); reload(); }
    setBusy(false);
  };
  const spent = spentOn(runs);
  return html`<div class="bar selected" role="region" aria-label="Checked runs"><strong>${count(runs.length, "run")} checked</strong>${spent !== null && html`<span class="dim">${spent} so far</span>`}
    ${may && html`<button type="button" class="button small danger" disabled=${busy || !going.length} onClick=${act(() => stopAll(going))}>Stop${going.length > 0 && ` ${going.length}`}</button>
      <button type="button" class="button small" disabled=${busy} onClick=${act(() => repeatAll(runs))}>Run again</button>`}
    ${runs.length === 2 ? html`<${Link} class="button small" to="/compare?a=${encodeURIComponent(runs[1].run_id)}&b=${encodeURIComponent(runs[0].run_id)}">Compare<//>` : html`<button type="button" class="button small" disabled title="Check two runs to compare them">Compare</button>`}
    <button type="button" class="button small" onClick=${clear}>Uncheck</button></div>`;
}
