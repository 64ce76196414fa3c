// Several records behind one service: their names, the one in the address (`?record=`), and positions over all of them.
// A position of one record is a number; of all at once a text, `lab:12,farm:30`.
import { createContext } from "./dom.js";
import { query } from "./router.js";

export const records = document.querySelector('meta[name="steno-records"]')?.content.split(",") ?? [];
export const chosen = () => (records.length ? query("record") : null);
// Whether pages show all records at once.
export const all = () => records.length > 0 && chosen() === null;

// A path of the API, of the chosen record; the caller and its tokens are the service's.
export function scoped(path) {
  const one = chosen();
  if (one === null || !path.startsWith("/api/") || /^\/api\/(session|tokens)\b/.test(path)) return path;
  const url = new URL(path, location.origin);
  if (!url.searchParams.has("record")) url.searchParams.set("record", one);
  return url.pathname + url.search;
}

// A position as an answer's header has it.
export const placeOf = (text) => (/^\d+$/.test(text) ? Number(text) : text);
const parts = (position) => new Map(String(position).split(",").map((one) => one.split(":")).map(([name, place]) => [name, Number(place)]));

// The later of two positions; of all records the later of each.
export function newest(a, b) {
  if (!all()) return Math.max(a ?? 0, b ?? 0);
  if (!a || !b) return a || b || 0;
  const found = parts(a);
  for (const [name, place] of parts(b)) found.set(name, Math.max(place, found.get(name) ?? 0));
  return [...found].map(([name, place]) => `${name}:${place}`).join(",");
}
export const isAhead = (a, b) => (all() ? a !== b : a > b);

// Where a mark or an anomaly is: its position, or among all records its time.
export const momentOf = (one) => (all() ? one.at : one.position);

// Shows one record or, with null, all, from the page's beginning.
export function choose(name) {
  const url = new URL(location.href);
  for (const gone of ["at", "cursor", "before", "after", "record"]) url.searchParams.delete(gone);
  if (name) url.searchParams.set("record", name);
  location.assign(url.pathname + url.search);
}

// The record of the run or machine whose page this is: links to its positions need it from the first drawing.
export const PageRecord = createContext(null);
