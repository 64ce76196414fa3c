// The output of a run: live, followed, coloured, searched, downloaded. From its provider, or from the record.
import { classes, html, useEffect, useMemo, useRef, useState } from "../../core/dom.js";
import { useKept } from "../../core/kept.js";
import { goTo } from "../../core/moment.js";
import { count, number } from "../../core/words.js";
import { Empty, Problem } from "../../ui/all.js";
import { useOutput } from "./output.js";
import { Recorded } from "./recorded.js";
import { cut, hitsOf } from "./terminal.js";

const SEARCHED = 80; // characters of the line that explains the end
const SAID = { asking: "Asking the provider …", reading: "Live", done: "Complete", failed: "Output unavailable" };

// `line`: that which explains the run's end; a button finds it.
export function Logs({ run, open, past, line }) {
  if (!past) return html`<${Live} key=${run.run_id} run=${run} open=${open} line=${line} />`;
  return html`<section class="panel"><${Empty} title="No output for past moments">Output is shown as it is now.
    <div><button type="button" class="button small" onClick=${() => goTo(null)}>Back to live</button></div><//></section>`;
}

function Live({ run, open, line }) {
  const path = `/api/runs/${encodeURIComponent(run.run_id)}/logs`;
  const { lines, dropped, long, state, error, again } = useOutput(path, open, Boolean(run.kernel));
  const [follow, setFollow] = useState(true);
  const [wrap, setWrap] = useKept("wrap", true);
  const box = useRef(null);
  const find = useFind(lines, box, () => setFollow(false));
  useEffect(() => {
    if (follow && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [lines, follow, wrap]);
  const scrolled = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current;
    setFollow(scrollHeight - scrollTop - clientHeight < 30);
  };
  const empty = lines.length === 0 && state === "done";
  return html`<section class="panel flush output" aria-label="Output"><div class="bar head"><span role="status" class=${`output-state ${state}`}>${SAID[state]}</span><${Find} find=${find} />${line && html`<button type="button" class="button small" onClick=${() => find.search(line.replace(/\u001b\[[0-9;]*[A-Za-z]/g, "").trim().slice(0, SEARCHED))}>Find the cause</button>`}<span class="spring"></span>
      <label class="check"><input type="checkbox" checked=${follow} onChange=${(event) => setFollow(event.target.checked)} /> Follow</label>
      <label class="check"><input type="checkbox" checked=${wrap} onChange=${(event) => setWrap(event.target.checked)} /> Wrap</label>
      <a class="button small" href=${path} download=${`${run.name ?? run.run_id}.log`}>Download</a></div>
    <${Problem} error=${error} retry=${again} />
    ${(dropped > 0 || long) && html`<p class="note dim">${dropped > 0 ? `The last ${count(lines.length, "line")} of ${number(lines.length + dropped)}` : "Long lines are cut"}; the download has everything.</p>${find.words && html`<${Recorded} run=${run} words=${find.words} />`}`}
    ${!empty && html`<pre ref=${box} class=${wrap ? "wrap" : ""} tabindex="0" role="log" aria-live="off" aria-label="Output of the run" onScroll=${scrolled}>${lines.map((line, place) => find.at.has(place) ? marked(line, find, place) : drawn(line))}</pre>`}
    ${empty && html`<${Empty} title="No output">${run.kernel ? "The program printed nothing; its results are above." : "The run printed nothing, or its provider no longer has it."}<//>`}</section>`;
}

// A line is drawn once: the same element is not looked at again.
function drawn(line) {
  line.element ??= html`<span key=${line.id}>${line.parts.map(({ css, text }) => (css ? html`<span class=${css}>${text}</span>` : text))}${more(line)}${"\n"}</span>`;
  return line.element;
}

const marked = (line, { hits, at, chosen }, place) => html`<span key=${line.id}>${cut(line, at.get(place).map((index) => hits[index]), at.get(place)[0]).map(({ css, text, hit }) => (hit === null
  ? html`<span class=${css}>${text}</span>` : html`<mark class=${classes(css, hit === chosen && "chosen")}>${text}</mark>`))}${more(line)}${"\n"}</span>`;

const more = (line) => (line.long ? html`<span class="t-faint"> … ${count(line.long, "more character")}</span>` : "");

// The hits of what is searched, the chosen one, and how to go on.
function useFind(lines, box, onGo) {
  const [words, setWords] = useState("");
  const [chosen, choose] = useState(0);
  const hits = useMemo(() => hitsOf(lines, words), [lines, words]);
  const at = useMemo(() => {
    const found = new Map();
    hits.forEach(({ line }, index) => found.set(line, [...(found.get(line) ?? []), index]));
    return found;
  }, [hits]);
  const show = (index) => {
    choose(index);
    onGo();
    requestAnimationFrame(() => box.current?.querySelector("mark.chosen")?.scrollIntoView({ block: "center" }));
  };
  const search = (text) => {
    setWords(text);
    if (hitsOf(lines, text).length) show(0);
  };
  const go = (step) => { if (hits.length) show((chosen + step + hits.length) % hits.length); };
  return { words, search, hits, at, chosen, go };
}

function Find({ find: { words, search, hits, chosen, go } }) {
  const key = (event) => {
    if (event.key === "Enter") { event.preventDefault(); go(event.shiftKey ? -1 : 1); }
    if (event.key === "Escape") search("");
  };
  const said = !words ? "" : hits.length ? `${number(Math.min(chosen, hits.length - 1) + 1)} of ${number(hits.length)}` : "not found";
  return html`<span class="find" role="search"><input class="input" type="search" data-filter aria-label="Find in the output" placeholder="Find" title="Enter: next, Shift and Enter: previous, Esc: end" spellcheck="false" value=${words}
      onInput=${(event) => search(event.target.value)} onKeyDown=${key} />
    <button type="button" class="button small" aria-label="Previous find" title="Previous" disabled=${!hits.length} onClick=${() => go(-1)}>↑</button>
    <button type="button" class="button small" aria-label="Next find" title="Next" disabled=${!hits.length} onClick=${() => go(1)}>↓</button>
    <span class="found dim" role="status">${said}</span></span>`;
}
