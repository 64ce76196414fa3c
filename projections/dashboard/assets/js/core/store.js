// A value shared by many components.
import { useEffect, useState } from "./dom.js";

export function store(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    patch(part) { this.set({ ...value, ...part }); },
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

// The value of a store; the component is rendered again when its `select` changes.
export function useStore(from, select = (value) => value) {
  const [, redraw] = useState(0);
  const seen = select(from.get());
  useEffect(() => {
    let last = seen;
    const check = () => {
      const next = select(from.get());
      if (!Object.is(next, last)) { last = next; redraw((count) => count + 1); }
    };
    check();
    return from.listen(check);
  }, [from]);
  return seen;
}
