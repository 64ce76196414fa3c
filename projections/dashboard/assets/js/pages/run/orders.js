// What is done to one run, and to several: stop, and run again.
import { get, post } from "../../core/api.js";
import { called, money } from "../../core/words.js";
import { confirm, toast } from "../../ui/all.js";
import { fresh } from "../submit/drafts.js";
import { ended } from "./words.js";

export const pathOf = (run) => `/api/runs/${encodeURIComponent(run.run_id)}`;

// What runs have cost so far, as a sentence's end: `$1.20 so far`, or null if no cost is known.
export function spentOn(runs) {
  const known = runs.map((run) => run.cost_usd).filter((usd) => (usd ?? null) !== null);
  return known.length ? money(known.reduce((sum, usd) => sum + Number(usd), 0).toFixed(6)) : null;
}

const NAMED = 6; // runs named one by one
const names = (runs) => runs.slice(0, NAMED).map(called).join(", ") + (runs.length > NAMED ? ` and ${runs.length - NAMED} more` : "");

// `runs`, stopped one after the other once they are confirmed; whether it was tried.
export async function stopAll(runs, { abort = false } = {}) {
  const verb = abort ? "Abort" : "Stop";
  const what = runs.length === 1 ? called(runs[0]) : `${runs.length} runs`;
  const gone = runs.filter(ended);
  if (gone.length) { toast(`${names(gone)} ${gone.length === 1 ? "has" : "have"} ended already: nothing was stopped.`); return false; }
  const spent = spentOn(runs);
  const text = `${runs.length > 1 ? `${names(runs)}. ` : ""}${abort ? "The provider stops at once; a task cannot clean up." : "The provider stops; a task may clean up first."} ${spent === null ? "Costs so far remain." : `The cost so far, ${spent}, remains.`}`;
  if (!(await confirm({ title: `${verb} ${what}?`, text, yes: runs.length === 1 ? `${verb} it` : `${verb} them`, no: runs.length === 1 ? "Keep it" : "Keep them", danger: true }))) return false;
  const wrong = [];
  let asked = null;
  for (const run of runs) {
    try {
      const answer = await post(`${pathOf(run)}/stop`, abort ? { abort } : {});
      if (answer.asked === false) wrong.push(`${called(run)} is already ${answer.state}`);
      else asked = answer;
    } catch (problem) { wrong.push(`${called(run)}: ${problem.detail ?? problem.message}`); }
  }
  const done = runs.length - wrong.length;
  const said = runs.length === 1 ? `${verb} of ${what} requested at position ${asked?.position}` : `${verb} of ${done} runs requested`;
  toast([...(done ? [said] : []), ...wrong].join("; ") + ".");
  return true;
}

// `runs`, submitted again as they were; none of them if one of them cannot be.
export async function repeatAll(runs) {
  const wrong = [];
  for (const run of runs) {
    try {
      const { refused, needs } = await get(`${pathOf(run)}/request`);
      if (refused) wrong.push(refused);
      else if (needs.length) wrong.push(`${called(run)} needs the value of ${needs.join(", ")}: run it again from its page`);
    } catch (problem) { wrong.push(`${called(run)}: ${problem.detail ?? problem.message}`); }
  }
  if (wrong.length) { toast(`Nothing was submitted: ${wrong.join("; ")}.`); return false; }
  const spent = spentOn(runs);
  const text = `${names(runs)}. ${spent === null ? "" : `They cost ${spent} before. `}This may start machines, which are billed from then on.`;
  if (!(await confirm({ title: `Run ${runs.length === 1 ? called(runs[0]) : `${runs.length} runs`} again?`, text, yes: "Run again", no: "Cancel" }))) return false;
  const done = [];
  try {
    for (const run of runs) done.push((await post(`${pathOf(run)}/rerun`, {}, { "Idempotency-Key": fresh() })).name);
    toast(`Submitted: ${done.join(", ")}.`);
  } catch (problem) {
    const left = runs.slice(done.length);
    toast(`${done.length ? `Submitted: ${done.join(", ")}. ` : ""}Not submitted: ${names(left)}: ${problem.detail ?? problem.message}`);
  }
  return true;
}
