// The frame round every page: header, strip, page, tape, and the windows over them.
import { ApiProblem } from "../core/api.js";
import { useFailures } from "../core/failures.js";
import { html, useEffect, useErrorBoundary, useLayoutEffect, useRef } from "../core/dom.js";
import { KEYS, help, onKey, palette } from "../core/keys.js";
import { PAGES } from "../core/pages.js";
import { Link, usePage, usePlace } from "../core/router.js";
import { useSession } from "../core/session.js";
import { useStore } from "../core/store.js";
import { setTitle } from "../core/title.js";
import { nextTheme } from "./theme.js";
import { Asking, Sheet } from "../ui/dialog.js";
import { Empty, Loading, PageHead, Problem } from "../ui/notes.js";
import { Tip } from "../ui/tip.js";
import { Building } from "./building.js";
import { LeverSheet } from "./lever.js";
import { Unshowable, useUnshowable } from "./moment.js";
import { Palette } from "./palette.js";
import { Strip } from "./strip.js";
import { Tape } from "./tape.js";

const TIMELESS = new Set(["submit", "login", "reference"]); // pages of no moment

function Header() {
  const { path } = usePlace();
  const who = useSession();
  const on = (to) => (to === "/" ? path === "/" : path === to || path.startsWith(`${to}/`));
  useEffect(() => onKey("d", nextTheme), []);
  useEffect(() => document.querySelector(".nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [path]); // a phone shows a part of them
  return html`<header class="header">
    <${Link} class="brand" to="/" aria-label="Steno, overview"><svg viewBox="0 0 26 26" aria-hidden="true"><circle class="reel" cx="13" cy="13" r="12"/><path class="cut" d="M5 14h4l2.500-6 3.500 11 2.500-7H21"/></svg><span>Steno</span><//>
    <nav class="nav" aria-label="Pages">${PAGES.map(([to, name]) => html`<${Link} key=${to} to=${to} aria-current=${on(to) ? "page" : null}>${name}<//>`)}</nav>
    <div class="tools">
      ${who && who.via !== "loopback" && html`<span class="who" title="${who.name}, ${who.role}">${who.name}</span>`}
      <button type="button" class="icon" aria-label="Command palette" title="Command palette (Ctrl-K)" onClick=${() => palette.set(true)}><svg viewBox="0 0 18 18" aria-hidden="true"><path d="M12 12l4 4M13 7.500a5.500 5.500 0 1 1-11 0 5.500 5.500 0 0 1 11 0z" fill="none" stroke="currentColor" stroke-width="1.600" stroke-linecap="round"/></svg></button>
      <button type="button" class="icon" aria-label="Light or dark" title="Light or dark (d)" onClick=${nextTheme}><svg viewBox="0 0 18 18" aria-hidden="true"><circle cx="9" cy="9" r="6.500" fill="none" stroke="currentColor" stroke-width="1.600"/><path d="M9 2.500a6.500 6.500 0 0 1 0 13z" fill="currentColor"/></svg></button>
      <button type="button" class="icon" aria-label="Keys" title="Keys (?)" onClick=${() => help.set(true)}>?</button>
    </div></header>`;
}

function Help() {
  if (!useStore(help)) return null;
  return html`<${Sheet} title="Keys" onClose=${() => help.set(false)}>
    <div class="keys">${KEYS.map(([key, what]) => html`<span>${key.split(/ +/).map((one) => html`<kbd>${one}</kbd> `)}</span><span>${what}</span>`)}</div>
    <p class="legend dim">On the tape: arrows move a little, Page Up and Page Down further, Home is the record's beginning, End is live.</p>
    <p class="legend"><${Link} to="/docs" onClick=${() => help.set(false)}>API reference<//></p>
    <div class="actions"><button type="button" class="button" onClick=${() => help.set(false)}>Close</button></div><//>`;
}

// A page that fails shows its error and leaves the frame intact.
function Guard({ children }) {
  const [error, reset] = useErrorBoundary((thrown) => console.error(thrown));
  if (!error) return children;
  return html`<${PageHead} title="This page failed" /><${Problem} error=${new ApiProblem({ title: "Error in the dashboard", detail: String(error.message ?? error) })} retry=${reset} />`;
}

function Shown({ shown }) {
  const why = useUnshowable();
  if (why !== null) return html`<${Unshowable} why=${why} />`;
  if (shown === null) return html`<${PageHead} title=" " /><${Loading} height="5" />`;
  if (shown.page === null) return html`<${PageHead} title="No such page" /><section class="panel"><${Empty} title="There is no page ${shown.path}">The address may be mistyped or from another version. These pages are there:<nav class="bar" aria-label="All pages">${PAGES.map(([to, name]) => html`<${Link} key=${to} to=${to}>${name}<//>`)}</nav><//></section>`;
  if (shown.error) return html`<${PageHead} title="Not loaded" /><${Problem} error=${new ApiProblem({ title: "The page was not loaded", detail: "The server does not answer, or was updated. Reload the page." })} retry=${() => location.reload()} />`;
  const Page = shown.module.default;
  return html`<${Guard} key=${shown.path}><${Page} params=${shown.params} /><//>`;
}

export function Frame() {
  const shown = usePage();
  const first = useRef(true);
  const failures = useFailures().length;
  useEffect(() => setTitle(null, failures), [failures]);
  useLayoutEffect(() => { // before the page's own effects: it may know a better name
    if (shown !== null) setTitle(shown.module ? shown.module.title(shown.params) : "No such page");
  }, [shown]);
  useEffect(() => {
    if (shown === null) return;
    if (first.current) { first.current = false; return; }
    scrollTo(0, 0);
    document.querySelector("#page h1")?.focus({ preventScroll: true });
  }, [shown]);
  return html`<a class="skip" href="#page">To the page</a><${Header} /><${Strip} />
    <main class="main" id="page" tabindex="-1"><${Building} /><${Shown} shown=${shown} /></main>
    ${!TIMELESS.has(shown?.page) && html`<${Tape} />`}<${Help} /><${Palette} /><${LeverSheet} /><${Asking} /><${Tip} />`;
}
