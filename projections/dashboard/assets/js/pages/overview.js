// What runs now, what it costs, and what is wrong.
import { html } from "../core/dom.js";
import { lookAt, useFailures } from "../core/failures.js";
import { LEVERS, offer, useLevers } from "../core/levers.js";
import { useNow } from "../core/clock.js";
import { useData } from "../core/data.js";
import { useAt } from "../core/moment.js";
import { Link } from "../core/router.js";
import { useMay } from "../core/session.js";
import { ago, called, cents, count, money, moment, ms, number, price, span, unseen } from "../core/words.js";
import { Await, Empty, Elapsed, Money, PageHead, Panel, PollLink, RunLink, StartMark, StateBadge, SubjectLink, Time, withCode } from "../ui/all.js";
import { Burn } from "../ui/burn.js";
import { Lanes } from "../ui/lanes.js";
import { LeverRows } from "../ui/levers.js";
import { waits } from "./run/words.js";
import { explained } from "./incidents/words.js";

export const title = () => "Overview";

const Vital = ({ label, blind, note, children }) => html`<div class="vital ${blind ? "blind" : ""}"><div class="label">${label}</div><div class="value">${children}</div><div class="beneath" title=${typeof note === "string" ? note : ""}>${note}</div></div>`;

function Outcomes({ today }) {
  return html`<div class="outcomes">${["succeeded", "failed", "stopped"].map((state) => html`<span key=${state} title=${state}><${StateBadge} state=${state} bare=${number(today[state])} /></span>`)}</div>`;
}

function Sources({ sources }) {
  const now = useNow();
  const worst = ["blind", "stale", "fresh"].find((word) => sources.some((one) => one.observability === word));
  const ones = sources.filter((one) => one.observability === worst);
  const last = Math.max(...ones.map((one) => ms(one.last_answered) ?? 0));
  const many = ones.length > 1 ? `${ones.length} of ${sources.length}` : ones[0]?.name;
  const note = !sources.length ? "no source polled yet" : worst === "fresh" ? (sources.length === 1 ? sources[0].name : `all ${sources.length} answer`) : `${many}${last ? `, ${worst === "blind" ? `${unseen(ones)} for ${span((now - last) / 1000)}` : `last answer ${ago(last, now)}`}` : ", never answered"}`;
  return html`<${Vital} label="Sources" blind=${worst === "blind"} note=${note}>${sources.length ? html`<${StateBadge} state=${worst} />` : "–"}<//>`;
}

function Vitals({ data, machines }) {
  const { today, budget } = data;
  return html`<section class="panel vitals whole" aria-label="At a glance">
    <${Vital} label="Running now" note=${Object.keys(data.queued).length ? `${count(Object.keys(data.queued).length, "run")} in the queue` : "nothing in the queue"}>${number(data.running.filter((run) => !(run.run_id in data.queued)).length)}<//>
    <${Vital} label="Spent today" note=${`since ${moment(today.from).slice(0, 16)}Z`}>${cents(today.spent_usd)}<//>
    <${Vital} label="Ended today" note="succeeded, failed, stopped"><${Outcomes} today=${today} /><//>
    <${Vital} label="Billed now" note=${`${count(machines, "machine")} up`}>${price(budget.rate_now_usd_per_hour)} <span class="unit">an hour</span><//>
    <${Sources} sources=${data.sources} /></section>`;
}

function IdleInside({ days }) {
  return html`<${Panel} title="Idle inside runs" more=${html`<${Link} to="/costs">costs<//>`}><dl class="facts">${days.map((one) => html`<dt key=${one.day}>${one.day}</dt><dd class="right">${cents(one.idle_inside_usd)}</dd>`)}</dl><//>`;
}

// What a run has cost by now: its bill, and since that was computed the rate of its machine, where no other run shares that.
function LiveCost({ run, rate, at }) {
  const now = useNow();
  if (run.cost_usd === null) return html`no cost yet`;
  const usd = Number(run.cost_usd) + (rate * Math.max(0, now - at)) / 3600e3;
  return html`<${Money} usd=${rate ? usd.toFixed(usd < 1 ? 4 : 2) : run.cost_usd} />`;
}

