// Stopping a run, asked twice: a stop lets the task end itself, an abort does not.
import { post } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { confirm, toast } from "../../ui/all.js";

const TEXT = {
  stop: "The provider is asked to end it; the task may clean up first.",
  abort: "The provider is asked to end it at once: the task gets no time to clean up.",
};

export function StopButtons({ run, onAsked }) {
  const [busy, setBusy] = useState(false);
  const ask = async (kind) => {
    const name = run.name ?? run.run_id.slice(0, 8);
    const verb = kind === "abort" ? "Abort" : "Stop";
    if (!(await confirm({ title: `${verb} ${name}?`, text: `${TEXT[kind]} What it has cost so far stays.`, yes: `${verb} it`, danger: true }))) return;
    setBusy(true);
    try {
      const answer = await post(`/api/runs/${encodeURIComponent(run.run_id)}/stop`, kind === "abort" ? { abort: true } : {});
      toast(answer.asked === false ? `${name} needs no asking: it is ${answer.state}.` : `${verb} of ${name} is asked for, at position ${answer.position}.`);
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
