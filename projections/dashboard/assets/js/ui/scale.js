// A time scale: positions as shares, and round ticks.
import { ahead } from "../core/words.js";

const SIZES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 259200, 432000, 604800, 1209600, 2592000, 7776000].map((seconds) => seconds * 1000);

export const share = (time, from, to) => (to > from ? (time - from) / (to - from) : 0);
export const clamp = (value, low = 0, high = 1) => Math.min(high, Math.max(low, value));

// At most `most` moments (ms) within that are round in the zone of who looks, and their step.
export function ticksOf(from, to, most) {
  const size = SIZES.find((one) => (to - from) / one <= most) ?? SIZES.at(-1);
  const found = [];
  const zone = ahead(from);
  for (let time = Math.ceil((from + zone) / size) * size - zone; time <= to; time += size) found.push(time);
  return { size, ticks: found };
}

// Round amounts from 0 up to `top`, at most `most` of them; `least`: the smallest step that a label shows.
export function amountsOf(top, most, least = 0) {
  if (!(top > 0)) return [0];
  const rough = Math.max(top / most, least);
  const power = 10 ** Math.floor(Math.log10(rough));
  const size = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const found = [];
  for (let value = 0; value <= top * 1.0001; value += size) found.push(value);
  return found;
}
