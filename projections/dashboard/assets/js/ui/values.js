// Times, money and durations on the page.
import { useNow } from "../core/clock.js";
import { classes, html } from "../core/dom.js";
import { useAt } from "../core/moment.js";
import * as words from "../core/words.js";

// The local time with UTC beside it, and how long ago as title; `relative` shows the distance and keeps the time as title; `clock` the hour alone.
export function Time({ at, relative = false, clock = false, both = false }) {
  const now = useNow();
  const past = useAt() !== null;
  if (at === null || at === undefined) return html`<span class="dim">–</span>`;
  const here = words.zoned(at);
  const far = words.ago(at, now, past);
  const title = relative ? words.told(at) : far + (past ? " the moment shown" : "");
  const text = relative ? far : here ? here.local.slice(clock ? 11 : 0) : clock ? words.clock(at) : words.moment(at);
  const parts = text.split(/ (?=\d\d:)/).map((part, place) => html`${place > 0 && " "}<span class="nowrap">${part}</span>`); // a phone breaks between day and hour only
  return html`<time class="nowrap" datetime=${words.moment(at).replace(" ", "T")} title=${title}>${relative ? html`<span class="nowrap">${text}</span>` : parts}${here && !relative && html` <span class="dim utc">${here.utc}</span>`}${both && html` <span class="dim nowrap">${far}</span>`}</time>`;
}

export function Money({ usd, sign = false, exact = false, class: names }) {
  return html`<span class=${classes("nowrap", names)}>${exact ? words.price(usd) : sign ? words.signed(usd) : words.money(usd)}</span>`;
}

// Of milliseconds, or `seconds`.
export const Duration = ({ span, seconds }) => html`<span class="nowrap">${words.duration(seconds === undefined ? span : seconds === null ? null : seconds * 1000)}</span>`;

// Ticks while it lasts: from `from` to `to`, or to the moment shown.
export function Elapsed({ from, to = null }) {
  const now = useNow();
  if (from === null || from === undefined) return html`<span class="dim">–</span>`;
  const span = (to === null ? now : words.ms(to)) - words.ms(from);
  return html`<span class="nowrap">${to === null ? words.ticking(Math.max(0, span)) : words.duration(Math.max(0, span))}</span>`;
}
