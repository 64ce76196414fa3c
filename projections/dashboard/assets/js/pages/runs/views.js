// Saved views of the runs page: a name and its filters, kept in this browser.
import { html, useState } from "../../core/dom.js";
import { keep, kept } from "../../core/kept.js";
import { Link } from "../../core/router.js";
import { FILTERS } from "./filters.js";

const FORM = 1;
const LATER = "The saved views are of a later version of Steno: update this one to use them. They were left as they are.";
const known = new Set([...FILTERS, "order"]);

// {views: [{name, query, unknown}], problem}; `unknown`: a filter that this version does not have.
export function viewsOf(stored) {
  if (stored === null) return { views: [], problem: null };
  if (!Array.isArray(stored.views) || stored.form !== FORM) return { views: [], problem: LATER };
  const views = stored.views.filter((view) => typeof view?.name === "string" && typeof view.query === "string");
  return { views: views.map((view) => ({ ...view, unknown: [...new URLSearchParams(view.query).keys()].find((name) => !known.has(name)) ?? null })), problem: null };
}

export function Views({ query }) {
  const [{ views, problem }, set] = useState(() => viewsOf(kept("views")));
  const [name, write] = useState("");
  const store = (next) => {
    const now = viewsOf(kept("views")); // another tab may have saved too
    if (now.problem) { set(now); return; }
    const stored = { form: FORM, views: next(now.views).map(({ name: called, query: filters }) => ({ name: called, query: filters })) };
    keep("views", stored);
    set(viewsOf(stored));
  };
  const save = (event) => {
    event.preventDefault();
    const given = name.trim();
    if (given) { store((all) => [...all.filter((view) => view.name !== given), { name: given, query }]); write(""); }
  };
  return html`<details class="more views"><summary class="button">Views${views.length > 0 && ` (${views.length})`}</summary>${problem ? html`<p class="warning" role="status">${problem}</p>` : html`<div class="bar">
    ${views.map((view) => html`<span class="view" key=${view.name}>${view.unknown === null ? html`<${Link} class="button small" to="/runs?${view.query}">${view.name}<//>` : html`<span class="dim">${view.name}: saved by a later version, filters by ${view.unknown}</span>`}
      <button type="button" class="button small" aria-label="Delete the view ${view.name}" onClick=${() => store((all) => all.filter((one) => one.name !== view.name))}>✕</button></span>`)}
    <form class="bar" onSubmit=${save}><input class="input" aria-label="Name of the view" placeholder="name of this view" maxlength="60" value=${name} onInput=${(event) => write(event.target.value)} /><button type="submit" class="button" disabled=${!name.trim()}>Save view</button></form></div>`}</details>`;
}
