// How long the parts of a run took, beside the medians of the runs with its name.
import { html } from "../../core/dom.js";
import { count, money } from "../../core/words.js";
import { Await, Panel } from "../../ui/all.js";
import { Charted } from "../../ui/charts.js";
import { seconds } from "./words.js";

const COLUMNS = [
  { head: "Part", cell: (one) => one.phase }, { head: "This run", right: true, cell: (one) => seconds(one.seconds) },
  { head: "Median", right: true, cell: (one) => seconds(one.median_seconds) }, { head: "Of runs", right: true, cell: (one) => one.count },
];
const KEYS = [{ key: "own", css: "own", text: "this run" }, { key: "median", css: "median", text: "median" }];

export function LikePanel({ read, path }) {
  if (read.data && !read.data.runs) return null;
  return html`<${Panel} title="Compared with its like"><${Await} read=${read} height="3">${(data) => {
    const longest = Math.max(...data.phases.flatMap((one) => [one.seconds ?? 0, one.median_seconds ?? 0]), 0.001);
    const bar = (value, css, y) => value !== null && html`<rect class=${css} y=${y} width="${Math.max(0.4, (100 * value) / longest)}%" height="8" rx="2" />`;
    return html`<p class="dim">Medians of ${count(data.runs, "other run")} named ${data.name} that ended${data.median_cost_usd !== null && html`; cost: ${money(data.cost_usd)}, median ${money(data.median_cost_usd)}`}.</p><${Charted} path=${path} caption="This run and the median of its name" columns=${COLUMNS} rows=${data.phases} keys=${KEYS}>
      <dl class="like">${data.phases.map((one) => html`<div key=${one.phase}><dt>${one.phase}</dt><dd><svg width="100%" height="20" aria-hidden="true">${bar(one.seconds, "own", 1)}${bar(one.median_seconds, "median", 11)}</svg></dd><dd class="right">${seconds(one.seconds)} <span class="dim">median ${seconds(one.median_seconds)}</span></dd></div>`)}</dl><//>`;
  }}<//><//>`;
}
