// The levers in force, each with its release.
import { html, useState } from "../core/dom.js";
import { named, release } from "../core/levers.js";
import { useAt } from "../core/moment.js";
import { useMay } from "../core/session.js";
import { count, price } from "../core/words.js";
import { confirm, toast } from "./dialog.js";
import { Time } from "./values.js";

// What it touches now: `3 runs, 2 machines, $3.98 an hour`; a number or a list of names.
const size = (value) => (Array.isArray(value) ? value.length : value ?? 0);
const touches = (lever) => [count(size(lever.runs), "run"), count(size(lever.machines), "machine"), ...(lever.cost_usd_per_hour ? [`${price(lever.cost_usd_per_hour)} an hour`] : [])].join(", ");

export const LeverRows = ({ levers, reload }) => html`<ul class="rows levers">${levers.map((lever) => html`<${Row} key=${lever.lever_id} lever=${lever} reload=${reload} />`)}</ul>`;

// Releases a lever, after a confirmation.
export async function free(lever) {
  if (!(await confirm({ title: `Release ${named(lever)}?`, text: "What waited for it goes on.", yes: "Release it", no: "Cancel" }))) return;
  try { await release(lever); toast(`${named(lever)}: released.`); } catch (problem) { toast(problem.detail); }
}

function Row({ lever, reload }) {
  const [busy, setBusy] = useState(false);
  const offers = useMay("admin") && useAt() === null;
  const act = async () => { setBusy(true); await free(lever); setBusy(false); reload(); };
  return html`<li><div class="top"><strong>${named(lever)}</strong>${offers && html`<button type="button" class="button small" disabled=${busy} onClick=${act}>Release<span class="hidden-text"> ${named(lever)}</span></button>`}</div>
    <div class="under">${lever.why}, by ${lever.by}, <${Time} at=${lever.at} relative />${lever.until && html`, until <${Time} at=${lever.until} />`} · ${touches(lever)}</div></li>`;
}
