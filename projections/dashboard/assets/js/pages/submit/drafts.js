// Drafts, kept in this browser until sent or cleared.
import { useEffect, useState } from "../../core/dom.js";
import { keep, kept } from "../../core/kept.js";

// A key of a submission: the same key is the same run.
export const fresh = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function useDraft(name, first) {
  const key = `draft.${name}`;
  const [value, setValue] = useState(() => ({ ...first, ...kept(key) }));
  useEffect(() => {
    const timer = setTimeout(() => keep(key, value), 250);
    return () => clearTimeout(timer);
  }, [value]);
  useEffect(() => {
    const now = () => keep(key, value);
    addEventListener("pagehide", now);
    return () => removeEventListener("pagehide", now);
  }, [value]);
  return [value, (part) => setValue((before) => ({ ...before, ...part }))];
}
