// The plain form: commands, an image, a GPU, a longest duration. What most runs are.
import { get, post } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { navigate, setQuery, useQuery } from "../../core/router.js";
import { Problem, toast } from "../../ui/all.js";
import { copied } from "./copied.js";
import { fresh, useDraft } from "./drafts.js";
import { Choice, Lines, Text } from "./fields.js";

const FIRST = { name: "", commands: "", image: "", gpu: "", memory: "", longest: "1h", env: "", base: {}, key: null };
const FIELDS = ["name", "commands", "image", "resources", "max_duration", "env"];

export function CommandForm() {
  const [draft, setDraft] = useDraft("command", FIRST);
  const [gpus, setGpus] = useState([]);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    get("/api/offers").then((offers) => setGpus(offers.gpus)).catch(() => setGpus([]));
  }, []);
  const [copy] = useQuery("copy");
  useEffect(() => {
    if (copy === null) return;
    copied(copy).then(({ name, draft: part }) => { setDraft({ ...FIRST, ...part }); toast(`Filled in from ${name}. Nothing is submitted yet.`); }, setError)
      .finally(() => setQuery({ copy: null }));
  }, [copy]);
  const further = Object.keys(draft.base);
  const choices = [["", "Default"], ["none", "None"], ...gpus.map((one) => [`${one.gpu}:${one.count}`, one.label])];
  const field = error ? placed(error.field) : null;
  const wrong = (name) => (field === name ? error.detail : null);
  const submit = async (event) => {
    event.preventDefault();
    const missing = wrongIn(draft);
    if (missing) return setError(missing);
    setBusy(true);
    setError(null);
    try {
      // A draft sent again after a lost answer is the same run.
      const body = JSON.stringify(asked(draft));
      const key = draft.key?.body === body ? draft.key : { body, value: fresh() };
      setDraft({ key });
      const answer = await post("/api/runs", asked(draft), { "Idempotency-Key": key.value });
      setDraft({ ...draft, key: null });
      toast(null); // what it says of the form holds no longer
      navigate(`/runs/${encodeURIComponent(answer.run_id)}`);
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
    return undefined;
  };
  return html`<form class="panel form" onSubmit=${submit} noValidate>
    <${Lines} label="Commands" value=${draft.commands} onInput=${(commands) => setDraft({ commands })} error=${wrong("commands")} rows="5"
      placeholder=${"python train.py --epochs 3"} hint="One per line; a shell runs them in order." />
    <div class="form-row">
      <${Text} label="Name" optional value=${draft.name} onInput=${(name) => setDraft({ name })} error=${wrong("name")} placeholder="generated" mono
        hint="a–z, 0–9 and -." />
      <${Text} label="Longest duration" value=${draft.longest} onInput=${(longest) => setDraft({ longest })} error=${wrong("max_duration")} placeholder="1h" mono
        hint="30m, 2h, 1d: the run is stopped after that." />
    </div>
    <div class="form-row">
      <${Choice} label="GPU" value=${draft.gpu} onInput=${(gpu) => setDraft({ gpu })} error=${wrong("resources")}
        options=${choices.some(([value]) => value === draft.gpu) ? choices : [...choices, [draft.gpu, draft.gpu]]} />
      <${Text} label="Memory" optional value=${draft.memory} onInput=${(memory) => setDraft({ memory })} placeholder="any" mono
        hint="32GB, 16GB.., 16GB..64GB." />
    </div>
    <div class="form-row">
      <${Text} label="Image" optional value=${draft.image} onInput=${(image) => setDraft({ image })} error=${wrong("image")} placeholder="rocm/pytorch:latest" mono
        hint="Container image; AMD GPUs need one." />
      <${Lines} label="Environment" optional value=${draft.env} onInput=${(env) => setDraft({ env })} error=${wrong("env")} rows="2" placeholder="SEED=1"
        hint="One NAME=value per line. Values are kept out of the record." />
    </div>
    ${further.length > 0 && html`<p class="note dim">Also copied: ${further.map((name) => html`<code>${name}</code> `)}<button type="button" class="button small" onClick=${() => setDraft({ base: {} })}>Leave out</button></p>`}
    ${error && !FIELDS.includes(field) && html`<${Problem} error=${error} />`}
    <div class="bar"><button type="submit" class="button primary" disabled=${busy}>${busy ? "Submitting …" : "Submit"}</button>
      <span class="dim">This may start a machine, which is billed from then on.</span></div>
  </form>`;
}

// Checks without a request.
function wrongIn({ commands, name, env }) {
  if (!commands.trim()) return { field: "commands", detail: "Write at least one command." };
  if (name.trim() && !/^[a-z][a-z0-9-]{1,40}$/.test(name.trim())) {
    return { field: "name", detail: "Invalid name: use 2–41 of a–z, 0–9 and -; start with a letter." };
  }
  const bare = linesOf(env).find((line) => !/^[A-Za-z_]\w*=/.test(line));
  if (bare) return { field: "env", detail: /^[A-Za-z_]\w*$/.test(bare) ? `Write a value for ${bare}: ${bare}=value.` : `Write NAME=value, not ${bare.slice(0, 40)}` };
  return null;
}

const linesOf = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);

function asked(draft) {
  const configuration = { ...draft.base, type: "task", commands: draft.commands.split("\n").map((line) => line.trimEnd()).filter(Boolean) };
  if (draft.image.trim()) configuration.image = draft.image.trim();
  if (draft.longest.trim()) configuration.max_duration = draft.longest.trim();
  const resources = { ...draft.base.resources, ...(draft.gpu ? { gpu: draft.gpu === "none" ? 0 : draft.gpu } : {}), ...(draft.memory.trim() ? { memory: draft.memory.trim() } : {}) };
  if (Object.keys(resources).length) configuration.resources = resources;
  if (linesOf(draft.env).length) configuration.env = linesOf(draft.env);
  return { ...(draft.name.trim() ? { name: draft.name.trim() } : {}), configuration };
}

// `configuration.commands[0]` → `commands`
const placed = (field) => (field ?? "").replace(/^configuration\.?/, "").split(/[.[]/)[0];
