// The location: path and query (with `?at=` and `&known=`) are the only state in a link.
import { html, useEffect, useState } from "./dom.js";
import { store, useStore } from "./store.js";

// pattern → page module; the first that fits.
const TABLE = [
  ["/", "overview"], ["/runs", "runs"], ["/runs/:id", "run"], ["/machines", "machines"], ["/machines/:id", "machine"],
  ["/costs", "costs"], ["/kernels", "kernels"], ["/submit", "submit"], ["/record", "record"], ["/record/:position", "record"],
  ["/incidents", "incidents"], ["/cases", "cases"], ["/changes", "changes"], ["/report", "report"], ["/compare", "compare"], ["/admin", "admin"], ["/docs", "reference"], ["/login", "login"],
].map(([pattern, page]) => ({ pattern, page, regex: new RegExp(`^${pattern.replace(/:(\w+)/g, "(?<$1>[^/]+)")}/?$`) }));

const here = () => ({ path: location.pathname, query: location.search, hash: location.hash });
const place = store(here());
addEventListener("popstate", () => place.set(here()));

export const usePlace = () => useStore(place);
export const onPlace = (listener) => place.listen(listener);
export const query = (name) => new URLSearchParams(place.get().query).get(name);

export function match(path) {
  for (const { pattern, page, regex } of TABLE) {
    const found = regex.exec(path);
    if (found) return { pattern, page, params: decoded(found.groups ?? {}) };
  }
  return { pattern: null, page: null, params: {} };
}

function decoded(groups) {
  const params = {};
  for (const [name, value] of Object.entries(groups)) {
    try { params[name] = decodeURIComponent(value); } catch { params[name] = value; }
  }
  return params;
}

// An internal link with the current moment; a link's own `at` wins, an empty `at=` means now.
export function href(to) {
  const url = new URL(to, location.origin);
  if (!url.searchParams.has("at")) for (const name of ["at", "known"]) if (query(name) !== null) url.searchParams.set(name, query(name));
  if (url.searchParams.get("at") === "") url.searchParams.delete("at");
  return url.pathname + url.search + url.hash;
}

export function navigate(to, { replace = false } = {}) {
  const target = href(to);
  if (target === location.pathname + location.search + location.hash) return;
  history[replace ? "replaceState" : "pushState"](null, "", target);
  place.set(here());
}

// One parameter of the query as state: [value, set]; null removes it. For filters, tabs and pages, so that a link keeps them.
export function useQuery(name, fallback = null) {
  const value = useStore(place, ({ query: text }) => new URLSearchParams(text).get(name));
  const set = (next, { replace = true } = {}) => setQuery({ [name]: next }, { replace });
  return [value ?? fallback, set];
}

export function setQuery(values, { replace = true } = {}) {
  const url = new URL(location.href);
  for (const [name, value] of Object.entries(values)) {
    if (value === null || value === undefined || value === "") url.searchParams.delete(name);
    else url.searchParams.set(name, value);
  }
  if (url.href === location.href) return;
  history[replace ? "replaceState" : "pushState"](null, "", url.pathname + url.search + url.hash);
  place.set(here());
}

const plain = (event) => !event.defaultPrevented && event.button === 0 && !(event.metaKey || event.ctrlKey || event.shiftKey || event.altKey);

// `<${Link} to="/runs/1">…<//>`: a link that keeps the moment and does not reload the page.
export function Link({ to, onClick, children, replace, ...rest }) {
  useStore(place, ({ query: text }) => `${new URLSearchParams(text).get("at")} ${new URLSearchParams(text).get("known")}`);
  const click = (event) => {
    onClick?.(event);
    if (plain(event) && !rest.target) { event.preventDefault(); navigate(to, { replace }); }
  };
  return html`<a ...${rest} href=${href(to)} onClick=${click}>${children}</a>`;
}

const loaded = new Map();
export async function pageOf(name) {
  if (!loaded.has(name)) loaded.set(name, await import(`../pages/${name}.js`));
  return loaded.get(name);
}

// The page of the location; the previous one stays until the next is loaded, so that nothing jumps.
export function usePage() {
  const { path } = usePlace();
  const found = match(path);
  const [shown, show] = useState(() => (loaded.has(found.page) ? { ...found, path, module: loaded.get(found.page), error: null } : null));
  useEffect(() => {
    let current = true;
    const done = (module, error) => {
      if (current) show((before) => (before?.path === path && before.module === module && before.error === error ? before : { ...found, path, module, error }));
    };
    if (found.page === null) done(null, null);
    else if (loaded.has(found.page)) done(loaded.get(found.page), null);
    else pageOf(found.page).then((module) => done(module, null), (error) => done(null, error));
    return () => { current = false; };
  }, [path]);
  return shown;
}
