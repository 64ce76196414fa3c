// The words for a run's end, equal to the command line's.
import { duration, money, ms } from "../../core/words.js";

export const STATES = [
  "requested", "queued", "provisioning", "pulling", "running", "finishing", "succeeded", "failed", "stopped", "lost",
];

const TERMINAL = new Set(["succeeded", "failed", "stopped"]);
export const ended = (run) => TERMINAL.has(run.state) || Boolean(run.archive); // of an archive nothing goes on

// `exit_nonzero · exit 1`: the text beside the state.
export const because = (run) => [run.reason, exitOf(run)].filter(Boolean).join(" · ");
const exitOf = (run) => (run.exit_status === null || run.exit_status === undefined ? null : `exit ${run.exit_status}`);

// Whether Steno's cost is known, and not the zero of a free machine.
export const costs = (run) => run.cost_usd !== null && (run.provider !== "local" || Number(run.cost_usd) !== 0);

// `cost $0.0535, dstack says $0.0347`
export function paid(run) {
  const theirs = run.provider === "local" ? null : run.provider_cost_usd;
  if (!costs(run)) return theirs === null ? "" : `${run.provider} says it cost ${money(theirs)}`;
  return theirs === null ? `cost ${money(run.cost_usd)}` : `cost ${money(run.cost_usd)}, ${run.provider} says ${money(theirs)}`;
}

// What it waits for at its provider, as text.
export const waits = ({ waits }) => {
  if (!waits) return "";
  const until = waits.starts_by && `expected to start by ${waits.starts_by.slice(0, 16).replace("T", " ")}Z`;
  return [`${waits.never ? "never runs as it is: " : ""}${waits.why}`, waits.remedy, until].filter(Boolean).join("; ");
};

export const seconds = (value) => (value === null || value === undefined ? "–" : duration(value * 1000));

// The time of day to the tenth of a second, UTC.
export const hour = (at) => `${new Date(ms(at)).toISOString().slice(11, 21)}Z`;

export const lasted = (from, to) => duration(ms(to) - ms(from));
