// Budget burn-down: what is left, the alerts, and when it is used up at the rate of the last 24 hours.
import { html } from "../core/dom.js";
import { cents, day, money, moment, ms, tick } from "../core/words.js";
import { amountsOf, ticksOf } from "./scale.js";
import { useWidth } from "./width.js";

const PAD = { left: 52, right: 14, top: 12, bottom: 20 };
const whole = (usd) => `$${Math.round(usd * 100) / 100 >= 1000 ? Math.round(usd).toLocaleString("en-US") : Math.round(usd * 100) / 100}`;

// points: [{at, spent_usd}]; budget: as `steno budget --json`; now: the moment shown (ms).
export function Burn({ points, budget, now, height = 226, children }) {
  const [at, width] = useWidth();
  const total = budget.total_usd === null ? null : Number(budget.total_usd);
  const spent = Number(budget.spent_usd);
  return html`<div class="burn"><div ref=${at}>${total === null && !spent ? html`<div class="none">${children}</div>` : html`<${Chart} ...${{ points, budget, now, height, width, total, spent }} />`}</div>
    <dl class="sums">
      <div><dt>spent</dt><dd>${cents(budget.spent_usd)}</dd></div>
      <div><dt>committed</dt><dd>${cents(budget.committed_usd)}</dd></div>
      ${total === null ? html`<div><dt>budget</dt><dd>none</dd></div>` : html`<div><dt>remaining</dt><dd>${cents(budget.remaining_usd)}</dd></div>
      <div><dt>used up</dt><dd title=${AHEAD[budget.forecast] ?? moment(budget.exhausted_at)}>${usedUp(budget)}</dd></div>`}
    </dl></div>`;
}

const AHEAD = { too_early: "a forecast needs 24 hours since the first machine", never: "nothing was spent in the last 24 hours" };

function usedUp(budget) {
  if (budget.forecast === "used_up") return "now";
  return budget.exhausted_at ? day(budget.exhausted_at) : budget.forecast === "too_early" ? "not known yet" : "never";
}

function Chart({ points, budget, now, height, width, total, spent }) {
  const history = [...points.map((one) => ({ t: ms(one.at), spent: Number(one.spent_usd) })).filter((one) => one.t <= now), { t: now, spent }];
  const from = history[0].t;
  const past = Math.max(now - from, 3600e3);
  const end = total === null || !budget.exhausted_at ? null : ms(budget.exhausted_at);
  const to = end === null ? now + past * 0.12 : Math.min(end + past * 0.05, now + Math.max(past * 1.2, 86400e3));
  const top = total ?? Math.max(spent * 1.2, 0.01);
  const value = (one) => (total === null ? one : Math.max(0, total - one));
  const x = (time) => PAD.left + ((time - from) / (to - from)) * (width - PAD.left - PAD.right);
  const y = (usd) => PAD.top + (1 - usd / top) * (height - PAD.top - PAD.bottom);
  const line = history.map((one, index) => `${index ? "L" : "M"}${x(one.t).toFixed(1)} ${y(value(one.spent)).toFixed(1)}`).join("");
  const { ticks, size } = ticksOf(from, to, Math.max(2, Math.floor(width / 120)));
  const rate = end === null ? 0 : (total - spent) / (end - now);
  const stop = end === null ? null : Math.min(end, to);
  const told = total === null ? `${money(budget.spent_usd)} spent, no budget set`
    : `${money(budget.remaining_usd)} of ${money(budget.total_usd)} left, ${end === null ? AHEAD[budget.forecast] : `used up ${moment(budget.exhausted_at)} at the rate of the last 24 hours`}`;
  return html`<svg viewBox="0 0 ${width} ${height}" height=${height} role="img" aria-label=${told}>
    ${amountsOf(top, 4, 0.01).map((usd) => html`<line class="ground" x1=${PAD.left} x2=${width - PAD.right} y1=${y(usd)} y2=${y(usd)} /><text x=${PAD.left - 8} y=${y(usd) + 4} text-anchor="end">${whole(usd)}</text>`)}
    ${ticks.map((time) => x(time) > PAD.left + 20 && x(time) < width - 30 && html`<text x=${x(time)} y=${height - 4} text-anchor="middle">${tick(time, Math.max(to - from, size * 2))}</text>`)}
    ${total !== null && budget.alerts.map((one) => { const level = y(total * (1 - one.threshold)); const names = one.reached ? "reached" : "";
      return html`<line class="limit ${names}" x1=${PAD.left} x2=${width - PAD.right} y1=${level} y2=${level} /><text class=${names} x=${PAD.left + 6} y=${level - 4}>${`${Math.round(one.threshold * 100)} % spent${one.reached ? ", reached" : ""}`}</text>`; })}
    <path class="area" d="${line}L${x(now).toFixed(1)} ${y(0)}L${x(from).toFixed(1)} ${y(0)}Z" />
    <path class="left" d=${line} />
    ${stop !== null && stop > now && html`<path class="ahead" d="M${x(now)} ${y(value(spent))}L${x(stop)} ${y(Math.max(0, total - spent - rate * (stop - now)))}" />${stop === end && html`<circle class="end" cx=${x(end)} cy=${y(0)} r="4.500" />`}`}
    <circle class="now" cx=${x(now)} cy=${y(value(spent))} r="5" />
  </svg>`;
}
