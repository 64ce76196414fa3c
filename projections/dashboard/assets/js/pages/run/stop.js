// What is done to a run that goes on, and to its user and machine; each after a confirmation.
import { html, useState } from "../../core/dom.js";
import { about, useData } from "../../core/data.js";
import { KEEPABLE, offer } from "../../core/levers.js";
import { stopAll } from "./orders.js";

export function StopButtons({ run, onAsked }) {
  const [busy, setBusy] = useState(false);
  const ask = (abort) => async () => {
    setBusy(true);
    if (await stopAll([run], { abort })) onAsked?.();
    setBusy(false);
  };
  return html`<button type="button" class="button danger" disabled=${busy} onClick=${ask(false)}>Stop</button>
    <button type="button" class="button" disabled=${busy} onClick=${ask(true)}>Abort</button>`;
}

// Its machine is kept for who debugs, and no more of its user's runs start.
export function LeverButtons({ run }) {
  const user = run.ran?.submitter ?? run.ran?.user;
  const vm = useData(run.vm_id ? `/api/vms/${run.vm_id}` : null, { on: about.vm(run.vm_id) }).data;
  const there = vm?.ours !== false && !vm?.archive && KEEPABLE.includes(vm?.state);
  return html`${there && html`<button type="button" class="button" onClick=${() => offer({ action: "keep", vm_id: run.vm_id, for: "2h" })}>Keep machine…</button>`}
    ${user && html`<button type="button" class="button" onClick=${() => offer({ action: "pause", user })}>Pause ${user}…</button>`}`;
}
