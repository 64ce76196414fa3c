// The keyboard, everywhere but in fields: `g` and a letter go to a page, brackets step through the marks.
import { step } from "./marks.js";
import { goTo, isPast } from "./moment.js";
import { PAGES } from "./pages.js";
import { navigate } from "./router.js";
import { store } from "./store.js";

const LED = Object.fromEntries(PAGES.map(([to, , key]) => [key, to]));
export const KEYS = [
  ["Ctrl K", "run, machine, page or lever"], ...PAGES.map(([, name, key]) => [`g ${key}`, name.toLowerCase()]), ["/", "focus the filter"], ["[  ]", "one mark back, one mark on"],
  ["{  }", "ten marks back, ten on (with shift)"], ["l", "back to live"], ["p", "play through the marks, or pause"],
  ["t", "type a time or a position"], ["d", "light or dark"], ["?", "these keys"],
];
export const help = store(false);
export const palette = store(false);
const actions = new Map();
// What a key does while a component is there: `onKey("p", play)`; returns how to stop.
export function onKey(key, action) {
  actions.set(key, action);
  return () => { if (actions.get(key) === action) actions.delete(key); };
}

const typing = (element) => element instanceof HTMLElement && (element.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(element.tagName));
let leader = 0;

addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key === "k") {
    if (palette.get() || !document.querySelector("dialog[open]")) palette.set(!palette.get());
    event.preventDefault();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || typing(event.target)) return;
  if (document.querySelector("dialog[open]") && event.key !== "?") return;
  const led = event.timeStamp - leader < 1500;
  leader = 0;
  if (led && LED[event.key]) navigate(LED[event.key]);
  else if (event.key === "g") { leader = event.timeStamp; return; }
  else if (event.key === "/") document.querySelector("[data-filter]")?.focus();
  else if (event.key === "[") step(-1);
  else if (event.key === "]") step(1);
  else if (event.key === "{") step(-10);
  else if (event.key === "}") step(10);
  else if (event.key === "l") { if (isPast()) goTo(null); }
  else if (event.key === "?") help.set(!help.get());
  else if (actions.has(event.key)) actions.get(event.key)();
  else return;
  event.preventDefault();
});
