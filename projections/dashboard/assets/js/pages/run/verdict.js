// The explanation of a verdict: the rule, the polls verbatim, what would have flipped it, anomalies and gaps.
import { html } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { GAPS } from "../../core/words.js";
import { PollLink, StateBadge, withCode } from "../../ui/all.js";
import { explained } from "../incidents/words.js";
import { Quote, brief } from "./quote.js";
import { hour, lasted } from "./words.js";

export const Verdict = ({ found }) => html`<section class="panel verdict" aria-labelledby="why">
  <header><h2 id="why">Why</h2></header>
  <p class="lead">${withCode(found.sentence)}</p>
  ${found.rule && html`<p class="dim">rule <code>${found.rule}</code></p>`}
  ${found.evidence.length > 0 && html`<h3>Evidence</h3>${found.evidence.map((quote) => html`<${Quote} key=${quote.position} quote=${quote} />`)}`}
  ${found.steps.length > 0 && html`<h3>Transitions</h3><ol class="steps">${found.steps.map((step) => html`<${Step} key=${`${step.position}${step.to}`} step=${step} />`)}</ol>`}
  <${Listed} title="Which source says what" items=${found.witnesses} />
  <${Listed} title="Its wait" items=${found.wait} />
  <${Listed} title="Why not warm" items=${found.not_warm} />
  <${Listed} title="What would have changed it" items=${found.flips} draw=${flip} />
  ${found.anomalies.length > 0 && html`<h3>Anomalies</h3><ul class="items">${found.anomalies.map((odd) => html`<li key=${`${odd.position}${odd.kind}`}>
    <strong>${explained(odd.kind).title}</strong>: ${withCode(odd.detail)} <${PollLink} position=${odd.position} /></li>`)}</ul>`}
  ${found.blind.length > 0 && html`<h3>Not seen</h3><ul class="items">${found.blind.map((gap) => html`<li key=${gap.from}>
    ${hour(gap.from)} to ${hour(gap.to)}, ${lasted(gap.from, gap.to)}: ${GAPS[gap.kind]} (${gap.source})</li>`)}</ul>`}
</section>`;

// The line of its output that explains the end.
export const OutputLine = ({ found }) => (found?.line ? html`<figure class="quote run-why">
  <figcaption><strong>${found.cause}</strong>${found.blame && ` (${found.blame})`} <span class="dim">bytes ${found.from} to ${found.to} of its output, rule <code>${found.rule}</code></span></figcaption>
  <p><code>${found.line.slice(0, 300)}</code></p><p>${found.remedy}</p></figure>` : null);

const Step = ({ step }) => html`<li><time datetime=${step.at} class="dim">${hour(step.at)}</time> <${StateBadge} state=${step.to} />
  <${PollLink} position=${step.position}>${step.said?.kind ?? "poll"} #${step.position}<//> <span class="dim">${withCode(brief(step.said))}</span></li>`;

const Listed = ({ title, items, draw = withCode }) => (items?.length
  ? html`<h3>${title}</h3><ul class="items">${items.map((text) => html`<li key=${text}>${draw(text)}</li>`)}</ul>` : null);

// `had the job exited 1: failed/exit_nonzero`
function flip(text) {
  const cut = text.indexOf(": ");
  if (cut < 0) return text;
  return html`${text[0].toUpperCase()}${text.slice(1, cut)} <span class="dim">→</span> <strong>${text.slice(cut + 2)}</strong>`;
}

// The provider's report, in a separate panel.
export function Reported({ run }) {
  const said = run.reported;
  return html`<section class="panel theirs" aria-labelledby="theirs">
    <header><h2 id="theirs">What ${run.provider} says</h2></header>
    <p class="dim">The provider's own words, verbatim. Steno's verdict is separate.</p>
    ${said === null || (said.status === null && !said.jobs.length) ? html`<p>Nothing yet: no poll has listed this run.</p>` : html`
      <dl class="facts"><dt>status</dt><dd><code>${said.status ?? "–"}</code></dd><dt>reason</dt><dd><code>${said.reason ?? "–"}</code></dd>
        ${run.provider_cost_usd !== null && html`<dt>cost</dt><dd><code>${run.provider_cost_usd}</code></dd>`}
        <dt>id</dt><dd><code>${run.provider_id ?? "–"}</code></dd></dl>
      ${said.jobs.map((job, index) => html`<h3 key=${index}>${said.jobs.length > 1 ? `Job ${index}` : "Job"}</h3>
        <dl class="facts"><dt>status</dt><dd><code>${job.status ?? "–"}</code></dd><dt>reason</dt><dd><code>${job.reason ?? "–"}</code></dd>
          <dt>exit</dt><dd><code>${job.exit_status ?? "–"}</code></dd></dl>`)}`}
    <p><${Link} to=${`/record?stream=${encodeURIComponent(`run/${run.run_id}`)}`}>All events of this run<//></p>
  </section>`;
}
