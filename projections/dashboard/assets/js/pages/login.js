// Login: the token is sent once; the browser keeps a cookie that scripts cannot read.
import { del, post } from "../core/api.js";
import { html, useState } from "../core/dom.js";
import { landing } from "../core/landing.js";
import { query } from "../core/router.js";
import { readSession, useSession } from "../core/session.js";
import { PageHead, Problem } from "../ui/all.js";

export const title = () => "Access";

const MAY = {
  read: "can read everything and change nothing",
  submit: "can read everything, submit runs and stop them",
  admin: "can read everything, submit and stop runs, and stop machines",
};
const VIA = { token: "by a token in the request", session: "by a browser session", loopback: "by being on this machine, where no token is needed" };

export default function Page() {
  const who = useSession();
  return html`<div class="narrow"><${PageHead} title=${who ? "Your access" : "Log in"} />${who ? html`<${Known} who=${who} />` : html`<${Ask} />`}</div>`;
}

function Known({ who }) {
  const [error, setError] = useState(null);
  const leave = async () => {
    try {
      await del("/api/session");
      await readSession();
    } catch (problem) {
      setError(problem);
    }
  };
  return html`<section class="panel stack"><dl class="facts"><dt>name</dt><dd>${who.name}</dd><dt>role</dt><dd><strong>${who.role}</strong>: ${MAY[who.role] ?? ""}</dd>
    <dt>authenticated</dt><dd>${VIA[who.via] ?? who.via}</dd></dl><${Problem} error=${error} />
    ${who.via === "session" && html`<div><button type="button" class="button" onClick=${leave}>Log out</button></div>`}</section>`;
}

function Ask() {
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState(null);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await post("/api/session", { token: token.trim() });
      await readSession();
      location.assign(landing(query("next"), location.origin));
    } catch (problem) {
      setError(problem);
      setBusy(false);
    }
  };
  return html`<form class="panel form" onSubmit=${submit}><div class="field"><label for="token">Token</label>
      <input class="input mono" id="token" name="password" type="password" autocomplete="current-password" spellcheck="false" value=${token} onInput=${(event) => setToken(event.target.value)}
        aria-describedby="token-hint${error ? " token-wrong" : ""}" aria-invalid=${error ? "true" : null} />
      <span class="hint" id="token-hint">It begins with <code>steno_</code>. The operator creates one with <code>steno token create</code>.</span>
      ${error && html`<span class="wrong" id="token-wrong" role="alert">${error.detail}</span>`}</div>
    <div><button type="submit" class="button primary" disabled=${busy || !token.trim()}>Log in</button></div></form>`;
}