function LiveRun({ run, machine, line, rate, at }) {
  const started = run.started_at ?? run.submitted_at;
  return html`<li class="live-run"><div class="name"><${RunLink} id=${run.run_id} name=${called(run)} /></div><div class="clock"><${Elapsed} from=${started} to=${run.finished_at} /></div>
    <div class="where"><${StateBadge} state=${run.state} phase=${run.phase} />${machine ? ` on ${machine}` : ""}${run.attempts > 1 ? `, attempt ${run.attempts}` : ""}${run.start ? html` <${StartMark} start=${run.start} />` : ""}</div>
    <div class="cost"><${LiveCost} run=${run} rate=${rate} at=${at} /></div>
    ${run.state === "running" && html`<code class="line dim" title=${line ? "the last line of its recorded output" : null}>${line ?? "no output recorded yet"}</code>`}</li>`;
}

const WAITS = new Set(["requested", "queued", "provisioning"]);

// What waits, in Steno's queue or at its provider, and why.
function Waiting({ runs, queued }) {
  const now = useNow();
  const place = ({ run_id: id }) => queued[id]?.position ?? Infinity;
  return html`<ol class="rows">${[...runs].sort((a, b) => place(a) - place(b)).map((run) => { const one = queued[run.run_id];
    return html`<li key=${run.run_id}><div class="top"><span>${one && `#${one.position} `}<${RunLink} id=${run.run_id} name=${called(run)} /></span>
      <span class="dim nowrap">${!one ? html`<${StateBadge} of=${run} />` : one.estimated_start === null || ms(one.estimated_start) <= now ? (one.position === 1 ? "next" : "start unknown") : html`<${Time} at=${one.estimated_start} relative />`}</span></div>
      <div class="under">${withCode(one ? one.detail || one.why : waits(run))}</div></li>`; })}</ol>`;
}

const EndedRow = ({ run }) => html`<li><div class="top"><${RunLink} id=${run.run_id} name=${called(run)} /><span class="dim nowrap"><${Time} at=${run.finished_at} relative /></span></div>
  <div class="top"><${StateBadge} of=${run} /><span class="dim nowrap"><${Money} usd=${run.cost_usd} /></span></div></li>`;

const Anomalies = ({ anomalies }) => html`<ol class="rows">${anomalies.newest.map((one) => html`<li key=${`${one.position}${one.kind}${one.subject}`}><div class="top"><${StateBadge} state="anomaly" word=${explained(one.kind).title} /><span class="nowrap dim">${one.at && html`<${Time} at=${one.at} relative /> `}<${PollLink} position=${one.position} /></span></div>
    <div class="under">${withCode(one.detail)} <${SubjectLink} subject=${one.subject} /></div></li>`)}</ol>`;

export const NoBudget = () => html`<${Empty} title="No budget is set" say="STENO_BUDGET=1400 steno up">With a budget, its use appears here, and a submission whose worst-case cost exceeds it is refused.<//>`;

const Newcomer = () => html`<section class="panel whole"><${Empty} title="This record is empty" say=${["steno up --provider dstack", "steno submit --wait -- 'echo hello'", "steno demo"]}>
  Nothing has been recorded yet. Start the recorder, submit a run here or from a shell, or take the tour:<//></section>`;

// A panel of a fixed height, whose content scrolls; nothing where it has none.
const Low = ({ title, more, label, show = true, children }) => (show ? html`<${Panel} title=${title} more=${more} class="low"><div class="scroll" tabindex="0" role="region" aria-label=${label}>${children}</div><//>` : null);

const nameOf = (vm) => vm && (vm.name || vm.provider_id);

