// Starts the dashboard: the session, the record's facts, the stream, and the frame.
import { onUnauthorized } from "./api.js";
import { html, render } from "./dom.js";
import "./keys.js";
import { onLive, onReset, startLive } from "./live.js";
import { moment, readRecord, startMoment } from "./moment.js";
import { href, match, navigate, pageOf } from "./router.js";
import { readSession } from "./session.js";
import { Frame } from "../shell/frame.js";

const MARKS = 4000; // milliseconds between two looks at the record's marks while things happen
let due = null;

onUnauthorized(() => {
  if (match(location.pathname).page !== "login") navigate(`/login?next=${encodeURIComponent(location.pathname + location.search)}&at=`, { replace: true });
});

async function follow() {
  try {
    const record = await readRecord();
    startLive(record.position, record.record_id);
  } catch (error) {
    if (error.status !== 401) setTimeout(follow, 1000 * error.retryAfter || 2000);
  }
}

function again() {
  due ??= setTimeout(() => { due = null; readRecord().catch(() => {}); }, MARKS);
}
onLive(again);
onReset(again);

// After signing in: reload everything as the new caller.
export const restart = (to = "/") => location.assign(href(to));

pageOf(match(location.pathname).page ?? "overview").catch(() => {}).then(() => {
  render(html`<${Frame} />`, document.getElementById("app"));
  readSession();
  startMoment();
  follow();
  document.documentElement.dataset.ready = moment.get().at ?? "live";
});
