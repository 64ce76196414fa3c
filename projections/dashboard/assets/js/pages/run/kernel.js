// What a kernel's run came to: its result by today's rules, its tests and times, and every status.
import { html } from "../../core/dom.js";
import { duration } from "../../core/words.js";
import { Link } from "../../core/router.js";
import { Code, Panel, PollLink, StateBadge, Table } from "../../ui/all.js";
import { LOOKS, SAID, boardOf, percent, sizes, time } from "../kernels/words.js";
import { Results } from "../submit/results.js";
import { folded } from "../submit/statuses.js";

const Result = ({ status }) => html`<${StateBadge} state=${LOOKS[status] ?? "failed"} bare=${SAID[status] ?? status} />`;

const STATUSES = [
  { head: "After", right: true, cell: (one) => duration(one.elapsed_seconds * 1000) },
  { head: "Status", cell: (one) => html`<${PollLink} position=${one.position}>${SAID[one.status] ?? one.status}<//>` },
  { head: "Says", cell: (one) => html`<span class="dim">${says(one)}</span>` },
];

// A text of many lines stands below the result.
function says(one) {
  if (one.status === "BENCHMARK_RESULT") return `${sizes(one)}: median ${time(one.median_ms)}, spread ${percent(one.spread)}`;
  return `${one.message.split("\n")[0].slice(0, 200)}${one.status === "TEST_RESULT" ? ` (${sizes(one)})` : ""}`;
}

export function Kernel({ kernel }) {
  const { mark, statuses, judged } = kernel;
  const view = folded(statuses);
  const end = statuses.at(-1)?.final ? statuses.at(-1) : null;
  const block = end && (end.status === "COMPILE_ERROR" ? end.message : end.output);
  const gpu = judged?.gpu ?? mark.gpu_type;
  return html`<div class="columns kernel"><div class="stack">
    <${Panel} title="Kernel" more=${html`<${Link} to=${boardOf(mark.problem, gpu, mark.dtype)}>Leaderboard of ${mark.problem} on ${gpu}<//>`}>
      <dl class="facts"><dt>problem</dt><dd>${mark.problem}${judged && judged.definition !== "shipped" && html` <span class="dim">definition ${judged.definition}</span>`}</dd>
        <dt>asked for</dt><dd>${mark.gpu_type}, ${mark.dtype}, ${mark.language}, ${mark.endpoint}</dd>
        ${judged && html`<dt>result</dt><dd><${Result} status=${judged.said} />${judged.now !== judged.said && html` by today's rules <${Result} status=${judged.now} />`}</dd>
          ${(judged.why.length ? judged.why : judged.said === "CHEATING_SUSPECTED" ? [judged.message] : []).map((why) => html`<dt key=${why}>seen</dt><dd>${why}</dd>`)}
          <dt>ran on</dt><dd>${judged.gpu}, ${judged.machine ?? "unknown machine"}, ${judged.start ?? "unknown"} start</dd>`}</dl>
      ${block && html`<${Code} text=${block} wrap label=${end.status === "COMPILE_ERROR" ? "Compiler output" : "Output"} />`}<//>
    <${Results} view=${view} /></div>
    <${Panel} title="Statuses" flush><${Table} caption="Statuses of the kernel, oldest first" columns=${STATUSES} rows=${statuses} rowKey=${(one, index) => `${one.position} ${index}`} /><//></div>`;
}
