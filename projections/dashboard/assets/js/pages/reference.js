// The API's reference, drawn from the service's own OpenAPI document.
import { get } from "../core/api.js";
import { html, useEffect, useState } from "../core/dom.js";
import { useQuery, usePlace } from "../core/router.js";
import { Await, Empty, PageHead, Panel } from "../ui/all.js";
import { Fields, Prose, idOf } from "./reference/shape.js";
import { Operation } from "./reference/operation.js";

export const title = () => "API reference";

const METHODS = ["get", "post", "put", "delete"];

// [{tag, about, operations: [{method, path, …}]}] whose words contain the search.
function sections(doc, search) {
  const wanted = search.trim().toLowerCase();
  const all = Object.entries(doc.paths).flatMap(([path, item]) => METHODS.filter((method) => item[method]).map((method) => ({ method, path, ...item[method] })));
  const fits = (one) => `${one.method} ${one.path} ${one.summary}`.toLowerCase().includes(wanted);
  return doc.tags.map(({ name, description }) => ({ tag: name, about: description, operations: all.filter((one) => one.tags.includes(name) && fits(one)) }))
    .filter(({ operations }) => operations.length);
}

export default function Page() {
  const [doc, setDoc] = useState(null);
  const [error, setError] = useState(null);
  const load = () => get("/openapi.json").then(setDoc, setError);
  useEffect(() => { load(); }, []);
  return html`<${PageHead} title="API reference"><a href="/openapi.json">openapi.json</a><//>
    <${Await} read=${{ data: doc, error, stale: false, reload: load }} height="5">${(found) => html`<${Reference} doc=${found} />`}<//>`;
}

function Reference({ doc }) {
  const [search, setSearch] = useQuery("search", "");
  const { hash } = usePlace();
  const here = decodeURIComponent(hash.slice(1));
  useEffect(() => { if (here) document.getElementById(here)?.scrollIntoView(); }, [here]);
  const found = sections(doc, search);
  return html`<div class="stack reference">
    <p class="lead"><${Prose} text=${doc.info.description} /></p>
    <div class="filters"><div class="field grow"><label for="reference-search">Find a route</label>
      <input id="reference-search" class="input" type="search" data-filter value=${search} placeholder="stop, costs, stream …" onInput=${(event) => setSearch(event.target.value)} /></div></div>
    ${found.map(({ tag, about, operations }) => html`<${Panel} key=${tag} title=${about} flush>${operations.map((one) => html`
      <${Operation} key=${one.operationId} one=${one} doc=${doc} open=${here === one.operationId} />`)}<//>`)}
    ${found.length === 0 && html`<section class="panel"><${Empty} title="No route has these words" /></section>`}
    ${search === "" && html`<${Panel} title="Objects" flush>${Object.entries(doc.components.schemas).map(([name, schema]) => html`
      <details key=${name} id=${idOf(name)} open=${here === idOf(name)}><summary><code>${name}</code> <span class="dim">${(schema.description ?? "").split("\n")[0]}</span></summary>
        <${Fields} caption="Fields of ${name}" schema=${schema} /></details>`)}<//>`}
  </div>`;
}
