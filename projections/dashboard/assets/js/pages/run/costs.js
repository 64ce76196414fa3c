// A run's cost: its charges, the provider's figure and ours, and one line per difference.
import { about, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { money, price, signed } from "../../core/words.js";
import { Await, Table, VmLink } from "../../ui/all.js";
import { hour, lasted } from "./words.js";

// Why the two figures differ. Positive lines are in our figure only, negative lines in the provider's only.
const BECAUSE = {
  queueing: "submitted, but no machine was working on it yet",
  "machine silent": "charged although the machine no longer answered",
  "between polls": "charged although neither polls nor its own times show the machine busy",
  "cleaning up": "the machine was still busy after the run",
  "no machine seen": "a submission is charged whose machine was never seen",
  blocks: "the run used part of the machine",
  "rate override": "a configured rate replaces the recorded price",
  "price change": "the provider charges the whole submission at one price",
  "request limits": "the provider leaves some submissions out",
  "still running": "the two figures are from different moments",
  rounding: "the provider rounds to four decimals, we use micro-dollars",
  "machine time of nobody": "the machine was provisioning or busy without a run to charge",
  "no provider figure": "the provider never reported a cost",
  idle: "the machine was up without a run",
  "tear-down": "the machine was stopping",
  unconfirmed: "the machine should be gone but was not seen gone",
  "billing granularity": "the backend rounds the machine's lifetime up",
  unexplained: "the provider's total is not the sum of its submissions",
};

const CHARGES = [
  { head: "For", cell: (one) => one.line },
  { head: "From", hide: "phone", cell: (one) => html`<time class="nowrap" datetime=${one.from}>${hour(one.from)}</time>` },
  { head: "Lasted", right: true, cell: (one) => lasted(one.from, one.to) },
  { head: "Per hour", right: true, hide: "phone", cell: (one) => price(one.price_usd_per_hour) },
  { head: "Cost", right: true, cell: (one) => money(one.cost_usd) },
  { head: "Machine", hide: "phone", cell: (one) => html`<${VmLink} id=${one.vm_id} />` },
];

export function Costs({ run }) {
  const read = useData(`/api/runs/${encodeURIComponent(run.run_id)}/costs`, { on: about.run(run.run_id) });
  return html`<${Await} read=${read} height="4">${(data) => html`<div class="columns">
    <section class="panel flush" aria-labelledby="charges"><header><h2 id="charges">Charges</h2></header>
      ${data.charges.length ? html`<${Table} caption="Charges" columns=${CHARGES} rows=${data.charges} foot=${["total", "", "", "", money(data.cost_usd), ""]} />`
        : html`<p class="note dim">${data.cost_usd === null ? "Cost unknown: no poll has shown its machine." : "No charges."}</p>`}
      <p class="note dim">A run is charged its own time, and the provisioning of a machine created for it. Idle time is not charged to runs.</p></section>
    <section class="panel theirs" aria-labelledby="sides"><header><h2 id="sides">Compared with ${run.provider}'s figure</h2></header>
      ${data.reconciliation && data.provider_cost_usd !== null ? html`<${Sides} sides=${data.reconciliation} provider=${run.provider} />` : html`<p class="dim">${run.provider} reports no cost.</p>`}</section>
  </div>`}<//>`;
}

// The lines from the provider's figure to ours, of one run or of all.
export const Sides = ({ sides, provider }) => html`<table class="sums"><caption class="hidden-text">From ${provider}'s figure to ours, line by line</caption><tbody>
    <tr class="sum"><th scope="row">${provider} says</th><td class="right">${money(sides.theirs_usd)}</td></tr>
    ${sides.lines.map((line) => html`<tr key=${line.cause}><th scope="row">${line.cause}<span class="hint">${BECAUSE[line.cause] ?? ""}</span></th><td class="right">${signed(line.amount_usd)}</td></tr>`)}
    <tr class="sum"><th scope="row">we say</th><td class="right">${money(sides.ours_usd)}</td></tr></tbody></table>
  ${Number(sides.divergence_usd ?? 0) !== 0 && html`<p class="warning s-failed">${money(sides.divergence_usd)} of it does not follow from ${provider}'s own answers.</p>`}`;
