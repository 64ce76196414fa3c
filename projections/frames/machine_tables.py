"""Machines as tables: their bills, the phases of their lives, and who pays for which part."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from steno.engine.money.costs import Charge, Costs, charges
from steno.engine.money.report import gpu_of, user_of
from steno.engine.objects import IntervalObject, VmObject
from steno.engine.state.archives import until_of
from steno.engine.state.kernel_mark import is_kept
from steno.engine.state.vm import Vm
from steno.events.clock import SECOND
from steno.projections.frames.run_tables import microusd, moment
from steno.projections.frames.source import FrameSource
from steno.projections.frames.table import FrameTable, boolean, integer, money, seconds, text, texts, time


class BilledVm(NamedTuple):
    vm: Vm
    object: VmObject
    costed_to: int  # the end of an open bill


class _Stretch(NamedTuple):
    machine: BilledVm
    interval: IntervalObject

    @property
    def seconds(self) -> float:
        since, until = moment(self.interval.start) or 0, moment(self.interval.end)
        return max(0, (self.machine.costed_to if until is None else until) - since) / SECOND


class _Sum(NamedTuple):
    machine: BilledVm
    charge: Charge
    username: str | None


def machines_of(source: FrameSource) -> Iterator[BilledVm]:
    table, state = source.view.store.vms, source.view.state
    for row in source.counted(table.all(hidden=False), table.count()):
        yield BilledVm(vm := row.decoded, row.public, until_of(state, vm))


def _stretches(source: FrameSource) -> Iterator[_Stretch]:
    for machine in machines_of(source):
        for interval in machine.object.intervals:
            yield _Stretch(machine, interval)


def _sums(source: FrameSource) -> Iterator[_Sum]:
    state = source.view.state
    costs = Costs(state)
    for machine in machines_of(source):
        for charge in () if is_kept(machine.vm) else charges(costs.bill_of(machine.vm)):
            run = None if charge.run_id is None else state.runs.get(charge.run_id)
            yield _Sum(machine, charge, None if run is None else user_of(run))


MACHINES: Final = FrameTable[BilledVm](
    "machines",
    "One machine with its bill, without those of hidden archives. An open bill counts up to the newest poll.",
    (
        text("vm_id", "Its id.", lambda row: row.object.vm_id),
        text("name", "Its name.", lambda row: row.object.name),
        text("provider", "Its provider.", lambda row: row.vm.provider),
        text("provider_id", "The provider's id.", lambda row: row.object.provider_id),
        text("source", "Whose polls show it, or its archive.", lambda row: row.object.source),
        text("project", "The provider's project.", lambda row: row.vm.facts.project),
        text("backend", "The cloud it is rented from.", lambda row: row.vm.facts.backend),
        text("region", "Its region.", lambda row: row.vm.facts.region),
        text("fleet", "The fleet it belongs to.", lambda row: row.vm.facts.fleet),
        text("instance_type", "The cloud's name for its kind.", lambda row: row.vm.facts.instance_type),
        text("gpu", "Model and number: `MI300X:2`; `none`.", lambda row: gpu_of(row.vm)),
        boolean("spot", "It may be interrupted.", lambda row: row.vm.facts.spot),
        text("state", "Where it is in its life.", lambda row: row.object.state),
        text("reason", "The reason beside its end.", lambda row: row.object.reason),
        boolean("ours", "Steno made it.", lambda row: row.vm.ours),
        text("made_for", "The run whose cold start made it.", lambda row: row.vm.made_for),
        texts("runs", "The ids of the runs on it, in order.", lambda row: row.object.runs),
        time("created_at", "When it was created.", lambda row: row.vm.created),
        time("finished_at", "When it ended; null: it has not.", lambda row: row.vm.finished_at),
        time("last_seen_at", "The newest poll that showed it.", lambda row: row.vm.last_at),
        integer(
            "price_microusd",
            "The price in force.",
            lambda row: microusd(row.object.price_usd_per_hour),
            unit="micro-dollars an hour",
        ),
        money("cost_microusd", "Its bill so far.", lambda row: microusd(row.object.cost_usd)),
        money("cost_low_microusd", "The least it can be.", lambda row: microusd(row.object.cost_low_usd)),
        money("cost_high_microusd", "The most it can be.", lambda row: microusd(row.object.cost_high_usd)),
        text("archive", "The archive that holds it; null: live.", lambda row: row.object.archive),
    ),
    machines_of,
)

INTERVALS: Final = FrameTable[_Stretch](
    "intervals",
    "One stretch of a machine's life in row phase at row price.",
    (
        text("vm_id", "The machine.", lambda row: row.machine.object.vm_id),
        text(
            "phase", "`provisioning`, `busy`, `idle`, `terminating` or `unconfirmed`.", lambda row: row.interval.phase
        ),
        time("since", "When it began.", lambda row: moment(row.interval.start)),
        time("until", "When it ended; null: it goes on.", lambda row: moment(row.interval.end)),
        seconds("seconds", "Its length, up to the newest poll if it goes on.", lambda row: row.seconds),
        money("cost_microusd", "Its part of the bill.", lambda row: microusd(row.interval.cost_usd)),
        text("archive", "The archive that holds the machine; null: live.", lambda row: row.machine.object.archive),
    ),
    _stretches,
)

COSTS: Final = FrameTable[_Sum](
    "costs",
    "One sum of a machine's bill, and the run that pays it; the sums of a machine add up to its bill exactly.",
    (
        text("vm_id", "The machine.", lambda row: row.charge.vm_id),
        text("run_id", "The run that pays; null: none does.", lambda row: row.charge.run_id),
        text("username", "Who submitted that run.", lambda row: row.username),
        text("gpu", "Model and number of the machine: `MI300X:2`; `none`.", lambda row: gpu_of(row.machine.vm)),
        text(
            "line",
            "`busy`, `idle`, `provisioning`, `terminating`, `unconfirmed`, `unattributed` or `rounding`.",
            lambda row: row.charge.line.value,
        ),
        time("since", "From when it counts.", lambda row: row.charge.since),
        time("until", "Up to when.", lambda row: row.charge.until),
        seconds(
            "seconds",
            "Its share of the machine's time; those of a machine add up to its life.",
            lambda row: row.charge.time / SECOND,
        ),
        money("cost_microusd", "The sum.", lambda row: row.charge.cost),
        integer(
            "price_microusd",
            "The price of the whole machine then.",
            lambda row: row.charge.hourly,
            unit="micro-dollars an hour",
        ),
        text("archive", "The archive that holds the machine; null: live.", lambda row: row.machine.object.archive),
    ),
    _sums,
)
