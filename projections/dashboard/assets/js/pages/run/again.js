// Running a run again: what will run, with changes, in a window; and the links to copy and to compare it.
import { get, post } from "../../core/api.js";
import { html, useEffect, useRef, useState } from "../../core/dom.js";
import { Link, navigate, useQuery } from "../../core/router.js";
import { called } from "../../core/words.js";
import { Loading, Problem, Sheet } from "../../ui/all.js";
import { Text } from "../submit/fields.js";
import { fresh } from "../submit/drafts.js";
import { pathOf, spentOn } from "./orders.js";

export function AgainButtons({ run, may }) {
  const [open, setOpen] = useState(false);
  const [from] = useQuery("from");
  const id = encodeURIComponent(run.run_id);
  const repeats = from && from !== run.run_id;
  return html`${may && html`<button type="button" class="button" onClick=${() => setOpen(true)}>Run again</button>`}
    ${may && !run.kernel && html`<${Link} class="button" to=${`/submit?what=command&copy=${id}`}>Copy into the form<//>`}
    <${Link} class=${repeats ? "button primary" : "button"} to=${repeats ? `/compare?a=${encodeURIComponent(from)}&b=${id}` : `/compare?a=${id}`}>${repeats ? "Compare with the run before" : "Compare with…"}<//>
    ${open && html`<${Again} run=${run} onClose=${() => setOpen(false)} />`}`;
}

// [field of the request, label, hint, its value now]
const CHANGES = [
  ["memory", "Memory", "32GB; 16GB.. is at least 16GB", (task) => task.resources?.memory], ["gpu", "GPU", "MI300X:1; 24GB.. is any with at least 24GB", (task) => task.resources?.gpu],
  ["max_duration", "Longest duration", "30m, 2h; off is no limit", (task) => task.max_duration],
];
const shown = (value) => (value === undefined || value === null ? "as before" : typeof value === "object" ? JSON.stringify(value) : String(value));

function Again({ run, onClose }) {
  const path = pathOf(run);
  const [asked, setAsked] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => { get(`${path}/request`).then(setAsked, setError); }, [path]);
  return html`<${Sheet} title="Run ${called(run)} again" onClose=${onClose}>
    <${Problem} error=${error} />
    ${asked === null ? !error && html`<${Loading} height="3" />` : asked.refused ? html`<p>${asked.refused}.</p>
      <div class="actions"><button type="button" class="button" onClick=${onClose}>Close</button>${!run.kernel && html`<${Link} class="button primary" to=${`/submit?what=command&copy=${encodeURIComponent(run.run_id)}`}>Copy into the form<//>`}</div>`
      : html`<${Form} run=${run} asked=${asked} path=${path} onClose=${onClose} />`}<//>`;
}

function Form({ run, asked, path, onClose }) {
  const [values, setValues] = useState({});
  const [env, setEnv] = useState({});
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const form = useRef(null);
  useEffect(() => { form.current.querySelector("input")?.focus(); }, []);
  const key = useRef(null); // sent again after a lost answer it is the same run
  const task = asked.configuration;
  const field = error?.field?.replace(/^configuration\.(resources\.)?/, "") ?? null;
  const named = new Set([...CHANGES.map(([name]) => name), ...asked.needs.map((name) => `env.${name}`)]);
  const wrong = (name) => (field === name ? error.detail : null);
  const submit = async (event) => {
    event.preventDefault();
    const missing = asked.needs.find((name) => env[name] === undefined);
    if (missing) { setError({ field: `env.${missing}`, detail: "Its value is not recorded: write it here." }); return; }
    setBusy(true);
    setError(null);
    try {
      const changes = Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value.trim()]).filter(([, value]) => value));
      const body = { ...changes, ...(asked.needs.length ? { env } : {}) };
      const text = JSON.stringify(body);
      if (key.current?.text !== text) key.current = { text, value: fresh() };
      const made = await post(`${path}/rerun`, body, { "Idempotency-Key": key.current.value });
      onClose();
      navigate(`/runs/${encodeURIComponent(made.run_id)}?from=${encodeURIComponent(run.run_id)}`);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<form class="again" ref=${form} onSubmit=${submit} noValidate>
    ${run.ran?.command && html`<pre class="command" tabindex="0" role="region" aria-label="Command">${run.ran.command}</pre>`}
    <p class="dim">The same task at the same provider${task.image ? html`, in <code>${task.image}</code>` : ""}. Change what should differ:</p>
    ${CHANGES.map(([name, label, hint, now]) => html`<${Text} key=${name} label=${label} optional mono value=${values[name] ?? ""} placeholder=${shown(now(task))} error=${wrong(name)}
      hint=${`${hint}.`} onInput=${(value) => setValues({ ...values, [name]: value })} />`)}
    ${asked.needs.map((name) => html`<${Text} key=${name} label=${name} mono value=${env[name] ?? ""} error=${wrong(`env.${name}`)} hint="A variable of the task. Values are not recorded."
      onInput=${(value) => setEnv({ ...env, [name]: value })} />`)}
    ${error && !named.has(field) && html`<${Problem} error=${error} />`}
    ${run.provider !== "local" && html`<p class="dim">This may start a machine, which is billed from then on.${spentOn([run]) !== null && ` It cost ${spentOn([run])} before.`}</p>`}
    <div class="actions"><button type="button" class="button" onClick=${onClose}>Cancel</button><button type="submit" class="button primary" disabled=${busy}>${busy ? "Submitting …" : "Run it again"}</button></div></form>`;
}
