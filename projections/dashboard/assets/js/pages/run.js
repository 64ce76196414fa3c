// One run: verdict with evidence, timeline, the provider's report apart, output, cost and events.
import { about, useData } from "../core/data.js";
import { classes, html, useEffect } from "../core/dom.js";
import { lookAt } from "../core/failures.js";
import { useAt } from "../core/moment.js";
import { navigate } from "../core/router.js";
import { useMay } from "../core/session.js";
import { setTitle } from "../core/title.js";
import { called } from "../core/words.js";
import { Await, Loading, Missing, PageHead, Problem, Tabs, withCode } from "../ui/all.js";
import { Costs } from "./run/costs.js";
import { Events } from "./run/events.js";
import { Attempts, Facts, Watched } from "./run/facts.js";
import { LikePanel } from "./run/like.js";
import { Kernel } from "./run/kernel.js";
import { Logs } from "./run/logs.js";
import { AgainButtons } from "./run/again.js";
import { ReachButton } from "./run/reach.js";
import { LeverButtons, StopButtons } from "./run/stop.js";
import { Timeline } from "./run/timeline.js";
import { OutputLine, Reported, Verdict } from "./run/verdict.js";
import { Head } from "./run/head.js";
import { UsePanel } from "./run/use.js";
import { ended } from "./run/words.js";

export const title = ({ id }) => `Run ${id.slice(0, 8)}`;

const TABS = { why: "Why", output: "Output", cost: "Cost", events: "Events" };
// The first is the one that is open: of a failed run its output, which is not shown of past moments.
const tabsOf = (keys) => keys.map((key) => ({ key, label: TABS[key] }));

export default function Page({ params }) {
  const path = `/api/runs/${encodeURIComponent(params.id)}`;
  const mine = { on: about.run(params.id) };
  const found = useData(path, mine);
  const life = useData(`${path}/timeline`, mine);
  const why = useData(`${path}/explain`, { ...mine, every: 2000 });
  const like = useData(`${path}/like`, mine);
  const use = useData(`${path}/samples`, { ...mine, every: 10000 });
  const at = useAt();
  const may = useMay("submit");
  const pulls = useMay("admin");
  const run = found.data;
  const kernel = useData(run?.kernel ? `/api/kernels/${encodeURIComponent(run.run_id)}` : null, mine);
  useEffect(() => {
    if (!run) return;
    setTitle(called(run));
    if (run.state === "failed" && at === null) lookAt([run]);
    if (run.run_id !== params.id && !found.stale) navigate(`/runs/${encodeURIComponent(run.run_id)}${location.search}`, { replace: true });
  }, [run?.run_id, run?.name, run?.state, params.id]);

  if (found.error?.status === 404) return html`<${Missing} kind="run" id=${params.id} past=${at !== null} />`;
  // All at once, so that nothing on the page moves when the last of them comes.
  const waiting = [found, life, why, like, use, ...(run?.kernel ? [kernel] : [])].some((read) => read.data === null && read.error === null);
  if (!run || waiting) return html`<${PageHead} title="Run" />${found.error ? html`<${Problem} error=${found.error} retry=${found.reload} />` : html`<${Loading} height="5" />`}`;
  const open = !ended(run);
  const printed = why.data?.output_cause || why.data?.observability === "fresh"; // recorded, or its provider can be asked
  const failed = run.state === "failed" && at === null && !run.tasks && !run.kernel && Boolean(printed);
  const acts = may && at === null;
  const tabs = html`<div><${Tabs} key=${failed} name="tab" label="About this run" tabs=${tabsOf(failed ? ["output", "why", "cost", "events"] : ["why", "output", "cost", "events"])}>${(tab) => html`
      ${tab === "why" && html`<div class="columns"><${Await} read=${why} height="5">${(said) => html`<${Verdict} found=${said} />`}<//><${Reported} run=${run} /></div>`}
      ${tab === "output" && html`<${Logs} run=${run} open=${open} past=${at !== null} line=${why.data?.output_cause?.line} />`}
      ${tab === "cost" && html`<${Costs} run=${run} />`}
      ${tab === "events" && html`<${Events} run=${run} />`}`}<//></div>`;
  return html`<div class=${classes("stack", found.stale && "stale", failed && "run-failed")} aria-busy=${found.stale ? "true" : null}>
    <${Head} run=${run}><${AgainButtons} run=${run} may=${acts} />${open && acts && html`<${StopButtons} run=${run} onAsked=${found.reload} />`}${run.state === "running" && acts && !run.tasks && !run.archive && html`<${ReachButton} run=${run} />`}${acts && pulls && !run.archive && html`<${LeverButtons} run=${run} />`}<//>
    <${Problem} error=${found.error} />
    ${why.data && html`<p class="lead run-why">${withCode(why.data.why)}</p>`}
    <${OutputLine} found=${why.data?.output_cause} />
    ${failed && tabs}
    <${Watched} run=${run} found=${why.data} />
    <${Facts} run=${run} />
    ${run.kernel && html`<${Await} read=${kernel} height="4">${(told) => html`<${Kernel} kernel=${told} />`}<//>`}
    <${Await} read=${life} height="3">${(drawn) => html`<${Timeline} key=${run.run_id} run=${run} life=${drawn} open=${open} live=${at === null} />`}<//>
    <${UsePanel} read=${use} />
    <${LikePanel} read=${like} path="${path}/like" />
    <${Attempts} run=${run} />
    ${!failed && tabs}
  </div>`;
}

