// Light or dark by hand; kept for this browser.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");

export function nextTheme() {
  const now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  try { localStorage.setItem("steno.theme", root.dataset.theme); } catch { /* for this page only */ }
}
