// JSON schemas as words: types that link to their objects, and tables of fields.
import { html } from "../../core/dom.js";
import { Table } from "../../ui/table.js";

export const idOf = (name) => `object-${name}`;
const nameOf = (ref) => ref.slice(ref.lastIndexOf("/") + 1);
const between = (parts, word) => parts.flatMap((part, index) => (index ? [word, part] : [part]));

const ENDLESS = 1e15; // a bound beyond this is none that anybody meets
const BOUNDS = [["minimum", "≥"], ["exclusiveMinimum", ">"], ["maximum", "≤"], ["exclusiveMaximum", "<"], ["minLength", "length ≥"], ["maxLength", "length ≤"], ["pattern", "matches"]];

// Text with `words` in code.
export const Prose = ({ text }) => text.split("`").map((part, index) => (index % 2 ? html`<code>${part}</code>` : part));

// `integer ≥ 1`, `array of Run`, `"cold" or "warm" or null`.
export function Type({ schema = {} }) {
  if (schema.$ref) return html`<a href="#${idOf(nameOf(schema.$ref))}">${nameOf(schema.$ref)}</a>`;
  if (schema["x-data"]) return html`messages of <${Type} schema=${schema["x-data"]} />`;
  const some = schema.anyOf ?? schema.oneOf;
  if (some) return between(some.map((one) => html`<${Type} schema=${one} />`), " or ");
  if (schema.enum) return between(schema.enum.map((one) => html`<code>${JSON.stringify(one)}</code>`), " or ");
  if ("const" in schema) return html`<code>${JSON.stringify(schema.const)}</code>`;
  if (schema.type === "array") {
    if (schema.prefixItems) return html`array: ${between(schema.prefixItems.map((one) => html`<${Type} schema=${one} />`), ", ")}`;
    return html`array of <${Type} schema=${schema.items} />`;
  }
  if (schema.type === "object" && typeof schema.additionalProperties === "object") return html`object of <${Type} schema=${schema.additionalProperties} />`;
  const bounds = BOUNDS.filter(([key]) => schema[key] !== undefined && !(schema[key] >= ENDLESS)).map(([key, sign]) => ` ${sign} ${schema[key]}`);
  return html`${schema.format ? `${schema.type} (${schema.format})` : schema.type ?? "any JSON"}${bounds.join(",")}`;
}

export function Fields({ caption, schema }) {
  if (!schema.properties) return html`<p class="note"><${Type} schema=${schema} /></p>`;
  const required = new Set(schema.required ?? []);
  const rows = Object.entries(schema.properties);
  const meaning = ([, one]) => one.description ?? (one.default === undefined || one.default === null ? "" : html`Default: <code>${JSON.stringify(one.default)}</code>`);
  return html`<${Table} caption=${caption} rows=${rows} rowKey=${([name]) => name} columns=${[
    { head: "field", cell: ([name]) => html`<code>${name}</code>` },
    { head: "type", cell: ([name, one]) => html`<${Type} schema=${one} />${!required.has(name) && html`<span class="dim">, optional</span>`}` },
    ...(rows.some(meaning) ? [{ head: "meaning", cell: meaning }] : []),
  ]} />`;
}
