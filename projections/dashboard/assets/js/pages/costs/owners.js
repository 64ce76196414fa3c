// The owners that have limits, what they have left, and moving budget between them.
import { post } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { useAt } from "../../core/moment.js";
import { useMay } from "../../core/session.js";
import { money, number } from "../../core/words.js";
import { Panel, Problem, Sheet, Table, toast } from "../../ui/all.js";
import { Choice, Text } from "../submit/fields.js";

// `3 of 5`; where there is no limit, what there is.
const of = (value, limit) => (limit === null ? number(value) : `${number(value)} of ${number(limit)}`);
const dollars = (value, limit) => (limit === null ? money(value) : `${money(value)} of ${money(limit)}`);
const COLUMNS = [
  { head: "Owner", cell: (row) => html`<strong>${row.owner}</strong>${row.notes.map((note) => html`<div class="bad" key=${note}>${note}</div>`)}` },
  { head: "Spent", right: true, cell: (row) => dollars(row.spent_usd, row.budget_usd) },
  { head: "Committed", right: true, hide: "phone", cell: (row) => money(row.committed_usd) },
  { head: "Left", right: true, cell: (row) => money(row.left_usd) },
  { head: "Today", right: true, hide: "narrow", cell: (row) => dollars(row.today_usd, row.daily_usd) },
  { head: "GPU-hours", right: true, hide: "narrow", cell: (row) => of(row.gpu_hours, row.gpu_hours_limit) },
  { head: "Machines", right: true, hide: "narrow", cell: (row) => of(row.machines, row.machines_limit) },
  { head: "Runs", right: true, hide: "phone", cell: (row) => of(row.runs, row.runs_limit) },
];

export function Owners({ read }) {
  const acts = useMay("admin") && useAt() === null;
  const [open, setOpen] = useState(false);
  const owners = read.data?.limits ?? [];
  if (!owners.length) return null;
  const rich = owners.filter((one) => one.budget_usd !== null).map((one) => one.owner);
  const more = acts && rich.length > 1 && html`<button type="button" class="button small" onClick=${() => setOpen(true)}>Move budget…</button>`;
  return html`<${Panel} title="Owners with limits" flush more=${more}><${Table} caption="Owners with limits" columns=${COLUMNS} rows=${owners} rowKey=${(row) => row.owner} />
    ${open && html`<${Move} owners=${rich} onClose=${() => setOpen(false)} onDone=${read.reload} />`}<//>`;
}

function Move({ owners, onClose, onDone }) {
  const [values, setValues] = useState({ giver: owners[0], receiver: owners[1], amount_usd: "", why: "" });
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const field = (name) => ({ value: values[name], error: error?.field === name ? error.detail : null, onInput: (value) => { setValues({ ...values, [name]: value }); setError(null); } });
  const options = owners.map((name) => [name, name]);
  const submit = async (event) => {
    event.preventDefault();
    if (!values.why.trim()) { setError({ field: "why", detail: "Write why: the record keeps it." }); return; }
    setBusy(true);
    try {
      await post("/api/budget/moves", values);
      toast(`Moved $${values.amount_usd} from ${values.giver} to ${values.receiver}.`);
      onDone();
      onClose();
    } catch (problem) { setError(problem); setBusy(false); }
  };
  return html`<${Sheet} title="Move budget" onClose=${onClose}><form class="again" onSubmit=${submit} noValidate>
    <p>It is in force at once. What the giver has spent and committed stays, and nothing that runs is stopped.</p>
    <${Choice} label="From" options=${options} ...${field("giver")} /><${Choice} label="To" options=${options} ...${field("receiver")} />
    <${Text} label="Dollars" ...${field("amount_usd")} /><${Text} label="Why" ...${field("why")} />
    ${error && !(error.field in values) && html`<${Problem} error=${error} />`}
    <div class="actions"><button type="button" class="button" onClick=${onClose}>Cancel</button><button type="submit" class="button primary" disabled=${busy}>Move it</button></div></form><//>`;
}
