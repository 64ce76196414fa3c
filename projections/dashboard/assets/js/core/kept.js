// What this browser keeps between visits, as JSON. Without storage every page works, and keeps nothing.
import { useState } from "./dom.js";

export function kept(key, fallback = null) {
  try { return JSON.parse(localStorage.getItem(`steno.${key}`)) ?? fallback; } catch { return fallback; }
}

export function keep(key, value) {
  try { localStorage.setItem(`steno.${key}`, JSON.stringify(value)); } catch { /* full or forbidden */ }
}

export function useKept(key, fallback) {
  const [value, set] = useState(() => kept(key, fallback));
  return [value, (next) => { keep(key, next); set(next); }];
}
