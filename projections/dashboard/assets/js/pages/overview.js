// What runs now, what it costs, and what is wrong.
import { html } from "../core/dom.js";
import { useNow } from "../core/clock.js";
import { useData } from "../core/data.js";
import { useAt } from "../core/moment.js";
import { Link } from "../core/router.js";
import { called, cents, count, money, moment, ms, number, price, short, unseen } from "../core/words.js";
import { Await, Empty, Elapsed, Money, PageHead, Panel, PollLink, RunLink, StartMark, StateBadge, SubjectLink, Time } from "../ui/all.js";
import { Burn } from "../ui/burn.js";
import { Lanes } from "../ui/lanes.js";
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
  const note = !sources.length ? "no source polled yet" : worst === "fresh" ? (sources.length === 1 ? sources[0].name : `all ${sources.length} answer`) : `${many}${last ? `, ${worst === "blind" ? `${unseen(ones)} since` : "last answer"} ${moment(last)}` : ", never answered"}`;
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

function LiveRun({ run, machine }) {
  const started = run.started_at ?? run.submitted_at;
  return html`<li class="live-run"><div class="name"><${RunLink} id=${run.run_id} name=${called(run)} /></div><div class="clock"><${Elapsed} from=${started} to=${run.finished_at} /></div>
    <div class="where"><${StateBadge} state=${run.state} phase=${run.phase} />${machine ? ` on ${machine}` : ""}${run.attempts > 1 ? `, attempt ${run.attempts}` : ""}${run.start ? html` <${StartMark} start=${run.start} />` : ""}</div>
    <div class="cost">${run.cost_usd === null ? "no cost yet" : html`<${Money} usd=${run.cost_usd} />`}</div></li>`;
}

function Queue({ data }) {
  const now = useNow();
  const names = new Map(data.running.map((run) => [run.run_id, called(run)]));
  const rows = Object.entries(data.queued).sort(([, a], [, b]) => a.position - b.position);
  if (!rows.length) return null;
  return html`<h3 class="waits">In the queue</h3><ol class="rows">${rows.map(([id, one]) => html`<li key=${id}><div class="top"><span>#${one.position} <${RunLink} id=${id} name=${names.get(id) ?? short(id)} /></span>
    <span class="dim nowrap">${one.estimated_start === null || ms(one.estimated_start) <= now ? (one.position === 1 ? "next" : "start unknown") : html`<${Time} at=${one.estimated_start} relative />`}</span></div>
    <div class="under">${one.detail || one.why}</div></li>`)}</ol>`;
}

function Anomalies({ anomalies }) {
  if (!anomalies.count) return html`<${Empty} title="None">Contradictions, missing items and unknown statuses of the provider appear here.<//>`;
  return html`<ol class="rows">${anomalies.newest.map((one) => html`<li key=${`${one.position}${one.kind}${one.subject}`}><div class="top"><${StateBadge} state="anomaly" word=${explained(one.kind).title} /><span class="nowrap dim">${one.at && html`<${Time} at=${one.at} relative /> `}<${PollLink} position=${one.position} /></span></div>
    <div class="under">${one.detail} <${SubjectLink} subject=${one.subject} /></div></li>`)}</ol>`;
}

function Recent({ recent }) {
  if (!recent.length) return html`<${Empty} title="No live run has ended yet"><${Link} to="/runs">All runs<//> lists those of archives too.<//>`;
  return html`<ol class="rows">${recent.map((run) => html`<li key=${run.run_id}><div class="top"><${RunLink} id=${run.run_id} name=${called(run)} /><span class="dim nowrap"><${Time} at=${run.finished_at} relative /></span></div>
    <div class="top"><${StateBadge} of=${run} /><span class="dim nowrap"><${Money} usd=${run.cost_usd} /></span></div></li>`)}</ol>`;
}

export const NoBudget = () => html`<${Empty} title="No budget is set" say="STENO_BUDGET=1400 steno up">With a budget, its use appears here, and a submission whose worst-case cost exceeds it is refused.<//>`;

const Newcomer = () => html`<section class="panel whole"><${Empty} title="This record is empty" say=${["steno up --provider dstack", "steno submit --wait -- 'echo hello'", "steno demo"]}>
  Nothing has been recorded yet. Start the recorder, submit a run here or from a shell, or take the tour:<//></section>`;

function Board({ data, gaps }) {
  const at = useAt();
  const now = useNow();
  const names = new Map(data.lanes.map(({ vm }) => [vm.vm_id, vm.name || vm.provider_id]));
  const up = data.lanes.filter(({ vm }) => vm.state !== "terminated" && !vm.archive).length;
  const going = data.running.filter((run) => !(run.run_id in data.queued));
  const nothing = !data.running.length && !data.recent.length && !data.lanes.length;
  return html`<div class="board"><${Vitals} data=${data} machines=${up} />
    ${nothing && !data.sources.length && html`<${Newcomer} />`}
    <section class="panel fixed" aria-label="Running now"><header><h2>Running now</h2><span class="grow"></span><span class="more"><${Link} to="/runs">all runs<//></span></header>
      <div class="scroll" tabindex="0" role="region" aria-label="Runs that have not ended, and the queue">${going.length ? html`<ol>${going.map((run) => html`<${LiveRun} key=${run.run_id} run=${run} machine=${names.get(run.vm_id)} />`)}</ol>`
    : html`<${Empty} title=${at === null ? "No active runs" : "No active runs then"} say=${at === null ? "steno submit --wait -- 'echo hello'" : null}>${at === null ? html`<${Link} to="/submit">Submit a run<//>, or from a shell:` : "Move along the tape to see another moment."}<//>`}<${Queue} data=${data} /></div></section>
    <section class="panel fixed" aria-label="Budget"><header><h2>Budget</h2><span class="grow"></span><span class="more">${data.budget.total_usd === null ? "none set" : `${money(data.budget.total_usd)}, ${data.budget.used_pct} % spent`} · <${Link} to="/costs">costs<//></span></header>
      <${Burn} points=${data.burn} budget=${data.budget} now=${at === null ? now : ms(data.at)}><${NoBudget} /><//></section>
    <section class="panel whole" aria-label="Machines"><header><h2>Machines</h2><span class="grow"></span><span class="more"><${Link} to="/machines">all machines<//></span></header>
      <${Lanes} lanes=${data.lanes} window=${data.window} gaps=${gaps}><${Empty} title="No machine yet">Machines appear here once a provider lists one.<//><//></section>
    <div class="halves">
      <section class="panel low" aria-label="Anomalies"><header><h2>Anomalies</h2><span class="grow"></span><span class="more"><${Link} to="/incidents">${data.anomalies.count > data.anomalies.newest.length ? `all ${number(data.anomalies.count)}` : "incidents"}<//></span></header><div class="scroll" tabindex="0" role="region" aria-label="Newest anomalies"><${Anomalies} anomalies=${data.anomalies} /></div></section>
      <section class="panel low" aria-label="Recently ended"><header><h2>Recently ended</h2></header><div class="scroll" tabindex="0" role="region" aria-label="Runs that ended last"><${Recent} recent=${data.recent} /></div></section>
    </div></div>`;
}

export default function Page() {
  const read = useData("/api/overview", { every: 1000 });
  const gaps = useData("/api/incidents?limit=50", { every: 10_000 });
  return html`<${PageHead} title="Overview" /><${Await} read=${read} height="5">${(data) => html`<${Board} data=${data} gaps=${[...(gaps.data?.blind ?? []).filter((gap) => gap.to !== null), ...data.blind]} />`}<//>`;
}
