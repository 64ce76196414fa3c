// One event in full; for a poll, the request, the verbatim answer, and the duration.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { useMoment, useRecord } from "../../core/moment.js";
import { Link } from "../../core/router.js";
import { count, number } from "../../core/words.js";
import { Empty, Loading, PageHead, Panel, PollLink, Problem, RunLink, Table, Time, VmLink } from "../../ui/all.js";
import { CopyButton } from "./copy.js";
import { meaning } from "./data.js";
import { Stream } from "./stream.js";
import { JsonTree } from "./tree.js";

const never = () => false; // an event never changes

export function Entry({ position }) {
  const here = Number(position);
  const read = useData(`/api/events/${encodeURIComponent(position)}`, { on: never });
  const shown = useMoment();
  const head = useRecord()?.position ?? null;
  const last = shown.at === null ? head : shown.position;
  const event = read.data;
  return html`<p class="crumbs"><${Link} to="/record">Record<//> <span aria-hidden="true">/</span> position</p>
    <${PageHead} title=${html`${number(here)}${event && html` <span class="dim light">${event.type}</span>`}`}><span class="grow"></span>
      <nav class="bar" aria-label="Neighbours"><${Step} to=${here - 1} on=${here > 1}>← Previous<//><${Step} to=${here + 1} on=${last === null || here < last}>Next →<//></nav><//>
    ${read.error?.status === 404 ? html`<section class="panel"><${Empty} title="There is no such position.">${last !== null && `The record has positions 1 to ${number(last)} at this moment.`}<//></section>`
      : read.error ? html`<${Problem} error=${read.error} />`
      : event === null ? html`<${Loading} height="5" />` : html`<div class="stack"><${Facts} event=${event} />
        ${event.poll ? html`<${Shown} items=${event.shows ?? []} /><${Poll} poll=${event.poll} />` : event.data.poll ? html`<${Observed} event=${event} />`
          : html`<${Panel} title="Data"><${JsonTree} value=${event.data} label="Data of the event" /><//>`}</div>`}`;
}

const Step = ({ to, on, children }) => (on ? html`<${Link} class="button small" to=${`/record/${to}`}>${children}<//>`
  : html`<button type="button" class="button small" disabled>${children}</button>`);

const Facts = ({ event }) => html`<section class="panel" aria-label="The event"><p class="lead">${meaning(event.type)}</p><dl class="facts">
  <dt>stream</dt><dd><${Stream} name=${event.stream} /> <span class="dim">version ${event.version}</span> · <${Link} to=${`/record?stream=${encodeURIComponent(event.stream)}`}>all events of this stream<//></dd>
  <dt>observed</dt><dd><${Time} at=${event.observed_at} /></dd>
  <dt>recorded</dt><dd><${Time} at=${event.recorded_at} /></dd>
  ${event.id && html`<dt>id</dt><dd><code>${event.id}</code></dd>`}
  <dt>hash</dt><dd class="hash"><code>${event.hash}</code><${CopyButton} text=${() => `${event.position}:${event.hash}`} label="Copy for verify" /></dd></dl></section>`;

const SHOWS = [
  { head: "Kind", cell: (one) => one.kind },
  { head: "Name", cell: (one) => (one.id ? html`<${one.kind === "run" ? RunLink : VmLink} id=${one.id} name=${one.name} />` : one.name) },
  { head: "Provider says", cell: (one) => html`<code>${one.status ?? "–"}</code>` },
  { head: "News", cell: (one) => (one.moved ? html`<strong>${one.moved}</strong>` : one.changed ? "details changed" : html`<span class="dim">nothing new</span>`) },
];

// The runs and machines that a poll showed, those with news first.
function Shown({ items }) {
  if (!items.length) return null;
  const ranked = [...items].sort((a, b) => Number(b.changed) - Number(a.changed));
  const [runs, machines] = ["run", "machine"].map((kind) => items.filter((one) => one.kind === kind).length);
  const said = [runs && count(runs, "run"), machines && count(machines, "machine"), `${number(items.filter((one) => one.changed).length)} with news`].filter(Boolean).join(", ");
  return html`<${Panel} title="What it showed" more=${said} flush><${Table} caption="Runs and machines of the answer" columns=${SHOWS} rows=${ranked} /><//>`;
}

function Poll({ poll }) {
  const good = poll.status !== null && poll.status !== undefined && poll.status < 400;
  return html`<${Panel} title="Request"><dl class="facts">
      <dt>at</dt><dd><${Time} at=${poll.t} /></dd><dt>path</dt><dd><code>${poll.path}</code></dd>
      <dt>answer</dt><dd><span class=${good ? "good" : "bad"}>${poll.status === null ? "none" : poll.status < 100 ? `exit ${poll.status}` : `HTTP ${poll.status}`}</span> <span class="dim">after ${took(poll.ms)}</span></dd>
      ${poll.error && html`<dt>why</dt><dd>${poll.error}</dd>`}</dl>
      ${poll.req !== null && poll.req !== undefined && html`<details class="request"><summary>Request body</summary><${JsonTree} value=${poll.req} label="Request body" /></details>`}<//>
    <${Panel} title="Answer">${poll.body === null || poll.body === undefined ? html`<p class="dim">No answer.</p>` : html`<${JsonTree} value=${poll.body} label="The answer" />`}<//>`;
}

// One answer's item about one run or machine, and the answer's position.
const Observed = ({ event }) => html`<${Panel} title="Observed item" more=${html`in <${PollLink} position=${event.data.poll}>poll #${event.data.poll}<//>`}>
  <${JsonTree} value=${event.observed ?? event.data} label="Observed item" /><//>`;

const took = (ms) => (ms === null || ms === undefined ? "–" : ms < 10 ? `${ms.toFixed(1)} ms` : `${Math.round(ms)} ms`);
