// A moment that cannot be shown, in words, and the ways on.
import { html } from "../core/dom.js";
import { goTo, problem, useMoment, useRecord, utc } from "../core/moment.js";
import { useStore } from "../core/store.js";
import { ms, number, told as moment } from "../core/words.js";
import { PageHead } from "../ui/notes.js";

const HOW = "Write a time of your zone, as 2026-11-20 15:00, 15:00 or yesterday 9:00 (with Z: of UTC), 10m for ten minutes ago, or a position.";

// Why nothing can be shown of `at`; `record`: its facts, null: not known.
export function said(at, record) {
  const text = at.trim();
  if (/^0+$/.test(text)) return "Positions are counted from 1.";
  if (/^\d+$/.test(text)) return record ? `Position ${number(text)} does not exist: the record ends at position ${number(record.position)}.` : `Position ${number(text)} does not exist.`;
  const zone = /\d\d:\d\d(?::\d\d(?:\.\d+)?)? ?([A-Za-z][A-Za-z/_+-]*|[+-][\d:]+)$/.exec(text)?.[1];
  if (zone && zone.toUpperCase() !== "Z" && Number.isNaN(utc(text))) return `The zone “${zone}” is not known: write Z for UTC, or an offset such as +02:00.`;
  const time = utc(text);
  if (!/^\d{4}-/.test(text) || Number.isNaN(time)) return `“${text.slice(0, 60)}” is not a time or a position. ${HOW}`;
  if (record?.first_at && time < ms(record.first_at)) return `The record begins at ${moment(record.first_at)}; nothing is known of ${moment(time)}.`;
  return time > Date.now() ? `${moment(time)} is in the future.` : null;
}

// The words for the moment shown, if it cannot be; null if it can, or while that is not known.
export function useUnshowable() {
  const at = useMoment();
  const record = useRecord();
  const wrong = useStore(problem);
  if (at.at === null || at.dragging) return null;
  if (wrong?.at === at.at) return wrong.error.status === 400 ? said(at.at, record) ?? wrong.error.detail : null;
  return at.position === 0 && record?.first_at ? `The record begins at ${moment(record.first_at)}; nothing is known of before.` : null;
}

export function Unshowable({ why }) {
  const record = useRecord();
  return html`<${PageHead} title="No such moment" /><div class="problem" role="alert"><strong>This moment cannot be shown</strong><span>${why}</span>
    <div class="bar">${record?.position > 0 && html`<button type="button" class="button small" onClick=${() => goTo(1, { time: ms(record.first_at), push: true })}>First moment of the record</button>`}
      <button type="button" class="button small" onClick=${() => goTo(null)}>Now</button></div></div>`;
}
