// The command palette: pages, runs, machines and levers, found by some letters. Ctrl-K or Cmd-K opens it.
import { about, useData } from "../core/data.js";
import { html, useEffect, useRef, useState } from "../core/dom.js";
import { palette } from "../core/keys.js";
import { LEVERS, named, offer, useLevers } from "../core/levers.js";
import { useAt } from "../core/moment.js";
import { PAGES } from "../core/pages.js";
import { navigate } from "../core/router.js";
import { useMay } from "../core/session.js";
import { useStore } from "../core/store.js";
import { called, short } from "../core/words.js";
import { Sheet } from "../ui/dialog.js";
import { free } from "../ui/levers.js";
import { useTyped } from "../pages/record/typed.js";

const MOST = 6; // of each kind
const OFFERED = [["pause", "Pause submissions…"], ["drain", "Drain: start nothing new…"], ["stop", "Stop runs…"]];

export const Palette = () => (useStore(palette) ? html`<${Open} />` : null);

function useEntries(words) {
  const acts = useMay("admin") && useAt() === null;
  const runs = useData(words ? `/api/runs?limit=${MOST}&search=${encodeURIComponent(words)}` : null, { on: about.runs });
  const machines = useData("/api/vms?limit=200", { on: about.vms });
  const levers = useLevers().data?.levers ?? [];
  const has = (...texts) => texts.join(" ").toLowerCase().includes(words.toLowerCase());
  const go = (to) => () => navigate(to);
  const pages = [...PAGES.map(([to, name, key]) => [to, name, `g ${key}`]), ["/cases", "Cases", ""], ["/report", "Report", ""], ["/docs", "API reference", ""]];
  return [
    ...pages.filter(([, name]) => has(name)).map(([to, name, key]) => ({ kind: "page", name, more: key, run: go(to) })),
    ...(words ? runs.data?.runs ?? [] : []).map((run) => ({ kind: "run", name: called(run), more: `${run.state} ${short(run.run_id)}`, run: go(`/runs/${encodeURIComponent(run.run_id)}`) })),
    ...(words ? machines.data?.vms ?? [] : []).filter((vm) => has(vm.name, vm.vm_id, vm.gpu, vm.region)).slice(0, MOST)
      .map((vm) => ({ kind: "machine", name: vm.name || vm.provider_id, more: `${vm.state} ${short(vm.vm_id)}`, run: go(`/machines/${encodeURIComponent(vm.vm_id)}`) })),
    ...(acts ? OFFERED : []).filter(([action, name]) => has(name, "lever", LEVERS[action].verb)).map(([action, name]) => ({ kind: "lever", name, more: "", run: () => offer({ action }) })),
    ...(acts ? levers : []).filter((lever) => has("release resume lever", named(lever))).map((lever) => ({ kind: "lever", name: `Release ${named(lever)}`, more: lever.why, run: () => free(lever) })),
  ];
}

function Open() {
  const [words, search] = useState("");
  const [typed, type] = useTyped(words, (text) => search(text.trim()));
  const [place, choose] = useState(0);
  const list = useRef(null);
  const entries = useEntries(words);
  const chosen = Math.min(place, entries.length - 1);
  const close = () => palette.set(false);
  const run = (entry) => { close(); entry.run(); };
  const keys = (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step) choose((chosen + step + entries.length) % Math.max(1, entries.length));
    else if (event.key === "Enter" && entries[chosen] && typed.trim() === words) run(entries[chosen]);
    else return;
    event.preventDefault();
  };
  useEffect(() => { list.current.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" }); }, [chosen, entries.length]);
  return html`<${Sheet} title="Command palette" onClose=${close}><div class="palette">
    <input class="input" type="text" role="combobox" aria-label="Run, machine, page or lever" aria-expanded="true" aria-controls="palette" aria-autocomplete="list" aria-activedescendant=${entries.length ? `entry-${chosen}` : null}
      placeholder="run, machine, page or lever" maxlength="200" autocomplete="off" spellcheck=${false} value=${typed} onInput=${(event) => { type(event.target.value); choose(0); }} onKeyDown=${keys} />
    <ul id="palette" role="listbox" aria-label="Matches" ref=${list}>${entries.map((entry, index) => html`<li key=${`${entry.kind} ${entry.name} ${entry.more}`} id="entry-${index}" role="option" aria-selected=${String(index === chosen)} onClick=${() => run(entry)}>
      <span class="dim kind">${entry.kind}</span><span class="name">${entry.name}</span><span class="dim more">${entry.more}</span></li>`)}</ul>
    ${!entries.length && html`<p class="dim" role="status">Nothing has “${words}” in its name.</p>`}</div><//>`;
}
