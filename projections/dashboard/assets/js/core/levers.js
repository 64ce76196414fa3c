// Levers: orders to the controller that stay in force until they are released.
import { del, post } from "./api.js";
import { useData } from "./data.js";
import { useAt } from "./moment.js";
import { store } from "./store.js";

const PATH = "/api/levers";
const SCOPE = ["user", "gpu", "source", "state"];

// `scope`: what it can be restricted to; `lasting`: it ends by itself if told for how long, and `must` be told.
export const LEVERS = {
  pause: { verb: "Pause", text: "New runs wait until the lever is released; what runs goes on.", scope: ["user", "gpu", "source"], lasting: true, yes: "Pause" },
  drain: { verb: "Drain", text: "No new run starts; what runs ends, and its machines with it.", scope: ["source"], lasting: true, yes: "Drain" },
  stop: { verb: "Stop", text: "Every run that it covers is stopped. Costs so far remain.", scope: ["user", "gpu", "source"], danger: true, yes: "Stop them" },
  keep: { verb: "Keep", text: "The machine is not ended when it is idle. It is billed all the time.", scope: [], lasting: true, must: true, yes: "Keep it" },
};

// States of a machine in which it can be kept: it is there, and nobody ends it.
export const KEEPABLE = ["requested", "provisioning", "busy", "idle", "draining"];

// The lever that is about to be pulled: {action, user?, gpu?, source?, state?, vm_id?, name?}; null: none.
export const offered = store(null);
export const offer = (lever) => offered.set(lever);

// `Pause: user ada, GPU MI300X`
export function named(lever, name = lever.name) {
  const parts = SCOPE.filter((key) => lever[key]).map((key) => `${key === "gpu" ? "GPU" : key} ${lever[key]}`);
  if (lever.vm_id) parts.push(`machine ${name ?? lever.machines?.[0] ?? lever.vm_id.slice(0, 8)}`);
  return `${LEVERS[lever.action]?.verb ?? lever.action}: ${parts.join(", ") || "everything"}`;
}

export function useLevers() {
  const live = useAt() === null;
  return useData(live ? PATH : null, { every: 5000 });
}

// A service without levers answers 404 or 405.
const sent = (answer) => answer.catch((problem) => {
  if ([404, 405].includes(problem.status) && !/lever/i.test(problem.detail ?? "")) problem.detail = "This service has no levers: update it, then reload the page.";
  throw problem;
});

const body = ({ name: _, ...lever }) => Object.fromEntries(Object.entries(lever).filter(([, value]) => value));
export const preview = (lever) => sent(post(PATH, { ...body(lever), preview: true }));
export const pull = (lever, key) => sent(post(PATH, body(lever), { "Idempotency-Key": key }));
export const release = (lever) => sent(del(`${PATH}/${encodeURIComponent(lever.lever_id)}`));
