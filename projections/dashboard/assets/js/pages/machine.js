// One machine: why it is up, what was on it, and its bill phase by phase.
import { html, useState } from "../core/dom.js";
import { useNow } from "../core/clock.js";
import { about, useArchiveEnds, useData } from "../core/data.js";
import { post } from "../core/api.js";
import { KEEPABLE, offer, useLevers } from "../core/levers.js";
import { useAt } from "../core/moment.js";
import { Link } from "../core/router.js";
import { useMay } from "../core/session.js";
import { called, count, day, duration, money, ms, price } from "../core/words.js";
import { ArchiveMark, Await, Duration, Elapsed, Empty, Missing, Money, PageHead, Panel, PollLink, Problem, RunLink, StateBadge, Table, Time, confirm, toast, withCode } from "../ui/all.js";
import { LeverRows } from "../ui/levers.js";
import { explained } from "./incidents/words.js";

export const title = ({ id }) => `Machine ${id.slice(0, 8)}`;

function Actions({ vm, reload }) {
  const [error, say] = useState(null);
  const [busy, work] = useState(false);
  const may = useMay("admin");
  const at = useAt();
  if (!may || vm.state === "terminated" || vm.ours === false || vm.archive) return null; // what Steno did not make it never ends
  const ask = async (whenIdle) => {
    const name = vm.name || vm.provider_id;
    const text = whenIdle ? "It is stopped once no run is on it. Until then no new run is placed on it." : "The provider is asked to stop it now. A run on it is lost.";
    const bill = ` It has cost ${money(vm.cost_usd)}, and costs ${price(vm.price_usd_per_hour)} an hour until then.`;
    if (!(await confirm({ title: `Stop ${name}${whenIdle ? " when idle" : ""}?`, text: text + bill, yes: whenIdle ? "Stop it when idle" : "Stop it now", danger: !whenIdle }))) return;
    work(true);
    try {
      const answer = await post(`/api/vms/${encodeURIComponent(vm.vm_id)}/stop`, whenIdle ? { when_idle: true } : {});
      toast(answer.asked === false ? "A stop was already requested." : `Stop requested at position ${answer.position}.`);
      say(null); reload();
    } catch (problem) { say(problem); }
    work(false);
  };
  const off = busy || at !== null;
  const why = at !== null ? "Go back to live first" : null;
  return html`<span class="grow"></span><button type="button" class="button" disabled=${off} title=${why} onClick=${() => ask(true)}>Stop when idle</button>
    ${KEEPABLE.includes(vm.state) && html`<button type="button" class="button" disabled=${off} title=${why} onClick=${() => offer({ action: "keep", vm_id: vm.vm_id, name: vm.name || vm.provider_id, for: "2h" })}>Keep…</button>`}
    <button type="button" class="button danger" disabled=${off} title=${why} onClick=${() => ask(false)}>Stop</button>${error && html`<${Problem} error=${error} />`}`;
}

function Share({ vm, now }) {
  const spans = vm.intervals.map((one) => ({ ...one, length: (one.to === null ? now : ms(one.to)) - ms(one.from) })).filter((one) => one.length > 0);
  const whole = spans.reduce((sum, one) => sum + one.length, 0) || 1;
  return html`<div class="share">${spans.map((one) => html`<span key=${one.from} style=${{ flex: `${one.length / whole} 0 0` }}><b class="block p-${one.phase}" title="${one.phase}, ${duration(one.length)}, ${money(one.cost_usd)}"></b></span>`)}</div>`;
}

function Bill({ vm, now, silent }) {
  const columns = [
    { head: "Phase", cell: (one) => html`<${StateBadge} state=${one.phase} />` },
    { head: "From", below: true, cell: (one) => html`<${Time} at=${one.from} />` },
    { head: "To", hide: "phone", cell: (one) => (one.to === null ? html`<span class="dim">still</span>` : html`<${Time} at=${one.to} clock=${day(one.to) === day(one.from)} />`) },
    { head: "Lasted", right: true, cell: (one) => html`<${Elapsed} from=${one.from} to=${one.to ?? (silent ? now : null)} />` },
    { head: "Cost", right: true, cell: (one) => html`<${Money} usd=${one.cost_usd} />` },
  ];
  return html`<${Panel} title="Bill" flush more=${vm.cost_low_usd === vm.cost_high_usd ? null : `the true cost is ${money(vm.cost_low_usd)}–${money(vm.cost_high_usd)}: exact start and end times are unknown`}>
    <${Table} caption="Phases of the bill" columns=${columns} rows=${vm.intervals} rowKey=${(one) => one.from} foot=${["total", "", "", duration(vm.intervals.reduce((sum, one) => sum + (one.to === null ? now : ms(one.to)) - ms(one.from), 0)), money(vm.cost_usd)]} /><//>`;
}

const SHOWN = 20; // runs, the newest

function Runs({ ids }) {
  if (!ids.length) return html`<${Empty} title="No runs on this machine" />`;
  return html`<ol class="rows">${[...ids].reverse().slice(0, SHOWN).map((id) => html`<${RunRow} key=${id} id=${id} />`)}</ol>
    ${ids.length > SHOWN && html`<p class="dim">and ${count(ids.length - SHOWN, "earlier run")}: <${Link} to="/costs?by=run">costs by run<//></p>`}`;
}

function RunRow({ id }) {
  const { data: run } = useData(`/api/runs/${id}`, { on: about.run(id) });
  if (run === null) return html`<li><div class="top"><${RunLink} id=${id} /><span></span></div><div class="top"><span class="dim">…</span></div></li>`;
  return html`<li><div class="top"><${RunLink} id=${id} name=${called(run)} /><span class="dim nowrap"><${Money} usd=${run.cost_usd} /></span></div>
    <div class="top"><${StateBadge} of=${run} /><span class="dim nowrap">${run.execution_seconds === null && run.started_at && !run.finished_at ? html`<${Elapsed} from=${run.started_at} />` : html`<${Duration} seconds=${run.execution_seconds} />`}</span></div></li>`;
}

