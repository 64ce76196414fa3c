// What a run cost: its charges, the provider's own figure beside ours, and every difference as a line.
import { about, useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { money, price, signed } from "../../core/words.js";
import { Await, Table, VmLink } from "../../ui/all.js";
import { hour, lasted } from "./words.js";

// Why the two figures differ. Positive lines are in ours only, negative ones in the provider's only.
const BECAUSE = {
  queueing: "submitted, and no machine busy with it yet",
  "machine silent": "it is charged, and the machine no longer answered",
  "between polls": "it is charged, and neither polls nor its own times show the machine busy",
  "cleaning up": "the machine still busy behind the run",
  "no machine seen": "a submission is charged whose machine we never saw",
  blocks: "the run had a part of the machine, or several parts",
  "rate override": "a rate that somebody vouches for stands instead of the recorded price",
  "price change": "all of a submission is charged at one price",
  "request limits": "its figure leaves submissions out",
  "still running": "the two figures are not of the same moment",
  rounding: "its four decimals, our micro-dollars",
  "machine time of nobody": "the machine being made or busy, and no run of its own to charge",
  "no provider figure": "it never gave a cost of it",
  idle: "the machine up, and no run on it",
  "tear-down": "the machine told to go, and not gone yet",
  unconfirmed: "the machine should be gone, and nobody saw it go",
  "billing granularity": "what the backend's rounding of a machine's life adds",
  unexplained: "its figure is not what its own submissions give",
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
      ${data.charges.length ? html`<${Table} caption="Charges" columns=${CHARGES} rows=${data.charges} foot=${["together", "", "", "", money(data.cost_usd), ""]} />`
        : html`<p class="note dim">${data.cost_usd === null ? "Its cost is not known: no poll has shown its machine." : "Nothing is charged to it."}</p>`}
      <p class="note dim">A run pays for its own time, and for the making of a machine that was made for it. Idle time is the machine's own.</p></section>
    <section class="panel theirs" aria-labelledby="sides"><header><h2 id="sides">Beside ${run.provider}'s own figure</h2></header>
      ${data.reconciliation && data.provider_cost_usd !== null ? html`<${Sides} sides=${data.reconciliation} provider=${run.provider} />` : html`<p class="dim">${run.provider} gives none.</p>`}</section>
  </div>`}<//>`;
}

// Everything from the provider's figure to ours, of one run or of all.
export const Sides = ({ sides, provider }) => html`<table class="sums"><caption class="hidden-text">From ${provider}'s figure to ours, line by line</caption><tbody>
    <tr class="sum"><th scope="row">${provider} says</th><td class="right">${money(sides.theirs_usd)}</td></tr>
    ${sides.lines.map((line) => html`<tr key=${line.cause}><th scope="row">${line.cause}<span class="hint">${BECAUSE[line.cause] ?? ""}</span></th><td class="right">${signed(line.amount_usd)}</td></tr>`)}
    <tr class="sum"><th scope="row">we say</th><td class="right">${money(sides.ours_usd)}</td></tr></tbody></table>
  ${Number(sides.divergence_usd ?? 0) !== 0 && html`<p class="warning s-failed">${money(sides.divergence_usd)} of it cannot be explained by ${provider}'s own answers.</p>`}`;
