// The plain form: commands, an image, a GPU, a longest duration. What most runs are.
import { get, post } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { navigate } from "../../core/router.js";
import { Problem } from "../../ui/all.js";
import { useDraft } from "./drafts.js";
import { Choice, Lines, Text } from "./fields.js";

const FIRST = { name: "", commands: "", image: "", gpu: "", longest: "1h", key: null };
const FIELDS = ["name", "commands", "image", "resources", "max_duration"];

export function CommandForm() {
  const [draft, setDraft] = useDraft("command", FIRST);
  const [gpus, setGpus] = useState([]);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  useEffect(() => {
    get("/api/offers").then((offers) => setGpus(offers.gpus)).catch(() => setGpus([]));
  }, []);
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
        options=${[["", "Default"], ["none", "None"], ...gpus.map((one) => [`${one.gpu}:${one.count}`, one.label])]} />
      <${Text} label="Image" optional value=${draft.image} onInput=${(image) => setDraft({ image })} error=${wrong("image")} placeholder="rocm/pytorch:latest" mono
        hint="Container image; AMD GPUs need one." />
    </div>
    ${error && !FIELDS.includes(field) && html`<${Problem} error=${error} />`}
    <div class="bar"><button type="submit" class="button primary" disabled=${busy}>${busy ? "Submitting …" : "Submit"}</button>
      <span class="dim">This may start a machine, which is billed from then on.</span></div>
  </form>`;
}

// Checks without a request.
function wrongIn({ commands, name }) {
  if (!commands.trim()) return { field: "commands", detail: "Write at least one command." };
  if (name.trim() && !/^[a-z][a-z0-9-]{1,40}$/.test(name.trim())) {
    return { field: "name", detail: "Invalid name: use 2–41 of a–z, 0–9 and -; start with a letter." };
  }
  return null;
}

function asked(draft) {
  const configuration = { type: "task", commands: draft.commands.split("\n").map((line) => line.trimEnd()).filter(Boolean) };
  if (draft.image.trim()) configuration.image = draft.image.trim();
  if (draft.longest.trim()) configuration.max_duration = draft.longest.trim();
  if (draft.gpu === "none") configuration.resources = { gpu: 0 };
  else if (draft.gpu) configuration.resources = { gpu: draft.gpu };
  return { ...(draft.name.trim() ? { name: draft.name.trim() } : {}), configuration };
}

// `configuration.commands[0]` → `commands`
const placed = (field) => (field ?? "").replace(/^configuration\.?/, "").split(/[.[]/)[0];

const fresh = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
