// The strip under the header: live or past, whether sources answer, and the lag.
import { classes, html } from "../core/dom.js";
import { useNow } from "../core/clock.js";
import { useData } from "../core/data.js";
import { useConnection } from "../core/live.js";
import { goTo, problem, useMoment } from "../core/moment.js";
import { setQuery, usePlace } from "../core/router.js";
import { useStore } from "../core/store.js";
import { tip } from "../ui/tip.js";
import { ago, moment, ms, number, span, told, unseen, zoned } from "../core/words.js";

const LAMPS = { live: ["s-fresh", "Live"], connecting: ["s-none", "Connecting"], reconnecting: ["s-stale", "Reconnecting"], paused: ["s-none", "Paused"] };

const BEAT = 15_000; // a source that falls silent is told by no message: nothing happens then

function Lamp({ state, children, title, link }) {
  return html`<span class="lamp ${state} ${link ? "link" : ""}" title=${title}><i></i>${children}</span>`;
}

const ORDER = ["blind", "stale", "fresh"];
const SHOWN = 3; // sources named one by one; the rest are counted

function Sources({ sources, now }) {
  const sorted = [...sources].sort((a, b) => ORDER.indexOf(a.observability) - ORDER.indexOf(b.observability));
  return html`${sorted.slice(0, SHOWN).map((one, place) => html`<span key=${one.name} class=${sorted.length > 1 ? "wide-only" : ""}><${Lamp} state="s-${one.observability}" title=${one.last_answered ? `last answered ${moment(one.last_answered)}` : "never answered"}>
    ${one.name} ${one.observability}${one.observability !== "fresh" && one.last_answered ? html` <span class="dim">since ${ago(one.last_answered, now).replace(" ago", "")}</span>` : ""}<//></span>`)}
    <${More} of=${sorted.slice(SHOWN)} class="wide-only" />${sorted.length > 1 && html`<${More} of=${sorted} all class="phone-only" />`}`;
}

// `+9: 2 stale, 7 fresh`, or of all `2 stale, 10 fresh`; which they are is told on hover and focus.
function More({ of: rest, all = false, class: names }) {
  if (!rest.length) return null;
  const counts = ORDER.map((word) => [rest.filter((one) => one.observability === word).length, word]).filter(([number_]) => number_);
  return html`<span class="more-sources ${names}" tabindex="0" role="note" ...${tip(rest.map((one) => `${one.name} ${one.observability}`).join("\n"))}>${all ? "" : `+${rest.length}: `}${counts.map(([number_, word]) => `${number_} ${word}`).join(", ")}</span>`;
}

const named = (all) => `${all.slice(0, SHOWN).map((one) => one.name).join(", ")}${all.length > SHOWN ? ` and ${all.length - SHOWN} more` : ""}`;

// `dstack/main blind: not polled since 2026-11-20 13:39:00Z`; several: the newest answer of any of them.
// With `now` in short: `dstack/main blind for 9 d`.
function blindness(blind, now) {
  const last = blind.map((one) => one.last_answered).filter(Boolean).sort().at(-1);
  const names = blind.length === 1 ? `${blind[0].name} blind` : `${blind.length} sources blind`;
  if (now) return `${names}${last ? ` for ${span(Math.floor((now - ms(last)) / 1000))}` : ", never answered"}`;
  const more = blind.length === 1 ? "" : ` (${named(blind)})`;
  return `${names}: ${last ? `${unseen(blind)} since ${moment(last)}` : "never answered"}${more}`;
}

// The page's name on a phone, whose header scrolls away.
function PageName() {
  const part = usePlace().path.split("/")[1] || "overview";
  return html`<span class="phone-only page-name">${part[0].toUpperCase()}${part.slice(1)}</span>`;
}

export function Strip() {
  const at = useMoment();
  const { state, position, since } = useConnection();
  const overview = useData("/api/overview", { every: 2000, beat: BEAT });
  const wrong = useStore(problem);
  const now = useNow();
  const sources = overview.data?.sources ?? [];
  const blind = sources.filter((one) => one.observability === "blind");
  if (at.at !== null) {
    const when = at.time === null ? "…" : told(at.time);
    return html`<div class="strip past" role="status"><span class="asof" key=${when}>${wrong ? "No such moment" : html`<span class="wide-only">As of ${when}</span><span class="phone-only">${(zoned(at.time)?.local ?? when).slice(5)}</span>${at.position !== null && html`<span class="dim wide-only">, position ${number(at.position)}</span>`}`}</span>
      <button type="button" onClick=${() => goTo(null)}>Back to live</button>
      ${!wrong && html`<button type="button" aria-pressed=${String(at.known !== null)} title="What was known then, or what is known of it by now: polls, output and the provider's own dates have come since" onClick=${() => setQuery({ known: at.known === null ? "now" : null })}>Known now</button>`}
      <span class="grow"></span>${blind.length > 0 && html`<span class="wide-only"><${Lamp} state="s-blind">${named(blind)} blind then<//></span><span class="phone-only lamp s-blind" role="img" aria-label="${named(blind)} blind then" title="${named(blind)} blind then"><i></i></span>`}<${PageName} /></div>`;
  }
  const [lamp, word] = LAMPS[state];
  const head = Math.max(position ?? 0, overview.position ?? 0); // a poll that moved nothing is not told on the stream
  return html`<div class=${classes("strip", state === "reconnecting" && "reconnecting", blind.length > 0 && "blind")} role="status">
    <${Lamp} state=${lamp} link>${word}${state === "reconnecting" && html`<span class="dim"> for ${span(Math.max(0, Math.floor((Date.now() - since) / 1000)))}; showing the last known state</span>`}<//>
    ${blind.length > 0 ? html`<span title=${blind.map((one) => one.name).join(", ")}><span class="wide-only">${blindness(blind)}</span><span class="phone-only">${blindness(blind, now)}</span></span>` : html`<${Sources} sources=${sources} now=${now} />`}
    <span class="grow"></span><span class="dim wide-only place">${head ? `position ${number(head)}` : ""}</span><${PageName} /></div>`;
}
