// Test and benchmark results as tables: inputs and results.
import { html } from "../../core/dom.js";
import { number } from "../../core/words.js";
import { Panel, Table } from "../../ui/all.js";
import { floor, interval, percent, sizes as sized, time } from "../kernels/words.js";

const sizes = (row) => html`<code>${sized(row)}</code>`;
const small = (value) => (value === undefined || value === null ? "–" : typeof value === "number" ? String(Number(value.toPrecision(3))) : value);

const TESTS = [
  { head: "Test", cell: (row) => row.test },
  { head: "Sizes", cell: sizes },
  { head: "Result", cell: (row) => (row.passed ? html`<span class="good">✓ passed</span>` : html`<span class="bad">✗ wrong</span>`) },
  { head: "Largest error", right: true, cell: (row) => small(row.max_error) },
  { head: "Wrong", right: true, hide: "phone", cell: (row) => (row.wrong ? `${number(row.wrong)} of ${number(row.entries)}` : "0") },
];
const BENCHMARKS = [
  { head: "Benchmark", cell: (row) => row.benchmark },
  { head: "Sizes", cell: sizes },
  { head: "Median", right: true, cell: (row) => html`<strong>${time(row.median_ms)}</strong>` },
  { head: "Fastest", right: true, hide: "phone", cell: (row) => time(row.min_ms) },
  { head: "Slowest", right: true, hide: "phone", cell: (row) => time(row.max_ms) },
  { head: "Spread", right: true, hide: "phone", cell: (row) => percent(row.spread) },
  { head: "Interval", right: true, hide: "phone", cell: interval },
  { head: "Processors", right: true, hide: "phone", cell: (row) => time(row.cpu_ms) },
  { head: "Empty", right: true, hide: "phone", cell: (row) => time(row.empty_ms) },
  { head: "Floor (share)", right: true, hide: "phone", cell: floor },
  { head: "Calls", right: true, hide: "phone", cell: (row) => number(row.repeats) },
];

export const Results = ({ view }) => html`
  ${view.tests.length > 0 && html`<${Panel} title="Tests" flush more=${`${view.tests.filter((row) => row.passed).length} of ${view.tests.at(-1).tests ?? view.tests.length} passed`}>
    <${Table} caption="Tests" columns=${TESTS} rows=${view.tests} /><//>`}
  ${view.benchmarks.length > 0 && html`<${Panel} title="Benchmarks" flush><${Table} caption="Benchmarks" columns=${BENCHMARKS} rows=${view.benchmarks} /><//>`}`;
