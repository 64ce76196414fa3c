// Tabs: arrows move, the chosen one is in the address when `name` is given.
import { html, useState } from "../core/dom.js";
import { useQuery } from "../core/router.js";

// tabs: [{key, label}]; children is a function of the chosen key.
export function Tabs({ tabs, name = null, label, children }) {
  const kept = useQuery(name ?? "tab");
  const local = useState(tabs[0].key);
  const [wanted, choose] = name === null ? local : [kept[0], (key) => kept[1](key === tabs[0].key ? null : key)];
  const chosen = tabs.some((tab) => tab.key === wanted) ? wanted : tabs[0].key;
  const move = (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const place = tabs.findIndex((tab) => tab.key === chosen);
    const next = tabs[(place + step + tabs.length) % tabs.length].key;
    choose(next);
    event.currentTarget.querySelector(`[data-tab="${next}"]`)?.focus();
  };
  return html`<div class="tabs" role="tablist" aria-label=${label} onKeyDown=${move}>
    ${tabs.map((tab) => html`<button type="button" role="tab" key=${tab.key} data-tab=${tab.key} id="tab-${tab.key}" aria-controls="panel-${tab.key}"
      aria-selected=${String(tab.key === chosen)} tabindex=${tab.key === chosen ? 0 : -1} onClick=${() => choose(tab.key)}>${tab.label}</button>`)}
  </div><div role="tabpanel" id="panel-${chosen}" aria-labelledby="tab-${chosen}">${children(chosen)}</div>`;
}
