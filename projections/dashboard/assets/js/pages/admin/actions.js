// Who asked for what, newest first.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { setQuery, useQuery } from "../../core/router.js";
import { short } from "../../core/words.js";
import { Await, Empty, PollLink, SubjectLink, Table, Time } from "../../ui/all.js";
import { useTyped } from "../record/typed.js";
import { CursorBar } from "./bar.js";

const only = (who) => setQuery({ who, cursor: null });

const COLUMNS = [
  { head: "Time", cell: (one) => html`<${Time} at=${one.at} />` },
  { head: "Who", cell: (one) => html`<button type="button" class="plain" title="Only what ${one.who} did" onClick=${() => only(one.who)}>${one.who || "unknown"}</button>` },
  { head: "Did", cell: (one) => html`${one.action} <${SubjectLink} subject=${one.subject} name=${one.name ?? (one.subject.startsWith("vm/") ? short(one.subject.slice(3)) : null)} />` },
  { head: "Position", right: true, hide: "phone", cell: (one) => html`<${PollLink} position=${one.position} />` },
];

export function Actions() {
  const [cursor] = useQuery("cursor");
  const [who] = useQuery("who", "");
  const [typed, setTyped] = useTyped(who, (text) => only(text.trim()));
  const read = useData(`/api/audit?limit=50${who ? `&who=${encodeURIComponent(who)}` : ""}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, { every: 2000, beat: 5000 });
  return html`<div class="filters" role="search"><label class="field grow"><span class="label">Who</span><input class="input" type="search" data-filter placeholder="a token's name, a user, loopback, policy" maxlength="200" spellcheck="false" value=${typed} onInput=${(event) => setTyped(event.target.value)} /></label>
      <p class="dim">Submissions, stops, tokens and hidden archives. Callers on this machine without a token are <code>loopback</code>.</p></div>
    <${Await} read=${read} height="5">${(data) => html`<section class="panel flush">
      ${data.actions.length ? html`<${Table} caption="Requests, newest first" columns=${COLUMNS} rows=${data.actions} rowKey=${(one) => one.position} />`
        : html`<${Empty} title="No requests">${who ? html`Nobody named ${who} asked for anything${data.next ? " on this page" : ""}.<div><button type="button" class="button small" onClick=${() => only(null)}>Show all</button></div>` : "Nobody has submitted or stopped anything through Steno."}<//>`}
      <${CursorBar} cursor=${cursor} next=${data.next} noun="requests" /></section>`}<//>`;
}
