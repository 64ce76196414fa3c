// The name of a stream, as a link to what it is about.
import { html } from "../../core/dom.js";
import { Link } from "../../core/router.js";
import { streamPage } from "./data.js";

const short = (name) => (streamPage(name) ? name.slice(0, name.indexOf("/") + 9) : name);

export function Stream({ name, onOnly }) {
  const page = streamPage(name);
  return html`<span class="stream">${page ? html`<${Link} to=${page} title=${name}><code>${short(name)}</code><//>` : html`<code title=${name}>${short(name)}</code>`}
    ${onOnly && html`<button type="button" class="only" onClick=${onOnly} aria-label=${`Only the events of ${name}`} title="Only this stream">only</button>`}</span>`;
}
