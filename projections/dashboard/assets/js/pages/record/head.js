// The newest position and the hash that covers everything up to it: what `steno verify --expect` takes.
import { useData } from "../../core/data.js";
import { html, useState } from "../../core/dom.js";
import { navigate } from "../../core/router.js";
import { number } from "../../core/words.js";
import { Problem, Time } from "../../ui/all.js";
import { CopyButton } from "./copy.js";

export function Head() {
  const { data, error } = useData("/api/record", { every: 3000 });
  const [wanted, setWanted] = useState("");
  const go = (event) => {
    event.preventDefault();
    const position = Number(wanted.replace(/[,\s#]/g, ""));
    if (Number.isInteger(position) && position > 0) navigate(`/record/${position}`);
  };
  if (error && !data) return html`<${Problem} error=${error} />`;
  return html`<section class="panel record-head" aria-label="Head of the record"><dl class="facts">
      <dt>head</dt><dd>${data ? html`position <strong>${number(data.position)}</strong>, <${Time} at=${data.last_at} />` : "–"}</dd>
      <dt>hash</dt><dd class="hash"><code>${data?.hash ?? "–"}</code>${data?.hash && html`<${CopyButton} text=${() => `${data.position}:${data.hash}`} label="Copy for verify" />`}</dd>
      <dt>record</dt><dd><code>${data?.record_id ?? "–"}</code>${data?.first_at && html` <span class="dim">since <${Time} at=${data.first_at} /></span>`}</dd></dl>
    <form class="go" onSubmit=${go}><label><span class="hidden-text">Go to a position</span>
      <input class="input" inputmode="numeric" placeholder="position" autocomplete="off" value=${wanted} onInput=${(event) => setWanted(event.target.value)} /></label>
      <button class="button" type="submit">Open</button></form></section>`;
}
