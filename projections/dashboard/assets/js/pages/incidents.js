// What is stuck, anomalies, each explained, and gaps without polls.
import { useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { goTo } from "../core/moment.js";
import { setQuery, useQuery } from "../core/router.js";
import { duration, ms, number } from "../core/words.js";
import { Await, Empty, Glyph, PageHead, PollLink, SubjectLink, Time } from "../ui/all.js";
import { BlindSpots } from "./incidents/blind.js";
import { explained } from "./incidents/words.js";

export const title = () => "Incidents";

export default function Page() {
  const [cursor] = useQuery("cursor");
  const read = useData(`/api/incidents?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, { every: 2000 });
  return html`<${PageHead} title="Incidents" /><${Await} read=${read} height="5">${(data) => html`<div class="columns wide-left">
    <section class="stack" aria-labelledby="odd"><h2 id="odd">Anomalies</h2>
      ${data.dwells.some((one) => one.stuck) && html`<ol class="stack">${data.dwells.filter((one) => one.stuck).map((one) => html`<${Stuck} key=${`${one.position} ${one.subject}`} one=${one} />`)}</ol>`}
      ${data.anomalies.length + data.unusual.length ? html`<ol class="stack">${[...data.unusual, ...data.anomalies].map((one) => html`<${Incident} key=${`${one.position} ${one.kind} ${one.subject}`} one=${one} />`)}</ol>`
        : html`<section class="panel">${cursor ? html`<${Empty} title="No older anomaly" />` : html`<${Empty} title="No anomalies">No contradictions and no orphan machines.<//>`}</section>`}
      ${(cursor || data.next) && html`<nav class="bar" aria-label="Pages of anomalies">
        <button type="button" class="button small" disabled=${!cursor} onClick=${() => setQuery({ cursor: null })}>Newest</button>
        <button type="button" class="button small" disabled=${!data.next} onClick=${() => setQuery({ cursor: data.next }, { replace: false })}>Older →</button></nav>`}</section>
    <section class="stack" aria-labelledby="unseen"><h2 id="unseen">Blind spots</h2><${BlindSpots} gaps=${data.blind} /></section></div>`}<//>`;
}

function Stuck({ one }) {
  return html`<li class="panel stuck"><h3><${Glyph} of="anomaly" /> ${one.name ?? one.subject} is stuck: ${one.state} for ${duration(1000 * one.seconds)}</h3>
    <p>Of ${number(one.samples)} ${one.among}, 95 % took at most ${duration(1000 * one.p95_seconds)}.</p>
    <div class="bar"><${Time} at=${one.since} both /><${SubjectLink} subject=${one.subject} /><${PollLink} position=${one.position} /><code class="dim">${one.more}</code></div></li>`;
}

function Incident({ one }) {
  const { title: said, means, todo } = explained(one.kind);
  return html`<li class="panel incident"><h3 class="s-anomaly"><${Glyph} of="anomaly" /> ${said}</h3>
    <p>${means} <span class="dim">${todo}</span></p>
    <p class="detail"><code>${one.detail}</code></p>
    <div class="bar"><${Time} at=${one.at} both /><${SubjectLink} subject=${one.subject} /><${PollLink} position=${one.position} /><code class="dim">${one.kind}</code><code class="dim">${one.more}</code><span class="spring"></span>
      <button type="button" class="button small" onClick=${() => goTo(one.position, { time: ms(one.at), push: true })}>Go to that moment<span class="hidden-text">, position ${number(one.position)}</span></button></div></li>`;
}
