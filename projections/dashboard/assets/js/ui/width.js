// The width of an element as laid out, known before the first paint.
import { useLayoutEffect, useRef, useState } from "../core/dom.js";

export function useWidth(first = 600) {
  const element = useRef(null);
  const [width, set] = useState(first);
  useLayoutEffect(() => {
    if (!element.current) return undefined;
    set(element.current.clientWidth || first);
    const watch = new ResizeObserver(([entry]) => set(Math.round(entry.contentRect.width) || first)); // a page that is left has none
    watch.observe(element.current);
    return () => watch.disconnect();
  }, []);
  return [element, width];
}
