// The server's time, and a tick each second for running items.
import { useEffect, useState } from "./dom.js";
import { moment } from "./moment.js";
import { useStore } from "./store.js";

let skew = 0; // server's clock less ours, in milliseconds; an HTTP date has whole seconds, so small skews are none
export function learn(date) {
  if (date === null) return;
  const found = date + 500 - Date.now();
  skew = Math.abs(found) > 2000 ? found : 0;
}
export const now = () => Date.now() + skew;

const ticks = new Set();
setInterval(() => { if (!document.hidden) for (const listener of [...ticks]) listener(); }, 1000);

// Milliseconds: now, updated each second, or the past moment shown.
export function useNow() {
  const past = useStore(moment, ({ at, time }) => (at === null ? null : time));
  const live = useStore(moment, ({ at }) => at === null);
  const [, redraw] = useState(0);
  useEffect(() => {
    if (!live) return undefined;
    const listener = () => redraw((count) => count + 1);
    ticks.add(listener);
    return () => ticks.delete(listener);
  }, [live]);
  return live || past === null ? now() : past;
}
