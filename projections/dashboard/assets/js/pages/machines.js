// Every machine, what it is doing and what it has cost.
import { html, useState } from "../core/dom.js";
import { useNow } from "../core/clock.js";
import { about, useArchiveEnds, useData } from "../core/data.js";
import { get } from "../core/api.js";
import { asked, useAt, useView } from "../core/moment.js";
import { useQuery } from "../core/router.js";
import { duration, ms, number, price } from "../core/words.js";
import { several } from "./runs/filters.js";
import { ArchiveMark, Await, Empty, Fresh, Money, PageHead, Problem, StateBadge, Table, VmLink, useSteady } from "../ui/all.js";

export const title = () => "Machines";

const LIVE = "/api/vms?limit=200&live=true";
const gpuOf = (vm) => (vm.gpu ? `${vm.gpu}${vm.gpu_count > 1 ? ` × ${vm.gpu_count}` : ""}` : "–");

const life = (vm, now) => {
  const [first, last] = [vm.intervals[0], vm.intervals.at(-1)];
  return first ? (last.to === null ? now : ms(last.to)) - ms(first.from) : null;
};

export default function Page() {
  const at = useAt();
  const view = useView();
  const now = useNow();
  const [live, choose] = useQuery("live");
  const [filter, write] = useQuery("find", "");
  const path = `/api/vms?limit=100${live ? "&live=true" : ""}`;
  const read = useData(path, { on: about.vms, beat: 5000 }); // bills go on without a message
  const [older, add] = useState({ key: "", vms: [], next: undefined, error: null });
  const key = `${path} ${view}`;
  const mine = older.key === key ? older : { key, vms: [], next: undefined, error: null };
  const more = async (next) => {
    try {
      const found = await get(`${path}&cursor=${encodeURIComponent(next)}`, asked(view));
      add({ key, vms: [...mine.vms, ...found.vms], next: found.next, error: null });
    } catch (error) { add({ ...mine, error }); }
  };
  const ends = useArchiveEnds(read.data?.vms.some((vm) => vm.archive));
  const listed = read.data === null ? [] : [...read.data.vms, ...mine.vms.filter((vm) => !read.data.vms.some((one) => one.vm_id === vm.vm_id))];
  const shared = several(listed.map((vm) => vm.name));
  const columns = [
    { head: "Machine", cell: (vm) => html`<${VmLink} id=${vm.vm_id} name=${vm.name || vm.provider_id} row />${shared.has(vm.name) && html` <span class="dim">${vm.source} <span class="mono">${vm.vm_id.slice(0, 8)}</span></span>`}<${ArchiveMark} of=${vm} />` },
    { head: "State", cell: (vm) => html`<${StateBadge} of=${vm} />` },
    { head: "GPU", hide: "narrow", cell: gpuOf },
    { head: "Region", hide: "narrow", cell: (vm) => vm.region ?? "–" },
    { head: "User", hide: "narrow", cell: (vm) => vm.user ?? "–" },
    { head: "$ an hour", right: true, hide: "phone", cell: (vm) => price(vm.price_usd_per_hour) },
    { head: "Age", right: true, hide: "phone", cell: (vm) => duration(life(vm, vm.archive ? ends.get(vm.archive) ?? null : now)) },
    { head: "Runs", right: true, hide: "narrow", cell: (vm) => number(vm.runs.length) },
    { head: "Cost", right: true, cell: (vm) => html`<${Money} usd=${vm.cost_usd} />` },
  ];
  const steady = useSteady(listed, (vm) => vm.vm_id, key);
  const words = filter.toLowerCase().split(/\s+/);
  const fits = (vm) => words.every((word) => `${vm.name} ${vm.vm_id} ${vm.provider_id} ${vm.state} ${gpuOf(vm)} ${vm.region} ${vm.user} ${vm.source}`.toLowerCase().includes(word));
  const rows = steady.rows.filter(fits);
  const up = useData(LIVE, { on: about.vms, beat: 5000 }).data?.vms.filter(fits);
  const next = mine.next === undefined ? read.data?.next : mine.next;
  return html`<${PageHead} title="Machines" />
    <div class="filters"><label class="field grow"><span class="label">Find</span><input class="input" data-filter type="search" placeholder="name, GPU, region, user" value=${filter} onInput=${(event) => write(event.target.value || null)} /></label>
      <button type="button" class="button" aria-pressed=${String(Boolean(live))} onClick=${() => choose(live ? null : "1")}>${live ? "Show all" : "Only those that may be billed"}</button>
      ${up && html`<strong class="sum" role="status">${number(up.length)} up, ${price(up.reduce((sum, vm) => sum + Number(vm.price_usd_per_hour ?? 0), 0).toFixed(6))}/h</strong>`}
      <${Fresh} steady=${steady} noun="machine" /></div>
    <${Await} read=${read} height="5">${() => html`<section class="panel flush">${rows.length ? html`<${Table} caption="Machines" columns=${columns} rows=${rows} rowKey=${(vm) => vm.vm_id} />`
    : listed.length ? html`<${Empty} title="No machine matches “${filter}”" />`
      : html`<${Empty} title=${live ? "No machine may be billed" : at === null ? "No machine yet" : "No machine yet at this moment"} say=${at === null && !live ? "steno up --provider dstack" : null}>${at === null && !live ? "Machines appear here once a provider lists one." : ""}<//>`}</section>
      <${Problem} error=${mine.error} />${next && html`<p><button type="button" class="button" onClick=${() => more(next)}>Older machines</button></p>`}`}<//>`;
}
