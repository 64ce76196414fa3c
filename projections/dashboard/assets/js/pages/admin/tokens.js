// The tokens of the service: listed, created with the secret shown once, revoked. For administrators.
import { del, get, post } from "../../core/api.js";
import { html, useEffect, useState } from "../../core/dom.js";
import { useAt } from "../../core/moment.js";
import { useMay, useSession } from "../../core/session.js";
import { Empty, Loading, Panel, Problem, StateBadge, Table, Time, confirm, toast } from "../../ui/all.js";
import { CopyButton } from "../record/copy.js";
import { Choice, Text } from "../submit/fields.js";

const LOOKS = { valid: "succeeded", revoked: "failed", expired: "stopped" };
const ROLES = [["read", "read: see everything"], ["submit", "submit: also submit and stop runs"], ["admin", "admin: also stop machines and manage tokens"]];
const SPANS = [["", "never"], ["12h", "in 12 hours"], ["7d", "in 7 days"], ["30d", "in 30 days"], ["365d", "in a year"]];

export function Tokens() {
  const who = useSession();
  const may = useMay("admin");
  const at = useAt();
  if (who && !may) return html`<section class="panel"><${Empty} title="Only administrators see tokens">Your token has the role <code>${who.role}</code>; this needs <code>admin</code>.<//></section>`;
  return html`<${Manage} live=${at === null} />`;
}

function Manage({ live }) {
  const [tokens, setTokens] = useState(null);
  const [error, setError] = useState(null);
  const [all, setAll] = useState(false);
  const load = () => get("/api/tokens").then((found) => { setTokens(found.tokens); setError(null); }, setError);
  useEffect(() => { load(); }, []);
  const revoke = async (one) => {
    if (!(await confirm({ title: `Revoke ${one.name}?`, text: "Whoever uses it is refused within a second, and its sessions end. It cannot be undone.", yes: "Revoke it", danger: true }))) return;
    try {
      await del(`/api/tokens/${encodeURIComponent(one.token_id)}`);
      toast(`${one.name} is revoked.`);
      load();
    } catch (problem) { toast(problem.detail); }
  };
  const columns = [
    { head: "Name", cell: (one) => html`<strong>${one.name}</strong> <span class="dim mono">${one.token_id}</span>` },
    { head: "Role", cell: (one) => one.role },
    { head: "State", cell: (one) => html`<${StateBadge} state=${LOOKS[one.state]} bare=${one.state} />` },
    { head: "Created", hide: "phone", cell: (one) => html`<${Time} at=${one.created_at} /> <span class="dim">by ${one.by}</span>` },
    { head: "Expires", hide: "phone", cell: (one) => (one.revoked_at ? html`revoked <${Time} at=${one.revoked_at} />` : one.expires_at ? html`<${Time} at=${one.expires_at} />` : html`<span class="dim">never</span>`) },
    { head: "", say: "Action", right: true, cell: (one) => one.state === "valid" && live && html`<button type="button" class="button small danger" onClick=${() => revoke(one)}>Revoke<span class="hidden-text"> ${one.name}</span></button>` },
  ];
  const shown = (tokens ?? []).filter((one) => all || one.state === "valid");
  const hidden = (tokens?.length ?? 0) - shown.length;
  return html`<div class="stack">${live && html`<${Create} onMade=${load} />`}
    <${Problem} error=${error} retry=${load} />
    ${tokens === null ? !error && html`<${Loading} height="3" />` : html`<${Panel} title="Tokens" more=${live ? "" : "as they are now, not at the chosen moment"} flush>
      ${shown.length ? html`<${Table} caption="Tokens, newest first" columns=${columns} rows=${shown} rowKey=${(one) => one.token_id} />` : html`<${Empty} title="No valid tokens">On this machine none is needed. Other machines need one each to use the service.<//>`}
      ${(hidden > 0 || all) && html`<div class="bar foot"><label class="check"><input type="checkbox" checked=${all} onChange=${(event) => setAll(event.target.checked)} /> Show expired and revoked tokens too</label></div>`}<//>`}</div>`;
}

function Create({ onMade }) {
  const [draft, setDraft] = useState({ name: "", role: "read", expires: "30d" });
  const [made, setMade] = useState(null);
  const [error, setError] = useState(null);
  const [busy, setBusy] = useState(false);
  const create = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const { name, role, expires } = draft;
      setMade(await post("/api/tokens", { role, ...(name.trim() ? { name: name.trim() } : {}), ...(expires ? { expires } : {}) }));
      setDraft({ ...draft, name: "" });
      onMade();
    } catch (problem) { setError(problem); }
    setBusy(false);
  };
  if (made) {
    return html`<section class="panel made" aria-label="The new token"><p class="lead"><strong>${made.name}</strong>, role ${made.role}. Copy the token now: it is not shown again.</p>
      <p class="bar"><code class="say secret">${made.token}</code><${CopyButton} text=${() => made.token} label="Copy the token" /></p>
      <p class="dim">Programs send it as <code>Authorization: Bearer …</code>; a browser asks for it at <code>/login</code>.</p>
      <div class="bar"><button type="button" class="button" onClick=${() => setMade(null)}>Done</button></div></section>`;
  }
  const wrong = (name) => (error?.field === name ? error.detail : null);
  return html`<form class="panel form" onSubmit=${create} noValidate><h2>Create a token</h2><div class="form-row">
      <${Text} label="Name" optional value=${draft.name} onInput=${(name) => setDraft({ ...draft, name })} error=${wrong("name")} placeholder="generated" hint="Who or what uses it: the record names it as the submitter." />
      <${Choice} label="Role" value=${draft.role} options=${ROLES} onInput=${(role) => setDraft({ ...draft, role })} error=${wrong("role")} />
      <${Choice} label="Expires" value=${draft.expires} options=${SPANS} onInput=${(expires) => setDraft({ ...draft, expires })} error=${wrong("expires")} /></div>
    ${error && !["name", "role", "expires"].includes(error.field) && html`<${Problem} error=${error} />`}
    <div class="bar"><button type="submit" class="button primary" disabled=${busy}>${busy ? "Creating …" : "Create the token"}</button></div></form>`;
}