function Board({ data, gaps }) {
  const at = useAt();
  const now = useNow();
  const failures = useFailures();
  const levers = useLevers();
  const inForce = levers.data?.levers ?? [];
  const machines = new Map(data.lanes.map(({ vm }) => [vm.vm_id, vm]));
  const up = data.lanes.filter(({ vm }) => vm.state !== "terminated" && !vm.archive).length;
  const waiting = data.running.filter((run) => run.run_id in data.queued || (run.waits && WAITS.has(run.state)));
  const going = data.running.filter((run) => !waiting.includes(run));
  const alone = (run) => going.filter((other) => other.vm_id === run.vm_id).length === 1;
  const rate = (run) => (at === null && run.state === "running" && alone(run) ? Number(machines.get(run.vm_id)?.price_usd_per_hour ?? 0) : 0);
  const nothing = !data.running.length && !data.recent.length && !data.lanes.length;
  const { budget, anomalies } = data;
  return html`<div class="board"><${Vitals} data=${data} machines=${up} />
    ${nothing && !data.sources.length && html`<${Newcomer} />`}
    ${inForce.length > 0 && html`<${Panel} title="Levers in force" class="whole"><${LeverRows} levers=${inForce} reload=${levers.reload} /><//>`}
    <div class="halves">
      <${Low} title="Running now" more=${html`<${Link} to="/runs">all runs<//>`} label="Runs that have not ended" show=${data.sources.length > 0 || !nothing}>${going.length ? html`<ol>${going.map((run) => html`<${LiveRun} key=${run.run_id} run=${run} machine=${nameOf(machines.get(run.vm_id))} line=${data.last_lines[run.run_id]} rate=${rate(run)} at=${ms(data.at)} />`)}</ol>`
    : html`<${Empty} title=${at === null ? "Nothing runs" : "Nothing ran then"} say=${at === null ? "steno submit --wait -- 'echo hello'" : null}>${at === null ? html`<${Link} to="/submit">Submit a run<//>, or from a shell:` : "Move along the tape to see another moment."}<//>`}<//>
      <${Low} title="Failed since you looked" label="Runs that failed since you looked" show=${failures.length > 0} more=${html`<button type="button" class="button small" onClick=${() => lookAt(failures)}>Mark as seen</button>`}>
        <ol class="rows">${failures.map((run) => html`<${EndedRow} key=${run.run_id} run=${run} />`)}</ol><//>
      <${Low} title="Waits" label="Runs that wait, and why" show=${waiting.length > 0} more=${count(waiting.length, "run")}><${Waiting} runs=${waiting} queued=${data.queued} /><//></div>
    ${data.lanes.length > 0 && html`<section class="panel whole" aria-label="Machines"><header><h2>Machines</h2><span class="grow"></span><span class="more"><${Link} to="/machines">all machines<//></span></header>
      <${Lanes} lanes=${data.lanes} window=${data.window} gaps=${gaps} /></section>`}
    <div class="halves">
      ${(budget.total_usd !== null || Number(budget.spent_usd) > 0) && html`<section class="panel fixed" aria-label="Budget"><header><h2>Budget</h2><span class="grow"></span><span class="more">${budget.total_usd === null ? "none set" : `${money(budget.total_usd)}, ${Number(budget.spent_usd) && budget.used_pct < 0.1 ? "< 0.1" : budget.used_pct} % spent`} · <${Link} to="/costs">costs<//></span></header>
      <${Burn} points=${data.burn} budget=${budget} now=${at === null ? now : ms(data.at)} /></section>`}
      ${data.idle_inside.length > 0 && html`<${IdleInside} days=${data.idle_inside} />`}
      <${Low} title="Anomalies" label="Newest anomalies" show=${anomalies.count > 0} more=${html`<${Link} to="/incidents">${anomalies.count > anomalies.newest.length ? `all ${number(anomalies.count)}` : "incidents"}<//>`}><${Anomalies} anomalies=${anomalies} /><//>
      <${Low} title="Recently ended" label="Runs that ended last" show=${data.recent.length > 0}><ol class="rows">${data.recent.map((run) => html`<${EndedRow} key=${run.run_id} run=${run} />`)}</ol><//></div></div>`;
}

export default function Page() {
  const read = useData("/api/overview", { every: 1000 });
  const gaps = useData("/api/incidents?limit=50", { every: 10_000 });
  const acts = useMay("admin") && useAt() === null;
  return html`<${PageHead} title="Overview">${acts && html`<span class="grow"></span>${Object.keys(LEVERS).filter((action) => action !== "keep").map((action) => html`<button type="button" key=${action} class="button small" onClick=${() => offer({ action })}>${LEVERS[action].verb}…</button>`)}`}<//><${Await} read=${read} height="5">${(data) => html`<${Board} data=${data} gaps=${[...(gaps.data?.blind ?? []).filter((gap) => gap.to !== null), ...data.blind]} />`}<//>`;
}
