// Gaps in which a source was not seen.
import { useNow } from "../../core/clock.js";
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { goTo } from "../../core/moment.js";
import { GAPS, duration, ms } from "../../core/words.js";
import { Empty, Time } from "../../ui/all.js";

const WHY = { no_answer: "polled, and it did not answer", not_polled: "no process of Steno polled it" };

export function BlindSpots({ gaps }) {
  const now = useNow();
  const sources = useData("/api/overview", { every: 2000 }).data?.sources ?? [];
  const never = sources.filter((one) => one.last_answered === null).map((one) => one.name).join(", ");
  const none = !sources.length ? "No source has been polled." : never ? `${never}: no poll has been answered yet.` : "Every source answered at least once a minute.";
  if (!gaps.length) return html`<section class="panel"><${Empty} title=${never ? "No answer yet" : "None"}>${none}<//></section>`;
  return html`<section class="panel"><ol class="gaps">${gaps.map((gap) => html`<li key=${`${gap.source} ${gap.from}`}>
      <p><i class="hatch g-${gap.kind}"></i> <strong>${duration((gap.to ? ms(gap.to) : now) - ms(gap.from))} ${GAPS[gap.kind]}</strong>: ${gap.source}, ${WHY[gap.kind]}${!gap.to && html` <span class="badge chip s-blind">ongoing</span>`}</p>
      <p class="bar dim"><span><${Time} at=${gap.from} />${gap.to && html` to <${Time} at=${gap.to} />`}</span><button type="button" class="button small" onClick=${() => goTo(gap.from, { time: ms(gap.from), push: true })}>Go there</button></p></li>`)}</ol>
    <p class="note dim">Grace periods and idle timers pause during a blind spot.</p></section>`;
}
