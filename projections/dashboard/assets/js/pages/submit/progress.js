// The progress of a kernel run: steps with durations, cost, results, and the end.
import { useNow } from "../../core/clock.js";
import { classes, html } from "../../core/dom.js";
import { money, ticking } from "../../core/words.js";
import { Code, Loading, Problem, RunLink } from "../../ui/all.js";
import { StopButtons } from "../run/stop.js";
import { Results } from "./results.js";

const STARTS = { COLD_START: "a new machine was created", WARM_REUSE: "a running machine was reused" };

export function Progress({ job, run, may, onAgain }) {
  const { view, busy, lost, error } = job;
  const elapsed = useElapsed(job);
  const id = view.run ?? run;
  const said = view.end?.said ?? (view.status === null ? "Submitted" : "Running");
  return html`<section class=${classes("panel progress", view.end && (view.end.good ? "good-end" : "bad-end"))} aria-labelledby="progress">
    <header><h2 id="progress" class="plain">${said}</h2><span class="hidden-text" role="status">${view.end ? said : view.steps.find((step) => step.state === "now")?.label ?? ""}</span><span class="grow"></span>
      <span class="more">${id && html`run <${RunLink} id=${id} name=${view.name} />`}</span></header>
    <${Problem} error=${error} />
    ${view.status === null && !error ? html`<${Loading} height="3" />` : html`
      <div class="figures"><div class="figure"><div class="value">${elapsed === null ? "–" : ticking(elapsed * 1000)}</div><div class="label">elapsed</div></div>
        <div class="figure"><div class="value">${money(view.cost)}</div><div class="label">${view.end ? "cost" : "cost so far"}</div></div>
        <div class="figure"><div class="value word">${view.vmState ?? "–"}</div><div class="label">${STARTS[view.vmState] ?? "machine start"}</div></div></div>
      <ol class="phases" aria-label="Phases">${view.steps.map((step) => html`<${Step} key=${step.key} step=${step} elapsed=${elapsed} />`)}</ol>`}
    ${lost && !view.end && html`<p class="warning">Connection lost; reconnecting. The run continues.</p>`}
    <${Said} view=${view} />
    <${Results} view=${view} />
    <div class="bar">${!view.end && busy && id && may && html`<${StopButtons} run=${{ run_id: id, name: view.name }} />`}
      ${!busy && html`<button type="button" class="button primary" onClick=${onAgain}>Submit another</button>`}
      ${id && html`<${RunLink} id=${id} name="Verdict, evidence and output" />`}</div></section>`;
}

const MARKS = { done: ["✓", "done"], now: ["●", "now"], failed: ["✗", "failed"], ahead: ["○", "to come"] };

function Step({ step, elapsed }) {
  const took = step.from === null ? null : (step.to ?? elapsed) - step.from;
  const [mark, word] = MARKS[step.state];
  return html`<li class=${`phase ${step.state}`} aria-current=${step.state === "now" ? "step" : null}><span class="phase-mark" aria-hidden="true">${mark}</span>
    <span>${step.label}<span class="hidden-text">, ${word}</span></span><span class="right dim">${took === null ? "" : ticking(Math.max(0, took) * 1000)}</span></li>`;
}

// Compiler output is a block of text, any other message a sentence.
function Said({ view }) {
  if (view.end === null) return html`<p class="dim said">${view.message ?? ""}</p>`;
  if (view.end.good) return null;
  const block = { COMPILE_ERROR: view.message, RUNTIME_ERROR: view.output }[view.status];
  return html`${view.status !== "COMPILE_ERROR" && view.message && html`<p class="lead bad">${view.message}</p>`}
    ${block && html`<${Code} text=${block} wrap label=${view.status === "COMPILE_ERROR" ? "Compiler output" : "Output"} />`}`;
}

// Seconds since the submission, ticking while the run goes on.
function useElapsed({ view, busy }) {
  const time = useNow();
  if (view.elapsed === null || view.end || !busy) return view.elapsed;
  return Math.max(view.elapsed, (time - view.began) / 1000);
}
