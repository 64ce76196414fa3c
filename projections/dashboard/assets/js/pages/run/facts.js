// The figures people look for first, and whether anybody is looking at all.
import { html } from "../../core/dom.js";
import { moment, money } from "../../core/words.js";
import { Elapsed, StartMark, Time, VmLink } from "../../ui/all.js";
import { CopyButton } from "../record/copy.js";
import { costs, ended, seconds } from "./words.js";

const Fact = ({ name, children }) => html`<div><dt>${name}</dt><dd>${children}</dd></div>`;

export const Facts = ({ run }) => html`<dl class="run-facts">
  <${Fact} name="submitted"><${Time} at=${run.submitted_at} /><//>
  <${Fact} name="started"><${Time} at=${run.started_at} /><//>
  <${Fact} name="finished"><${Time} at=${run.finished_at} /><//>
  <${Fact} name="ran">${run.execution_seconds === null && run.started_at && !ended(run) ? html`<${Elapsed} from=${run.started_at} />` : seconds(run.execution_seconds)}<//>
  <${Fact} name="attempts">${run.attempts}<//>
  <${Fact} name="machine"><${VmLink} id=${run.vm_id} />${run.start && html` <${StartMark} start=${run.start} />`}<//>
  <${Fact} name="cost">${costs(run) ? money(run.cost_usd) : "–"}<//>
  ${run.provider !== "local" && html`<${Fact} name="${run.provider} says">${money(run.provider_cost_usd)}<//>`}
  <div class="wide"><dt>run id</dt><dd><code>${run.run_id}</code> <${CopyButton} text=${() => run.run_id} /></dd></div>
</dl>`;

const UNSEEN = {
  stale: "the last answer is more than 30 seconds old; the state above is the last one seen.",
  blind: "no poll has been answered for more than a minute; the state above is the last one seen.",
};

export function Watched({ run, found }) {
  if (!found || ended(run)) return null;
  const { queued, observability } = found;
  return html`${queued && html`<p class="warning s-queued"><strong>#${queued.position} in Steno's queue</strong>: ${queued.detail || queued.why}${queued.estimated_start
      ? `; estimated start ${moment(queued.estimated_start)}` : ""}.</p>`}
    ${UNSEEN[observability] && html`<p class=${`warning s-${observability}`}><strong>${observability}</strong>: ${UNSEEN[observability]}</p>`}`;
}
