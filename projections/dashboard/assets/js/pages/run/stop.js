// Stops a run, after a confirmation: a stop lets the task end itself, an abort does not.
import { post } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { confirm, toast } from "../../ui/all.js";

const TEXT = {
  stop: "The provider stops the run; the task may clean up first.",
  abort: "The provider stops the run at once; the task cannot clean up.",
};

export function StopButtons({ run, onAsked }) {
  const [busy, setBusy] = useState(false);
  const ask = async (kind) => {
    const name = run.name ?? run.run_id.slice(0, 8);
    const verb = kind === "abort" ? "Abort" : "Stop";
    if (!(await confirm({ title: `${verb} ${name}?`, text: `${TEXT[kind]} Its costs so far remain.`, yes: `${verb} it`, danger: true }))) return;
    setBusy(true);
    try {
      const answer = await post(`/api/runs/${encodeURIComponent(run.run_id)}/stop`, kind === "abort" ? { abort: true } : {});
      toast(answer.asked === false ? `${name} is already ${answer.state}.` : `${verb} of ${name} requested at position ${answer.position}.`);
      onAsked?.(answer);
    } catch (problem) {
      toast(problem.detail ?? problem.message);
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class="button danger" disabled=${busy} onClick=${() => ask("stop")}>Stop</button>
    <button type="button" class="button" disabled=${busy} onClick=${() => ask("abort")}>Abort</button>`;
}
