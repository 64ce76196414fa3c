// What is stuck, anomalies, each explained, and gaps without polls.
import { withParams } from "../core/api.js";
import { useData } from "../core/data.js";
import { html } from "../core/dom.js";
import { goTo } from "../core/moment.js";
import { setQuery, useQuery } from "../core/router.js";
import { duration, ms, number } from "../core/words.js";
import { Await, Empty, Glyph, PageHead, PollLink, SubjectLink, Time, withCode } from "../ui/all.js";
import { BlindSpots } from "./incidents/blind.js";
import { explained } from "./incidents/words.js";

export const title = () => "Incidents";

const rows = (data, kind) => (kind ? data.anomalies : [...data.unusual, ...data.anomalies]);

export default function Page() {
  const [cursor] = useQuery("cursor");
  const [kind, choose] = useQuery("kind");
  const read = useData(withParams("/api/incidents", { limit: 50, cursor, kind }), { every: 2000 });
  return html`<${PageHead} title="Incidents" /><${Await} read=${read} height="5">${(data) => html`<div class="columns wide-left">
    <section class="stack" aria-labelledby="odd"><h2 id="odd">Anomalies</h2>
      ${data.dwells.some((one) => one.stuck) && html`<ol class="stack">${data.dwells.filter((one) => one.stuck).map((one) => html`<${Stuck} key=${`${one.position} ${one.subject}`} one=${one} />`)}</ol>`}
      ${kind && html`<div class="bar"><button type="button" class="button small" onClick=${() => setQuery({ kind: null, cursor: null })}>← All kinds</button></div>`}
      ${rows(data, kind).length ? [...Map.groupBy(rows(data, kind), (one) => one.kind)].map(([name, ones]) => html`<${Kind} key=${name} kind=${name} ones=${ones} of=${data.kinds.find((one) => one.kind === name)} choose=${kind ? null : choose} />`)
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

// The anomalies of a kind on this page; `of`: how many there are of it in all, the first and the newest.
function Kind({ kind, ones, of, choose }) {
  const { title: said, means, todo } = explained(kind);
  return html`<section class="panel kind" aria-label=${said}><h3 class="s-anomaly"><${Glyph} of="anomaly" /> ${said} <span class="dim">× ${number(of?.count ?? ones.length)}</span> <code class="dim">${kind}</code></h3>
    ${of && html`<p class="bar dim"><span>first <${Time} at=${of.first_at} both /></span><span>last <${Time} at=${of.last_at} both /></span></p>`}
    <p>${means} <span class="dim">${todo}</span></p>
    <ol>${ones.map((one) => html`<${Incident} key=${`${one.position} ${one.subject}`} one=${one} />`)}</ol>
    ${choose && of?.count > ones.length && html`<button type="button" class="button small" onClick=${() => choose(kind, { replace: false })}>All ${number(of.count)}</button>`}</section>`;
}

function Incident({ one }) {
  return html`<li class="incident"><p class="detail"><code>${withCode(one.detail)}</code></p>
    <div class="bar"><${Time} at=${one.at} both /><${SubjectLink} subject=${one.subject} /><${PollLink} position=${one.position} /><code class="dim">${one.more}</code><span class="spring"></span>
      <button type="button" class="button small" onClick=${() => goTo(one.position, { time: ms(one.at), push: true })}>Go to that moment<span class="hidden-text">, position ${number(one.position)}</span></button></div></li>`;
}
