// One route: its parameters, its body, its answers, and a command that calls it.
import { html } from "../../core/dom.js";
import { Code } from "../../ui/code.js";
import { Table } from "../../ui/table.js";
import { Fields, Prose, Type } from "./shape.js";

const resolved = (doc, schema) => (schema?.$ref ? doc.components.schemas[schema.$ref.slice(schema.$ref.lastIndexOf("/") + 1)] : schema);
const contentOf = (part) => Object.entries(part?.content ?? {})[0] ?? [null, {}];

export function bodyOf(doc, one) {
  const schema = contentOf(one.requestBody)[1].schema;
  return resolved(doc, schema?.anyOf?.find((part) => part.$ref) ?? schema);
}

// A `curl` command with what the route requires.
export function command(doc, one, origin) {
  const words = ["curl -s"];
  if (one.method !== "get") words.push(`-X ${one.method.toUpperCase()}`);
  if (one.security === undefined) words.push('-H "Authorization: Bearer $STENO_TOKEN"');
  const body = bodyOf(doc, one);
  if (body) {
    const needed = Object.fromEntries((body.required ?? []).map((name) => [name, body.properties[name].examples?.[0] ?? body.properties[name].default ?? name]));
    words.push("-H 'Content-Type: application/json'", `-d '${JSON.stringify(needed)}'`);
  }
  const asked = (one.parameters ?? []).filter(({ in: where, required }) => where === "query" && required).map(({ name }) => `${name}=…`);
  words.push(`'${origin}${one.path}${asked.length ? `?${asked.join("&")}` : ""}'`);
  return words.join(" \\\n  ");
}

export function Operation({ one, doc, open }) {
  const body = bodyOf(doc, one);
  const parameters = one.parameters ?? [];
  return html`<details id=${one.operationId} open=${open}>
    <summary><span class="method m-${one.method}">${one.method.toUpperCase()}</span> <code>${one.path}</code> <span class="dim">${one.summary}</span></summary>
    ${one.description && html`<p class="note"><${Prose} text=${one.description} /></p>`}
    ${parameters.length > 0 && html`<${Table} titled caption="Parameters" rows=${parameters} rowKey=${({ name }) => name} columns=${[
      { head: "name", cell: ({ name, in: where }) => html`<code>${name}</code>${where !== "query" && html` <span class="dim">${where}</span>`}` },
      { head: "type", cell: ({ schema }) => html`<${Type} schema=${schema} />` },
      { head: "meaning", cell: ({ description, schema }) => html`<${Prose} text=${description ?? schema?.description ?? ""} />${schema?.default !== undefined && html` Default: <code>${JSON.stringify(schema.default)}</code>.`}` },
    ]} />`}
    ${body && html`<${Fields} caption="Body of ${one.summary}" schema=${body} />`}
    <${Table} titled caption="Answers" rows=${Object.entries(one.responses)} rowKey=${([status]) => status} columns=${[
      { head: "status", cell: ([status]) => html`<code>${status}</code>` },
      { head: "meaning", cell: ([, answer]) => html`<${Prose} text=${answer.description} />` },
      { head: "body", hide: "phone", cell: ([, answer]) => { const [media, { schema }] = contentOf(answer); return media && html`<${Type} schema=${schema} /> <span class="dim">${media}</span>`; } },
    ]} />
    <${Code} text=${command(doc, one, location.origin)} label="A command that calls ${one.path}" wrap />
  </details>`;
}
