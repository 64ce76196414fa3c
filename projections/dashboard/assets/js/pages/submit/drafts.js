// Drafts, kept in this browser until sent or cleared.
import { useEffect, useState } from "../../core/dom.js";

// A key of a submission: the same key is the same run.
export const fresh = () => Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");

export function useDraft(name, first) {
  const key = `steno.draft.${name}`;
  const [value, setValue] = useState(() => ({ ...first, ...stored(key) }));
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

function stored(key) {
  try {
    return JSON.parse(localStorage.getItem(key)) ?? {};
  } catch {
    return {};
  }
}

function keep(key, value) {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch { /* full or forbidden: the page still works, the draft is not kept */ }
}
