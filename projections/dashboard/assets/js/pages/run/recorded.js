// The search of the recorded output, for words that are not in the part that the page shows.
import { get, withParams } from "../../core/api.js";
import { html, useState } from "../../core/dom.js";
import { count, number } from "../../core/words.js";
import { Problem } from "../../ui/all.js";
import { Terminal } from "./terminal.js";

const MOST = 50; // lines

export function Recorded({ run, words }) {
  const [answer, setAnswer] = useState({ words: null });
  const path = withParams("/api/output", { search: words, run: run.run_id, limit: MOST });
  const search = () => get(path).then((found) => setAnswer({ words, ...found }), (error) => setAnswer({ words, error }));
  if (answer.words !== words) return html`<p class="note"><button type="button" class="button small" onClick=${search}>Search the recorded output</button></p>`;
  if (answer.error) return html`<${Problem} error=${answer.error} retry=${search} />`;
  const { lines, complete } = answer;
  const said = lines.length ? `${complete ? "" : "The first "}${count(lines.length, "recorded line")}, each with its byte in the output` : "No recorded line contains this; capitals count.";
  return html`<div class="recorded"><p class="note dim" role="status">${said}</p>${lines.length > 0 && html`<pre class="wrap" aria-label="Recorded lines">${lines.map(drawn)}</pre>`}</div>`;
}

function drawn({ offset, text }) {
  const terminal = new Terminal();
  terminal.write(text);
  const parts = terminal.shown().flatMap((line) => line.parts);
  return html`<span key=${offset}><span class="t-faint">${number(offset)}</span> ${parts.map(({ css, text: part }) => (css ? html`<span class=${css}>${part}</span>` : part))}${"\n"}</span>`;
}
