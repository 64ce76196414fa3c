// Durations, moments and money as people read them: the same words as the command line's.
const dash = "–";

// Milliseconds of an ISO time or a number of milliseconds; null stays null.
export const ms = (at) => (at === null || at === undefined ? null : typeof at === "number" ? at : Date.parse(at));

// `40 ms`, `2.5 s`, `42 s`, `7 m 06 s`, `24 h`, `2 d 04 h` of milliseconds: two units at most, none that is 0.
export function duration(span) {
  if (span === null || span === undefined || Number.isNaN(span)) return dash;
  if (span > 0 && span < 100) return `${Math.round(span)} ms`;
  if (Math.round(span / 100) < 600) return `${Math.max(0, Math.round(span / 100)) / 10} s`;
  const seconds = Math.round(span / 1000);
  const [size, unit, part, small] = seconds < 3600 ? [60, "m", 1, "s"] : seconds < 48 * 3600 ? [3600, "h", 60, "m"] : [86400, "d", 3600, "h"];
  const rest = Math.floor((seconds % size) / part);
  return `${Math.floor(seconds / size)} ${unit}` + (rest ? ` ${String(rest).padStart(2, "0")} ${small}` : "");
}

// Without tenths, for values that tick each second.
export const ticking = (span) => (span < 60000 ? `${Math.max(0, Math.floor(span / 1000))} s` : duration(Math.floor(span / 1000) * 1000));

// `2026-11-20 15:00:02Z`
export function moment(at) {
  const time = ms(at);
  return time === null || Number.isNaN(time) ? dash : new Date(time).toISOString().slice(0, 19).replace("T", " ") + "Z";
}
export const day = (at) => moment(at).slice(0, 10);
// `15:00:02Z`
export const clock = (at) => (ms(at) === null ? dash : moment(at).slice(11));
// `15:00`, or `11-20 15:00` where the span is longer than a day, or `11-20`, for axes, in the zone of who looks.
export function tick(at, span) {
  const text = moment(ms(at) + ahead(ms(at)));
  if (span > 8 * 86400e3) return text.slice(5, 10);
  if (span > 20 * 3600e3) return text.slice(5, 16);
  return span > 5 * 60e3 ? text.slice(11, 16) : text.slice(11, 19);
}

// Milliseconds by which the zone of who looks is ahead of UTC at that time.
export const ahead = (time) => -new Date(time).getTimezoneOffset() * 60e3;

// `no answer`: Steno polled and the source was silent; `not polled`: no process of Steno polled it.
export const GAPS = { no_answer: "no answer", not_polled: "not polled" };
// The same of blind sources, of which each may have its own.
export const unseen = (sources) => (new Set(sources.map((one) => one.blind)).size === 1 ? GAPS[sources[0].blind] : "not seen");

// In the zone of who looks: {local: `2026-11-20 16:00:02`, zone: `GMT+1`, utc: `15:00:02Z`, with the date where it differs}; null where that is UTC.
export function zoned(at) {
  const time = ms(at);
  if (time === null || Number.isNaN(time) || !ahead(time)) return null;
  const [here, there] = [new Date(time + ahead(time)).toISOString().slice(0, 19).replace("T", " "), moment(time)];
  const zone = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(time).find((part) => part.type === "timeZoneName")?.value ?? "";
  return { local: here, zone, utc: here.slice(0, 10) === there.slice(0, 10) ? there.slice(11) : there };
}

// `2026-11-20 16:00:02 GMT+1 (15:00:02Z)`, or `2026-11-20 15:00:02Z` where the zone is UTC.
export function told(at) {
  const here = zoned(at);
  return here ? `${here.local} ${here.zone} (${here.utc})` : moment(at);
}

// `12 s ago`, `3 m ago`, `5 h ago`, `4 d ago`; `past`: counted from the moment shown, `3 m before`
export function ago(at, now, past = false) {
  const gap = Math.floor((now - ms(at)) / 1000);
  const text = span(Math.abs(gap));
  if (past) return gap < 0 ? `${text} later` : `${text} before`;
  return gap < 0 ? `in ${text}` : `${text} ago`;
}
// One unit: `12 s`, `3 m`
export function span(seconds) {
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"]]) {
    if (seconds >= 2 * size || (size === 60 && seconds >= 60)) return `${Math.floor(seconds / size)} ${unit}`;
  }
  return `${seconds} s`;
}

// To a cent, small amounts to more places: `$1,400.00`, `$0.0321`.
export function money(usd) {
  if (usd === null || usd === undefined) return dash;
  const value = Number(usd);
  const rounded = Math.round(Math.abs(value) * 10000) / 10000;
  const sign = value < 0 && (rounded || value) ? "−" : "";
  if (!rounded && value) return `${sign}$${String(usd).replace("-", "").replace(/0+$/, "")}`;
  const places = Math.round(rounded * 10000) % 100 === 0 ? 2 : 4;
  return `${sign}$${rounded.toLocaleString("en-US", { minimumFractionDigits: places, maximumFractionDigits: places })}`;
}
// At a glance: to a cent from a dollar on.
export const cents = (usd) => (usd === null || usd === undefined || Math.abs(usd) < 1 ? money(usd) : money(Number(usd).toFixed(2)));
// With a sign: `+$0.0231`
export const signed = (usd) => (Number(usd) > 0 ? `+${money(usd)}` : money(usd));
// All significant places: `$1.99`, `$0.034712`
export function price(usd) {
  if (usd === null || usd === undefined) return dash;
  const [whole, places = ""] = String(usd).split(".");
  return `$${whole}.${places.replace(/0+$/, "").padEnd(2, "0")}`;
}

export const number = (value) => (value === null || value === undefined ? dash : Number(value).toLocaleString("en-US"));
// `1 run`, `2 runs`
export const count = (value, noun, plural = `${noun}s`) => `${number(value)} ${value === 1 ? noun : plural}`;
export const short = (id) => (id ? id.slice(0, 8) : dash);
export const called = (run) => run.name || run.provider_id || run.run_id;
