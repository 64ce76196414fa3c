// Notices, newest first: text, time, receiver, and whether it was accepted.
import { useData } from "../../core/data.js";
import { html } from "../../core/dom.js";
import { useAt } from "../../core/moment.js";
import { Link, useQuery } from "../../core/router.js";
import { count } from "../../core/words.js";
import { Await, Empty, StateBadge, Table, Time } from "../../ui/all.js";
import { CursorBar } from "./bar.js";

const KINDS = { run_end: "end of a run", anomaly: "anomaly", budget: "budget", orphan: "unneeded machine", start: "start of a run", stuck: "stuck run", wait: "long wait", vanished: "vanished machine", digest: "digest", trace: "trace", test: "test" };
const LOOKS = { delivered: "succeeded", failed: "failed", pending: "queued", unanswered: "lost" };
const how = (one) => ({ delivered: one.status ? `HTTP ${one.status}` : "accepted", failed: `given up after ${count(one.attempts, "attempt")}`, pending: one.attempts ? `${count(one.attempts, "attempt")} so far` : "not tried yet", unanswered: "its sender was stopped" }[one.state]);

// Without what Slack asks to escape.
const plain = (text) => text.replace(/^Steno: /, "").replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

const COLUMNS = [
  { head: "Time", cell: (one) => html`<${Link} class="row" to=${`/record/${one.position}`}><${Time} at=${one.at} /><//>` },
  { head: "Kind", hide: "phone", cell: (one) => `${KINDS[one.kind] ?? one.kind}${one.facts > 1 ? ` × ${one.facts}` : ""}` },
  { head: "Delivery", cell: (one) => html`<span class="verdict-cell"><${StateBadge} state=${LOOKS[one.state]} bare=${one.state} /><span class="dim">${how(one)}${one.route && `, route ${one.route}`}</span></span>${one.error && one.state !== "delivered" && html`<div class="bad">${one.error}</div>`}` },
  { head: "Text", cell: (one) => html`<span class="told">${plain(one.text)}</span>` },
];

export function Notices() {
  const [cursor] = useQuery("cursor");
  const at = useAt();
  const read = useData(`/api/notices?limit=50${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`, { beat: 5000 });
  return html`<${Await} read=${read} height="5">${(data) => html`<section class="panel flush">
    ${at === null && html`<p class="note">${data.webhook ? html`Notices go to <strong>${data.webhook}</strong>, ${data.signed ? "signed" : "not signed (set alerts.secret)"}: ${data.reports.map((kind) => KINDS[kind] ?? kind).join(", ") || "of nothing (`alerts.on` is `off`)"}.` : html`No webhook is set: <code class="say">alerts.webhook</code> in steno.toml, or <code class="say">STENO_WEBHOOK</code>. <code class="say">steno doctor</code> lists the routes.`}</p>`}
    ${data.notices.length ? html`<${Table} caption="Notices, newest first" columns=${COLUMNS} rows=${data.notices} rowKey=${(one) => one.notice_id} />` : html`<${Empty} title="No notices" say=${at === null ? "steno notify test" : null}>${at === null ? "No notice was sent yet. Send a test from a terminal:" : "No notice had been sent at this moment."}<//>`}
    <${CursorBar} cursor=${cursor} next=${data.next} noun="notices" /></section>`}<//>`;
}
