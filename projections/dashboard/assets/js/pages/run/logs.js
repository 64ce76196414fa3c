// The output of a run as its provider gives it: live, followed, wrapped, downloaded. Steno keeps no output.
import { html, useEffect, useMemo, useRef, useState } from "../../core/dom.js";
import { goTo } from "../../core/moment.js";
import { Empty, Problem } from "../../ui/all.js";
import { useOutput } from "./output.js";

const SAID = { asking: "Asking the provider …", reading: "Live", done: "Complete", failed: "Output unavailable" };

export function Logs({ run, open, past }) {
  if (!past) return html`<${Live} key=${run.run_id} run=${run} open=${open} />`;
  return html`<section class="panel"><${Empty} title="No output for past moments">Output comes from the provider and is not recorded.
    <div><button type="button" class="button small" onClick=${() => goTo(null)}>Back to live</button></div><//></section>`;
}

function Live({ run, open }) {
  const path = `/api/runs/${encodeURIComponent(run.run_id)}/logs`;
  const { text, cut, state, error, again } = useOutput(path, open);
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useState(() => localStorage.getItem("steno.wrap") !== "no");
  const box = useRef(null);
  const shown = useMemo(() => plain(text), [text]);
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [shown, follow, wrap]);
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setFollow(scrollHeight - scrollTop - clientHeight < 30);
  };
  const wrapped = (event) => {
    setWrap(event.target.checked);
    localStorage.setItem("steno.wrap", event.target.checked ? "yes" : "no");
  };
  return html`<section class="panel flush output" aria-label="Output"><div class="bar head"><span role="status" class=${`output-state ${state}`}>${SAID[state]}</span><span class="spring"></span>
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> Follow</label>
      <label class="check"><input type="checkbox" checked=${wrap} onChange=${wrapped} /> Wrap</label>
      <a class="button small" href=${path} download=${`${run.name ?? run.run_id}.log`}>Download</a></div>
    <${Problem} error=${error} retry=${again} />
    ${cut && html`<p class="note dim">Only the end is shown; the download contains everything.</p>`}
    <pre ref=${box} class=${wrap ? "wrap" : ""} tabindex="0" role="log" aria-live="off" aria-label="Output of the run" onScroll=${scrolled}>${shown}</pre>
    ${!shown && state === "done" && html`<p class="note dim">No output.</p>`}</section>`;
}

const ESCAPES = /\u001b(\[[0-9;?]*[ -/]*[@-~]|\][^\u0007\u001b]*(\u0007|\u001b\\)|[()][A-Z0-9])/g;

// Without colours; of an overwritten line, only its last text.
const plain = (text) => text.replace(ESCAPES, "").replace(/\r+\n/g, "\n").replace(/[^\n]*\r(?=[^\n])/g, "");
