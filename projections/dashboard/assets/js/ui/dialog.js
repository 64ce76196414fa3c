// A confirmation before an action that costs or stops something, and a message after it.
import { html, useLayoutEffect, useRef } from "../core/dom.js";
import { store, useStore } from "../core/store.js";

// `<${Sheet} title="Keys" onClose=${…}>`: a modal window; Escape and the backdrop close it.
export function Sheet({ title, onClose, children }) {
  const at = useRef(null);
  useLayoutEffect(() => { at.current.showModal(); }, []); // before a frame is drawn: the next key is typed into it
  const click = (event) => { if (event.target === at.current) at.current.close(); };
  return html`<dialog class="sheet" ref=${at} aria-label=${title} onClose=${onClose} onClick=${click}><h2>${title}</h2>${children}</dialog>`;
}

const asked = store(null);

// `if (await confirm({title, text, yes: "Stop the machine", no: "Keep it", danger: true})) …`
export const confirm = (question) => new Promise((answer) => { asked.set({ ...question, answer }); });

const said = store(null);
let timer = null;
// A line at the foot of the page for some seconds.
export function toast(text) {
  said.set(text);
  clearTimeout(timer);
  timer = setTimeout(() => said.set(null), 6000);
}

// Placed once, by the shell.
export function Asking() {
  const question = useStore(asked);
  const text = useStore(said);
  const close = (answer) => { question.answer(answer); asked.set(null); };
  return html`<div role="status" aria-live="polite">${text && html`<div class="toast">${text}</div>`}</div>
    ${question && html`<${Sheet} title=${question.title} onClose=${() => close(false)}><p>${question.text}</p>
      <div class="actions"><button type="button" class="button" onClick=${() => close(false)}>${question.no ?? "Keep it"}</button>
      <button type="button" class="button primary ${question.danger ? "danger" : ""}" onClick=${() => close(true)}>${question.yes}</button></div><//>`}`;
}
