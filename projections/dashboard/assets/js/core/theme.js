// Before the first paint: the theme a person chose, else the system's. A classic script, so that nothing flashes.
(function () {
  let chosen = null;
  try { chosen = localStorage.getItem("steno.theme"); } catch { /* no storage: the system's theme */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
