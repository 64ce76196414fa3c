// The kernel form: a problem, pasted source, a GPU, and what to do with it.
import { get } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { number } from "../../core/words.js";
import { Empty, Problem } from "../../ui/all.js";
import { sizes, time } from "../kernels/words.js";
import { useDraft } from "./drafts.js";
import { Choice, Radios } from "./fields.js";
import { Source } from "./source.js";

const DOES = {
  benchmark: ["Test and benchmark", "checks the results, then measures"],
  checker: ["Test only", "checks the results"],
};
const FIELDS = ["solution_code", "problem", "problem_def", "gpu_type", "dtype", "endpoint"];
const FIRST = { problem: "", gpu: "", dtype: "", endpoint: "", sources: {} };

// What can be submitted: {problems, dtypes, endpoints, gpus: [[name, label]]}.
export function useOffered() {
  const [offered, setOffered] = useState(null);
  const [error, setError] = useState(null);
  useEffect(() => {
    const { signal } = new AbortController();
    Promise.all([get("/api/amd/problems", { signal }), get("/api/offers", { signal }).catch(() => ({ gpus: [] }))]).then(
      ([found, offers]) => setOffered({ ...found, gpus: found.gpus.map((gpu) => [gpu.gpu ?? gpu, labelOf(gpu, offers.gpus)]) }), setError);
  }, []);
  return [offered, error];
}

// The label of the recorded offer (`AMD MI300X (192GB, $1.99/hr)`); without one the model's name.
function labelOf(gpu, offers) {
  const name = gpu.gpu ?? gpu;
  const fits = offers.filter((one) => one.gpu === name);
  return (fits.find((one) => one.count === 1) ?? fits[0])?.label ?? gpu.label ?? name;
}

export function KernelForm({ offered, unknown, busy, error, onSubmit }) {
  const [draft, setDraft] = useDraft("kernel", FIRST);
  if (unknown) return html`<${Problem} error=${unknown} />`;
  const problem = offered.problems.find((one) => one.problem === draft.problem) ?? offered.problems[0];
  if (!problem) return html`<section class="panel"><${Empty} title="No problems available">Submit a command instead.<//></section>`;
  if (offered.refused) return html`<section class="panel"><${Empty} title="No kernels can be submitted here">${offered.refused}<//></section>`;
  const source = draft.sources[problem.problem] ?? "";
  const setSource = (text) => setDraft({ sources: { ...draft.sources, [problem.problem]: text } });
  const pick = (value, among) => (among.includes(value) ? value : among[0]);
  const gpu = pick(draft.gpu, offered.gpus.map(([name]) => name));
  const dtypes = problem.problem_def?.dtypes?.length ? problem.problem_def.dtypes : offered.dtypes;
  const dtype = pick(draft.dtype, dtypes);
  const endpoint = pick(draft.endpoint, offered.endpoints);
  const field = error?.field?.split(/[.[]/)[0];
  const wrong = (...names) => (names.includes(field) ? error.detail : null);
  const submit = (event) => {
    event.preventDefault();
    onSubmit({ solution_code: source, problem: problem.problem, problem_def: problem.problem_def, gpu_type: gpu, dtype, language: "hip", endpoint });
  };
  return html`<form class="panel form" onSubmit=${submit} noValidate>
    <${Choice} label="Problem" value=${problem.problem} onInput=${(value) => setDraft({ problem: value })} error=${wrong("problem", "problem_def")}
      options=${offered.problems.map((one) => [one.problem, one.title])} hint=${[problem.problem_def?.description, ...(problem.work ?? []).map((one) => workOf(one, gpu))].join(" ")} />
    <${Source} label="Source" value=${source} onInput=${setSource} error=${wrong("solution_code")} hint=${signatureOf(problem.problem_def, dtype)} />
    <div class="bar">${problem.example && source !== problem.example && html`<button type="button" class="button small" onClick=${() => setSource(problem.example)}>${source ? "Replace with the example" : "Start from the example"}</button>`}
      ${source && html`<button type="button" class="button small" onClick=${() => setSource("")}>Clear</button>`}</div>
    <div class="form-row"><${Choice} label="GPU" value=${gpu} options=${offered.gpus} onInput=${(value) => setDraft({ gpu: value })} error=${wrong("gpu_type")} />
      <${Choice} label="Data type" value=${dtype} options=${dtypes.map((name) => [name, name])} onInput=${(value) => setDraft({ dtype: value })} error=${wrong("dtype")} /></div>
    <${Radios} legend="What to do" value=${endpoint} error=${wrong("endpoint")} onInput=${(value) => setDraft({ endpoint: value })} options=${offered.endpoints.map((name) => [name, ...(DOES[name] ?? [name])])} />
    ${error && !FIELDS.includes(field) && html`<${Problem} error=${error} />`}
    <div class="bar"><button type="submit" class="button primary" disabled=${busy}>${busy ? "Submitting …" : "Submit"}</button><span class="dim">${offered.isolated ? "This may start a machine, which is billed from then on." : "The kernel runs as the service's user on this machine, not isolated. Submit only your own code."}</span></div></form>`;
}

const TYPES = { float32: "float", float64: "double", float16: "__half", bfloat16: "__hip_bfloat16", int32: "int" };
const SCALARS = { float32: "float", float64: "double", float16: "float", bfloat16: "float", int32: "int" };

// What one call of a benchmark needs at least.
function workOf({ sizes: at, dtype, bytes, operations, floor_ms: floors }, gpu) {
  const does = operations ? `, ${number(operations)} operations` : "";
  const least = floors[gpu] ? ` ${gpu} needs ${time(floors[gpu])} or more.` : "";
  return `A call of ${sizes({ sizes: at })} in ${dtype}: ${(bytes / 1e6).toFixed(1)} MB${does}.${least}`;
}

// What the source has to define, as C++ writes it.
function signatureOf(definition, dtype) {
  const signature = definition?.signature;
  if (!signature) return null;
  const parts = [
    ...signature.inputs.map((one) => `const ${TYPES[one.dtype ?? dtype]}* ${one.name}`), ...signature.outputs.map((one) => `${TYPES[dtype]}* ${one.name}`),
    ...(signature.parameters ?? []).map((name) => `${SCALARS[dtype]} ${name}`), ...signature.sizes.map((name) => `size_t ${name}`),
  ];
  return html`Define <code>extern "C" void ${signature.function ?? "solution"}(${parts.join(", ")})</code>.`;
}
