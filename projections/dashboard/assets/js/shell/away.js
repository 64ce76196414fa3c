// Several records: which one is shown, and which cannot be read and are left out.
import { useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { choose, chosen, records } from "../core/records.js";

// The record that every page shows, or all.
export function RecordChoice() {
  if (!records.length) return null;
  const one = chosen() ?? "";
  return html`<span class="record-choice"><select class="input small" aria-label="Record shown" value=${one} onChange=${(event) => choose(event.target.value)}>
    <option value="" selected=${one === ""}>all records</option>${records.map((name) => html`<option key=${name} value=${name} selected=${name === one}>${name}</option>`)}</select></span>`;
}

// What is missing from every list and sum of all records.
export function Away() {
  const { data } = useData(records.length && chosen() === null ? "/api/overview" : null, { every: 2000 });
  const gone = (data?.records ?? []).filter((one) => one.trouble !== null);
  if (!gone.length) return null;
  return html`<section class="problem away" role="alert"><strong>${gone.length === 1 ? `The record ${gone[0].record} cannot be read` : `${gone.length} records cannot be read`}</strong>
    ${gone.map((one) => html`<span key=${one.record}>${one.record}: ${one.trouble}</span>`)}<span class="dim">Lists and sums are of the other records only.</span></section>`;
}
