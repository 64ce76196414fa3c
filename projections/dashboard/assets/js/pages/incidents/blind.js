// Gaps without an answer of a source.
import { useNow } from "../../core/clock.js";
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { goTo } from "../../core/moment.js";
import { duration, ms } from "../../core/words.js";
import { Empty, Time } from "../../ui/all.js";

// Gaps not in the record: a source that has not answered since, while nobody recorded.
function silent(sources, gaps) {
  const open = new Set(gaps.filter((gap) => gap.to === null).map((gap) => gap.source));
  return sources.filter((one) => one.observability === "blind" && one.last_answered && !open.has(one.name))
    .map((one) => ({ source: one.name, from: one.last_answered, to: null }));
}

export function BlindSpots({ gaps: recorded }) {
  const now = useNow();
  const overview = useData("/api/overview", { every: 2000 });
  const gaps = [...silent(overview.data?.sources ?? [], recorded), ...recorded];
  if (!overview.data?.sources.length) return html`<section class="panel"><${Empty} title="None">No source has been polled.<//></section>`;
  if (!gaps.length) return html`<section class="panel"><${Empty} title="None">Every source answered at least once a minute.<//></section>`;
  return html`<section class="panel"><ol class="gaps">${gaps.map((gap) => html`<li key=${`${gap.source} ${gap.from}`}>
      <p><strong>${duration((gap.to ? ms(gap.to) : now) - ms(gap.from))}</strong> without an answer from ${gap.source}${!gap.to && html` <span class="badge chip s-blind">ongoing</span>`}</p>
      <p class="bar dim"><span><${Time} at=${gap.from} />${gap.to && html` to <${Time} at=${gap.to} />`}</span><button type="button" class="button small" onClick=${() => goTo(gap.from, { time: ms(gap.from), push: true })}>Go there</button></p></li>`)}</ol>
    <p class="note dim">Grace periods and idle timers pause during a blind spot.</p></section>`;
}
