// The window in which a lever is pulled: whom it is about, what it touches and costs, and why.
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { LEVERS, named, offer, offered, preview, pull } from "../core/levers.js";
import { useStore } from "../core/store.js";
import { count, money, price } from "../core/words.js";
import { fresh } from "../pages/submit/drafts.js";
import { Text } from "../pages/submit/fields.js";
import { Sheet, toast } from "../ui/dialog.js";
import { Loading, Problem } from "../ui/notes.js";

const WORDS = { user: "Of the user", gpu: "Of the GPU", source: "Of the source" };
const NAMED = 6; // runs and machines named one by one
const WAIT = 300; // milliseconds after a key until the preview is asked for

const listed = (all, noun) => (all.length ? html`<dt>${count(all.length, noun)}</dt><dd>${all.slice(0, NAMED).join(", ")}${all.length > NAMED ? ` and ${all.length - NAMED} more` : ""}</dd>` : null);

const Touched = ({ touched }) => html`<dl class="facts">${listed(touched.runs, "run")}${listed(touched.machines, "machine")}
  ${!touched.runs.length && !touched.machines.length && html`<dt>now</dt><dd>nothing that runs</dd>`}
  <dt>spent so far</dt><dd>${money(touched.spent_usd)}</dd><dt>billed now</dt><dd>${price(touched.cost_usd_per_hour)} an hour</dd></dl>`;

export function LeverSheet() {
  const lever = useStore(offered);
  return lever && html`<${Form} key=${JSON.stringify(lever)} lever=${lever} />`;
}

function Form({ lever }) {
  const { verb, text, danger, lasting, must, scope: about, yes } = LEVERS[lever.action];
  const [scope, setScope] = useState(lever);
  const [{ touched, refused }, setTouched] = useState({}); // by the scope as it is
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const form = useRef(null);
  const key = useRef(fresh()); // pulled twice it is the same lever
  const close = () => form.current.closest("dialog").close();
  const target = JSON.stringify({ ...scope, why: undefined });
  const first = useRef(target);
  useEffect(() => {
    let current = true;
    if (must && !scope.for) { setTouched({ refused: { field: "for", detail: "Write for how long." } }); return undefined; }
    const ask = () => preview({ ...JSON.parse(target), why: "preview" }).then((answer) => current && setTouched({ touched: answer }), (problem) => current && setTouched({ refused: problem }));
    const timer = setTimeout(ask, target === first.current ? 0 : WAIT);
    setTouched({});
    return () => { current = false; clearTimeout(timer); };
  }, [target]);
  useEffect(() => form.current.querySelector("input")?.focus(), []);
  const write = (name) => (value) => { setScope({ ...scope, [name]: value.trim() }); setError(null); };
  const submit = async (event) => {
    event.preventDefault();
    if (!scope.why) { setError({ field: "why", detail: "Write why: the record keeps it." }); return; }
    setBusy(true);
    try {
      await pull(scope, key.current);
      toast(`${named(scope)}: in force.`);
      close();
    } catch (problem) { setError(problem); setBusy(false); }
  };
  const problem = error ?? refused;
  const wrong = (name) => (problem?.field === name ? problem.detail : null);
  const field = (name, label, hint) => html`<${Text} key=${name} label=${label} optional=${name !== "why" && !(must && name === "for")} value=${scope[name] ?? ""} hint=${hint} error=${wrong(name)} onInput=${write(name)} />`;
  const fields = ["why", "for", ...about];
  return html`<${Sheet} title=${lever.vm_id ? `${verb} ${lever.name ?? lever.vm_id.slice(0, 8)}` : verb} onClose=${() => offer(null)}><form class="again" ref=${form} onSubmit=${submit} noValidate>
    <p>${text}</p>${field("why", "Why")}${lasting && field("for", "For how long", must ? "30m, 2h, 1d." : "30m, 2h, 1d; empty: until it is released.")}
    ${about.length > 0 && html`<div class="fields">${about.map((name) => field(name, WORDS[name]))}</div>`}
    ${problem && !fields.includes(problem.field) && html`<${Problem} error=${problem} />`}
    ${touched ? html`<${Touched} touched=${touched} />` : !refused && html`<${Loading} height="2" />`}
    <div class="actions"><button type="button" class="button" onClick=${close}>Cancel</button>
      <button type="submit" class="button primary ${danger ? "danger" : ""}" disabled=${busy || !touched}>${yes}</button></div></form><//>`;
}
