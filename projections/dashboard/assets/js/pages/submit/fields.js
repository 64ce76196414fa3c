// Form fields, each with label, hint and error.
import { html, useId } from "../../core/dom.js";

// `it is empty` → `It is empty`
export const sentence = (detail) => (detail ? detail[0].toUpperCase() + detail.slice(1) : detail);
export const described = (id, hint, error) => [hint && `${id}-hint`, error && `${id}-wrong`].filter(Boolean).join(" ") || null;

export function Field({ label, hint, error, optional, children }) {
  const id = useId();
  return html`<div class="field"><label for=${id}>${label}${optional && html` <span class="dim light">optional</span>`}</label>
    ${children({ id, "aria-describedby": described(id, hint, error), "aria-invalid": error ? "true" : null })}
    ${error && html`<span class="wrong" id="${id}-wrong" role="alert">${sentence(error)}</span>`}${hint && html`<span class="hint" id="${id}-hint">${hint}</span>`}</div>`;
}

export const Choice = ({ options, value, onInput, ...field }) => html`<${Field} ...${field}>${(input) => html`
  <select class="input" ...${input} value=${value} onChange=${(event) => onInput(event.target.value)}>
    ${options.map(([name, label]) => html`<option key=${name} value=${name} selected=${name === value}>${label}</option>`)}</select>`}<//>`;

export const Text = ({ value, onInput, placeholder, mono, ...field }) => html`<${Field} ...${field}>${(input) => html`
  <input type="text" class=${mono ? "input mono" : "input"} ...${input} value=${value} placeholder=${placeholder} spellcheck="false" autocomplete="off"
    onInput=${(event) => onInput(event.target.value)} />`}<//>`;

export const Lines = ({ value, onInput, placeholder, rows = 4, ...field }) => html`<${Field} ...${field}>${(input) => html`
  <textarea class="input" ...${input} rows=${rows} value=${value} placeholder=${placeholder} spellcheck="false" onInput=${(event) => onInput(event.target.value)}></textarea>`}<//>`;

export function Radios({ legend, options, value, onInput, error }) {
  const id = useId();
  return html`<fieldset class="radios" aria-describedby=${error ? `${id}-wrong` : null}><legend>${legend}</legend>
    ${options.map(([name, label, hint]) => html`<label key=${name} class="radio"><input type="radio" name=${id} value=${name} checked=${name === value} onChange=${() => onInput(name)} />
      <span>${label}${hint && html` <span class="dim">${hint}</span>`}</span></label>`)}
    ${error && html`<span class="wrong" id="${id}-wrong" role="alert">${sentence(error)}</span>`}</fieldset>`;
}
