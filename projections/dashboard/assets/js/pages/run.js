// One run: verdict with evidence, timeline, the provider's report apart, output, cost and events.
import { about, useData } from "../core/data.js";
import { html, useEffect } from "../core/dom.js";
import { useAt } from "../core/moment.js";
import { navigate } from "../core/router.js";
import { useMay } from "../core/session.js";
import { called } from "../core/words.js";
import { Await, Loading, Missing, PageHead, Problem, Tabs, withCode } from "../ui/all.js";
import { Costs } from "./run/costs.js";
import { Events } from "./run/events.js";
import { Attempts, Facts, Watched } from "./run/facts.js";
import { LikePanel } from "./run/like.js";
import { Kernel } from "./run/kernel.js";
import { Logs } from "./run/logs.js";
import { AgainButtons } from "./run/again.js";
import { StopButtons } from "./run/stop.js";
import { Timeline } from "./run/timeline.js";
import { Reported, Verdict } from "./run/verdict.js";
import { Head } from "./run/head.js";
import { ended } from "./run/words.js";

export const title = ({ id }) => `Run ${id.slice(0, 8)}`;

const TABS = [
  { key: "why", label: "Why" }, { key: "output", label: "Output" }, { key: "cost", label: "Cost" }, { key: "events", label: "Events" },
];

export default function Page({ params }) {
  const path = `/api/runs/${encodeURIComponent(params.id)}`;
  const mine = { on: about.run(params.id) };
  const found = useData(path, mine);
  const life = useData(`${path}/timeline`, mine);
  const why = useData(`${path}/explain`, { ...mine, every: 2000 });
  const like = useData(`${path}/like`, mine);
  const at = useAt();
  const may = useMay("submit");
  const run = found.data;
  const kernel = useData(run?.kernel ? `/api/kernels/${encodeURIComponent(run.run_id)}` : null, mine);
  useEffect(() => {
    if (!run) return;
    document.title = `${called(run)} · Steno`;
    if (run.run_id !== params.id && !found.stale) navigate(`/runs/${encodeURIComponent(run.run_id)}${location.search}`, { replace: true });
  }, [run?.run_id, run?.name, params.id]);

  if (found.error?.status === 404) return html`<${Missing} kind="run" id=${params.id} past=${at !== null} />`;
  // All at once, so that nothing on the page moves when the last of them comes.
  const waiting = [found, life, why, like, ...(run?.kernel ? [kernel] : [])].some((read) => read.data === null && read.error === null);
  if (!run || waiting) return html`<${PageHead} title="Run" />${found.error ? html`<${Problem} error=${found.error} retry=${found.reload} />` : html`<${Loading} height="5" />`}`;
  const open = !ended(run);
  return html`<div class=${found.stale ? "stack stale" : "stack"} aria-busy=${found.stale ? "true" : null}>
    <${Head} run=${run}><${AgainButtons} run=${run} may=${may && at === null} />${open && at === null && may && html`<${StopButtons} run=${run} onAsked=${found.reload} />`}<//>
    <${Problem} error=${found.error} />
    ${why.data && html`<p class="lead run-why">${withCode(why.data.why)}</p>`}
    <${Watched} run=${run} found=${why.data} />
    <${Facts} run=${run} />
    ${run.kernel && html`<${Await} read=${kernel} height="4">${(told) => html`<${Kernel} kernel=${told} />`}<//>`}
    <${Await} read=${life} height="3">${(drawn) => html`<${Timeline} key=${run.run_id} run=${run} life=${drawn} open=${open} live=${at === null} />`}<//>
    <${LikePanel} read=${like} path="${path}/like" />
    <${Attempts} run=${run} />
    <div><${Tabs} name="tab" label="About this run" tabs=${TABS}>${(tab) => html`
      ${tab === "why" && html`<div class="columns"><${Await} read=${why} height="5">${(said) => html`<${Verdict} found=${said} />`}<//><${Reported} run=${run} /></div>`}
      ${tab === "output" && html`<${Logs} run=${run} open=${open} past=${at !== null} />`}
      ${tab === "cost" && html`<${Costs} run=${run} />`}
      ${tab === "events" && html`<${Events} run=${run} />`}`}<//></div>
  </div>`;
}

