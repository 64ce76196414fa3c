// The way to a port of a run, or into it, as its provider opens it.
import { get, withParams } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { called } from "../../core/words.js";
import { Problem, Sheet } from "../../ui/all.js";
import { Text } from "../submit/fields.js";
import { pathOf } from "./orders.js";

export function ReachButton({ run }) {
  const [open, setOpen] = useState(false);
  return html`<button type="button" class="button" onClick=${() => setOpen(true)}>Reach a port…</button>${open && html`<${Way} run=${run} onClose=${() => setOpen(false)} />`}`;
}

function Way({ run, onClose }) {
  const [port, setPort] = useState("");
  const [way, setWay] = useState(null);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    try { setWay(await get(withParams(`${pathOf(run)}/entrance`, { port: port.trim() }))); setError(null); } catch (problem) { setWay(null); setError(problem); }
  };
  return html`<${Sheet} title=${`Reach ${called(run)}`} onClose=${onClose}><form class="again" onSubmit=${submit} noValidate>
    <${Text} label="Port" optional mono value=${port} hint="That the run listens on; empty: only a shell in the run." error=${error?.field === "port" ? error.detail : null} onInput=${setPort} />
    ${error && error.field !== "port" && html`<${Problem} error=${error} />`}
    ${way && html`<dl class="facts" role="status">${way.address && html`<dt>address</dt><dd><code>${way.address}</code></dd>`}
      ${way.commands.map((line) => html`<dt key=${line}>once this runs</dt><dd><code class="say">${line}</code></dd>`)}
      ${way.inside && html`<dt>a shell in it</dt><dd><code class="say">${way.inside}</code></dd>`}
      ${!way.address && !way.inside && html`<dt>here</dt><dd>It runs on the machine of this service: name a port.</dd>`}</dl>`}
    <div class="actions"><button type="button" class="button" onClick=${onClose}>Close</button><button type="submit" class="button primary">Show the way</button></div></form><//>`;
}