// A bill goes to the last poll: what an open phase has lasted ends there too while its source is silent.
function useUntil(vm) {
  const now = useNow();
  const ends = useArchiveEnds(vm.archive);
  const source = useData("/api/overview", { every: 2000 }).data?.sources.find((one) => one.name === vm.source);
  if (vm.archive) return { until: ends.get(vm.archive) ?? ms(vm.created_at), silent: true };
  if (!source || source.observability === "fresh") return { until: now, silent: false };
  return { until: Math.min(now, ms(source.last_answered) ?? now), silent: true };
}

const WORDS = [["source", "source"], ["gpu", "GPU"], ["backend", "backend"], ["region", "region"], ["project", "project"], ["fleet", "fleet"]];

function Facts({ vm }) {
  return html`<${Panel} title="Details"><dl class="facts">
    ${WORDS.map(([key, word]) => vm[key] && html`<dt key=${key}>${word}</dt><dd>${key === "gpu" && vm.gpu_count > 1 ? `${vm.gpu} × ${vm.gpu_count}` : vm[key]}${key === "gpu" && vm.spot ? ", spot" : ""}</dd>`)}
    ${vm.ours !== undefined && html`<dt>ours</dt><dd>${vm.ours ? "yes" : "no: Steno never stops it, and it does not count towards vms.max"}</dd>`}
    ${vm.made_for && html`<dt>made for</dt><dd><${RunLink} id=${vm.made_for} /></dd>`}
    ${vm.created_at && html`<dt>created</dt><dd><${Time} at=${vm.created_at} both /></dd>`}
    ${vm.idle_since && html`<dt>idle since</dt><dd><${Time} at=${vm.idle_since} both /></dd>`}
    ${vm.unreachable && vm.state !== "terminated" && html`<dt>unreachable</dt><dd>yes: the minimum bill no longer grows</dd>`}
    ${vm.health && html`<dt>health check</dt><dd>${vm.health}</dd>`}
    <dt>machine id</dt><dd class="mono">${vm.vm_id}</dd><dt>provider’s id</dt><dd class="mono">${vm.provider_id}</dd></dl><//>`;
}

function Machine({ vm, read }) {
  const levers = useLevers();
  const mine = (levers.data?.levers ?? []).filter((lever) => lever.vm_id === vm.vm_id);
  const { until: now, silent } = useUntil(vm);
  const first = vm.intervals[0];
  const last = vm.intervals.at(-1);
  return html`<${PageHead} title=${vm.name || vm.provider_id}><${StateBadge} of=${vm} chip /><${ArchiveMark} of=${vm} /><${Actions} vm=${vm} reload=${read.reload} /><//>
    <div class="stack"><section class="panel"><div class="figures">
      <div class="figure"><div class="value">${money(vm.cost_usd)}</div><div class="label">${last?.to ? "cost" : silent ? "cost to the last poll" : "cost so far"}</div></div>
      <div class="figure"><div class="value">${price(vm.price_usd_per_hour)}</div><div class="label">an hour</div></div>
      <div class="figure"><div class="value">${first ? html`<${Elapsed} from=${first.from} to=${last.to ?? (silent ? now : null)} />` : "–"}</div><div class="label">${last?.to ? "lived" : silent ? "up, to the last poll" : "up"}</div></div>
      <div class="figure"><div class="value">${vm.runs.length}</div><div class="label">${vm.runs.length === 1 ? "run" : "runs"}</div></div></div></section>
    <div class="machine-grid"><div class="stack">
      <${Panel} title=${vm.state === "terminated" ? "Why it is gone" : "Why it is up"}><ul class="bullets">${vm.why_up.map((line) => html`<li key=${line}>${withCode(line)}</li>`)}</ul>${vm.why_up.length === 0 && html`<span class="dim">No information.</span>`}${mine.length > 0 && html`<${LeverRows} levers=${mine} reload=${levers.reload} />`}<//>
      <section class="panel" aria-label="Lifetime"><header><h2>Lifetime</h2><span class="grow"></span><span class="more">${first && html`<${Time} at=${first.from} /> to ${last.to ? html`<${Time} at=${last.to} />` : "now"}`}</span></header><${Share} vm=${vm} now=${now} /></section>
      <${Bill} vm=${vm} now=${now} silent=${silent} /></div>
    <div class="stack"><${Facts} vm=${vm} /><${Panel} title="Runs on it"><${Runs} ids=${vm.runs} /><//>
      <${Panel} title="Anomalies">${vm.anomalies.length ? html`<ol class="rows">${vm.anomalies.map((one) => html`<li key=${one.position}><div class="top"><${StateBadge} state="anomaly" word=${explained(one.kind).title} /><${PollLink} position=${one.position} /></div><div class="under">${withCode(one.detail)}</div></li>`)}</ol>` : html`<span class="dim">None.</span>`}<//></div></div></div>`;
}

export default function Page({ params }) {
  const read = useData(`/api/vms/${encodeURIComponent(params.id)}`, { on: about.vm(params.id), beat: 5000 }); // its bill goes on without a message
  const at = useAt();
  if (read.error?.status === 404) return html`<${Missing} kind="machine" id=${params.id} past=${at !== null} />`;
  if (read.data === null) return html`<${PageHead} title="Machine" /><${Await} read=${read} height="5" />`;
  return html`<${Await} read=${read}>${(vm) => html`<${Machine} vm=${vm} read=${read} />`}<//>`;
}
