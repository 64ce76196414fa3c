// A run as a draft of the form: what Steno was asked for, else what its provider shows.
import { get } from "../../core/api.js";
import { called } from "../../core/words.js";

export async function copied(id) {
  const path = `/api/runs/${encodeURIComponent(id)}`;
  const [run, asked] = await Promise.all([get(path), get(`${path}/request`)]);
  return { name: called(run), draft: draftOf(asked.configuration ?? shownBy(run.ran), asked.name) };
}

const shownBy = ({ command, image, gpu_asked: gpu }) => ({ commands: command?.split("\n") ?? [], ...(image ? { image } : {}), ...(gpu ? { resources: { gpu } } : {}) });

// Fields of the form, and under `base` what it has no field for.
export function draftOf({ type: _, name: __, commands, image, max_duration: longest, env, resources, ...base }, name) {
  const { gpu, memory, ...others } = resources ?? {};
  const simple = (value) => typeof value === "string" || typeof value === "number";
  const kept = { ...others, ...(gpu === undefined || simple(gpu) ? {} : { gpu }), ...(memory === undefined || simple(memory) ? {} : { memory }) };
  return {
    name: name ?? "", commands: (commands ?? []).join("\n"), image: image ?? "", longest: simple(longest) ? String(longest) : "",
    gpu: !simple(gpu) ? "" : gpu === 0 || gpu === "0" || gpu === "none" ? "none" : String(gpu), memory: simple(memory) ? String(memory) : "",
    env: variables(env).join("\n"), base: Object.keys(kept).length ? { ...base, resources: kept } : base,
  };
}

// Values that are not recorded are left out: the form asks for them.
function variables(env) {
  if (Array.isArray(env)) return env;
  return Object.entries(env ?? {}).map(([name, value]) => (String(value).startsWith("steno:secret:") ? name : `${name}=${value}`));
}
