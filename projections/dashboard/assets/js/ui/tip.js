// One tooltip for the page, shown on hover and focus; screen readers use the element's own label.
import { html, useLayoutEffect, useRef } from "../core/dom.js";
import { store, useStore } from "../core/store.js";

const shown = store(null);

// Spread on an element: `...${tip("busy\n2 m 03 s")}`; lines are kept.
export const tip = (text) => ({
  "aria-label": text.replaceAll("\n", ", "),
  onPointerEnter: (event) => { if (event.pointerType !== "touch") show(event.currentTarget, text); },
  onPointerLeave: hide,
  onFocus: (event) => show(event.currentTarget, text),
  onBlur: hide,
});
const show = (element, text) => shown.set({ element, text });
const hide = () => shown.set(null);
addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
addEventListener("scroll", hide, { passive: true, capture: true });

// Placed once, by the shell.
export function Tip() {
  const now = useStore(shown);
  const at = useRef(null);
  useLayoutEffect(() => {
    if (!now) return;
    if (!now.element.isConnected) { hide(); return; }
    const box = now.element.getBoundingClientRect();
    const own = at.current.getBoundingClientRect();
    const left = Math.min(Math.max(8, box.left + box.width / 2 - own.width / 2), innerWidth - own.width - 8);
    const above = box.top - own.height - 8;
    at.current.style.transform = `translate(${Math.round(left)}px, ${Math.round(above > 8 ? above : box.bottom + 8)}px)`;
  }, [now]);
  return now && html`<div class="tip" ref=${at} aria-hidden="true">${now.text}</div>`;
}
