// Key figures, and whether the source still answers.
import { html } from "../../core/dom.js";
import { moment, money } from "../../core/words.js";
import { Elapsed, Panel, RunLink, StartMark, Table, Time, VmLink, withCode } from "../../ui/all.js";
import { CopyButton } from "../record/copy.js";
import { costs, ended, seconds, waits } from "./words.js";

const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

export const Facts = ({ run }) => html`<dl class="run-facts">
  <${Fact} name="submitted"><${Time} at=${run.submitted_at} /><//>
  ${run.provider_submitted_at && html`<${Fact} name="at ${run.provider}"><${Time} at=${run.provider_submitted_at} /><//>`}
  <${Fact} name="started"><${Time} at=${run.started_at} /><//>
  <${Fact} name="finished"><${Time} at=${run.finished_at} /><//>
  <${Fact} name="ran">${run.execution_seconds === null && run.started_at && !ended(run) ? html`<${Elapsed} from=${run.started_at} />` : seconds(run.execution_seconds)}<//>
  <${Fact} name="attempts">${run.attempts}<//>
  <${Fact} name="machine"><${VmLink} id=${run.vm_id} />${run.start && html` <${StartMark} start=${run.start} />`}<//>
  ${run.strategy && html`<${Fact} name="strategy">${run.strategy}<//>`}
  ${run.group && html`<${Fact} name="part of">${run.array ? html`<${RunLink} id=${run.array} name=${run.group} />` : run.group}<//>`}
  ${run.tasks && html`<${Fact} name="tasks">${run.tasks}<//>`}
  ${run.next_at && html`<${Fact} name="next at"><${Time} at=${run.next_at} /><//>`}
  ${run.schedule && html`<${Fact} name="firing of"><${RunLink} id=${run.schedule} /><//>`}
  ${run.same_provider_id?.map((id) => html`<${Fact} key=${id} name="same id"><${RunLink} id=${id} /><//>`)}
  <${Fact} name="cost">${costs(run) ? money(run.cost_usd) : "–"}<//>
  ${run.provider !== "local" && html`<${Fact} name="${run.provider} says">${money(run.provider_cost_usd)}<//>`}
  ${run.ran && html`<${Ran} ran=${run.ran} />`}
  <div class="wide"><dt>run id</dt><dd><code>${run.run_id}</code> <${CopyButton} text=${() => run.run_id} /></dd></div>
</dl>`;

// What it executes, on what, and for whom; what is unknown is left out.
function Ran({ ran }) {
  const gpu = ran.gpu_got && ran.gpu_asked && ran.gpu_got !== ran.gpu_asked ? `${ran.gpu_got}, asked for ${ran.gpu_asked}` : ran.gpu_got ?? ran.gpu_asked;
  const user = ran.submitter && ran.user && ran.submitter !== ran.user ? `${ran.submitter}, as ${ran.user}` : ran.submitter ?? ran.user;
  const facts = [["GPU", gpu], ["submitted by", user], ["project", ran.source.endsWith(`/${ran.project}`) ? null : ran.project], ["source", ran.source], ["type", ran.type === "task" ? null : ran.type]];
  return html`${facts.map(([name, value]) => value && html`<${Fact} key=${name} name=${name}>${value}<//>`)}
    ${ran.image && html`<div class="wide"><dt>image</dt><dd><code>${ran.image}</code></dd></div>`}
    ${ran.command && html`<div class="wide"><dt>command</dt><dd><pre class="command" tabindex="0" role="region" aria-label="Command">${ran.command}</pre> <${CopyButton} text=${() => ran.command} /></dd></div>`}`;
}

const ATTEMPTS = [
  { head: "Attempt", cell: (one) => one.number },
  { head: "Provider says", cell: (one) => html`<code>${one.status ?? "–"}</code>${one.exit_status !== null && html` <span class="dim">exit ${one.exit_status}</span>`}` },
  { head: "On", cell: (one) => one.hosts ?? "–" },
  { head: "Submitted", hide: "phone", cell: (one) => html`<${Time} at=${one.submitted_at} />` },
  { head: "Waited", right: true, cell: (one) => seconds(one.waited_seconds) },
  { head: "Started", hide: "phone", cell: (one) => html`<${Time} at=${one.started_at} />` },
  { head: "Finished", hide: "phone", cell: (one) => html`<${Time} at=${one.finished_at} />` },
];

// Each attempt that the provider dates: where it ran, and how long it waited.
export const Attempts = ({ run }) => (run.attempt_list ? html`<${Panel} title="Attempts"><${Table} caption="Attempts, oldest first" columns=${ATTEMPTS} rows=${run.attempt_list} rowKey=${(one) => one.number} /><//>` : null);

const UNSEEN = {
  stale: "the last answer is more than 30 seconds old; the state above is the last one seen.",
  no_answer: "no poll has been answered for more than a minute; the state above is the last one seen.",
  not_polled: "no process of Steno has polled it for more than a minute; the state above is the last one seen.",
};

export function Watched({ run, found }) {
  if (!found || ended(run)) return null;
  const { queued, observability } = found;
  const unseen = UNSEEN[observability === "blind" ? found.blind.at(-1)?.kind ?? "no_answer" : observability];
  return html`${run.waits && html`<p class=${`warning s-${run.waits.never ? "failed" : "queued"}`}><strong>${run.provider}</strong>: ${waits(run)}.</p>`}${queued && html`<p class="warning s-queued"><strong>#${queued.position} in Steno's queue</strong>: ${withCode(queued.detail || queued.why)}${queued.estimated_start
      ? `; estimated start ${moment(queued.estimated_start)}` : ""}.</p>`}
    ${unseen && html`<p class=${`warning s-${observability}`}><strong>${observability}</strong>: ${unseen}</p>`}`;
}
