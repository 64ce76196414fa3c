// Runs that failed since somebody looked, as this browser knows it.
import { about, useData } from "./data.js";
import { keep, kept } from "./kept.js";
import { useAt } from "./moment.js";
import { store, useStore } from "./store.js";
import { ms } from "./words.js";

const FIRST = 24 * 3600e3; // milliseconds before the first visit that count as not looked at
const MOST = 200; // runs looked at one by one

const first = { since: Date.now() - FIRST, ids: [] };
const known = kept("looked", first);
const looked = store(typeof known.since === "number" && Array.isArray(known.ids) ? known : first);
if (looked.get() === first) keep("looked", first);
looked.listen((value) => keep("looked", value));

export function lookAt(runs) {
  const { since, ids } = looked.get();
  const more = runs.map((run) => run.run_id).filter((id) => !ids.includes(id));
  if (more.length) looked.set({ since, ids: [...ids, ...more].slice(-MOST) });
}

export function useFailures() {
  const live = useAt() === null;
  const { data } = useData(live ? "/api/runs?state=failed&limit=50" : null, { on: about.runs, every: 5000 });
  const { since, ids } = useStore(looked);
  return live && data ? data.runs.filter((run) => !run.archive && ms(run.finished_at) > since && !ids.includes(run.run_id)) : [];
}
