"""Machines as tables: their bills, the phases of their lives, and who pays for which part."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from engine.fold.archives import until_of
from engine.fold.vm import Vm
from engine.kernel.listener_run import is_kept
from engine.money.costs import Charge, Costs, charges
from engine.money.report import gpu_of, user_of
from engine.objects import IntervalObject, VmObject
from events.clock import SECOND
from projections.frames.column import FrameTable, boolean, integer, money, seconds, text, texts, time
from projections.frames.run_tables import microusd, moment
from projections.store.world_table import decode_vm

if TYPE_CHECKING:
    from projections.frames.source import FrameSource

_vm: Final = msgspec.json.Decoder(VmObject).decode


class _Machine(NamedTuple):
    vm: Vm
    shown: VmObject
    costed_to: int  # the end of an open bill


class _Stretch(NamedTuple):
    machine: _Machine
    interval: IntervalObject

    @property
    def seconds(self) -> float:
        since, until = moment(self.interval.start) or 0, moment(self.interval.end)
        return max(0, (self.machine.costed_to if until is None else until) - since) / SECOND


class _Sum(NamedTuple):
    machine: _Machine
    charge: Charge
    username: str | None


def _machines(source: "FrameSource") -> Iterator[_Machine]:
    table, state = source.view.store.vms, source.view.state
    for row in source.counted(table.all(hidden=False), table.count()):
        vm = decode_vm(row.folded)
        yield _Machine(vm, _vm(row.object), until_of(state, vm))


def _stretches(source: "FrameSource") -> Iterator[_Stretch]:
    for machine in _machines(source):
        for interval in machine.shown.intervals:
            yield _Stretch(machine, interval)


def _sums(source: "FrameSource") -> Iterator[_Sum]:
    state = source.view.state
    costs = Costs(state)
    for machine in _machines(source):
        for charge in () if is_kept(machine.vm) else charges(costs.bill_of(machine.vm)):
            run = None if charge.run_id is None else state.runs.get(charge.run_id)
            yield _Sum(machine, charge, None if run is None else user_of(run))


MACHINES: Final = FrameTable[_Machine](
    "machines",
    "One machine with its bill, without those of hidden archives. An open bill counts up to the newest poll.",
    (
        text("vm_id", "Its id.", lambda one: one.shown.vm_id),
        text("name", "Its name.", lambda one: one.shown.name),
        text("provider", "Whose it is.", lambda one: one.vm.provider),
        text("provider_id", "The provider's id.", lambda one: one.shown.provider_id),
        text("source", "Whose polls show it, or its archive.", lambda one: one.shown.source),
        text("project", "The provider's project.", lambda one: one.vm.facts.project),
        text("backend", "The cloud it is rented from.", lambda one: one.vm.facts.backend),
        text("region", "Where it is.", lambda one: one.vm.facts.region),
        text("fleet", "The fleet it belongs to.", lambda one: one.vm.facts.fleet),
        text("instance_type", "The cloud's name for its kind.", lambda one: one.vm.facts.instance_type),
        text("gpu", "Model and number: `MI300X:2`; `none`.", lambda one: gpu_of(one.vm)),
        boolean("spot", "It may be interrupted.", lambda one: one.vm.facts.spot),
        text("state", "Where it is in its life.", lambda one: one.shown.state),
        text("reason", "The reason beside its end.", lambda one: one.shown.reason),
        boolean("ours", "Steno made it.", lambda one: one.vm.ours),
        text("made_for", "The run whose cold start made it.", lambda one: one.vm.made_for),
        texts("runs", "The ids of the runs on it, in order.", lambda one: one.shown.runs),
        time("created_at", "When it was created.", lambda one: one.vm.created),
        time("finished_at", "When it ended; null: it has not.", lambda one: one.vm.finished_at),
        time("last_seen_at", "The newest poll that showed it.", lambda one: one.vm.last_at),
        integer(
            "price_microusd",
            "The price in force.",
            lambda m: microusd(m.shown.price_usd_per_hour),
            unit="micro-dollars an hour",
        ),
        money("cost_microusd", "Its bill so far.", lambda one: microusd(one.shown.cost_usd)),
        money("cost_low_microusd", "The least it can be.", lambda m: microusd(m.shown.cost_low_usd)),
        money("cost_high_microusd", "The most it can be.", lambda m: microusd(m.shown.cost_high_usd)),
        text("archive", "The archive that holds it; null: live.", lambda one: one.shown.archive),
    ),
    _machines,
)

INTERVALS: Final = FrameTable[_Stretch](
    "intervals",
    "One stretch of a machine's life in one phase at one price.",
    (
        text("vm_id", "The machine.", lambda one: one.machine.shown.vm_id),
        text(
            "phase", "`provisioning`, `busy`, `idle`, `terminating` or `unconfirmed`.", lambda one: one.interval.phase
        ),
        time("since", "When it began.", lambda one: moment(one.interval.start)),
        time("until", "When it ended; null: it goes on.", lambda one: moment(one.interval.end)),
        seconds("seconds", "Its length, up to the newest poll if it goes on.", lambda one: one.seconds),
        money("cost_microusd", "Its part of the bill.", lambda one: microusd(one.interval.cost_usd)),
        text("archive", "The archive that holds the machine; null: live.", lambda one: one.machine.shown.archive),
    ),
    _stretches,
)

COSTS: Final = FrameTable[_Sum](
    "costs",
    "One sum of a machine's bill, and the run that pays it; the sums of a machine add up to its bill exactly.",
    (
        text("vm_id", "The machine.", lambda one: one.charge.vm_id),
        text("run_id", "The run that pays; null: none does.", lambda one: one.charge.run_id),
        text("username", "Who submitted that run.", lambda one: one.username),
        text("gpu", "Model and number of the machine: `MI300X:2`; `none`.", lambda one: gpu_of(one.machine.vm)),
        text(
            "line",
            "`busy`, `idle`, `provisioning`, `terminating`, `unconfirmed`, `unattributed` or `rounding`.",
            lambda one: one.charge.line.value,
        ),
        time("since", "From when it counts.", lambda one: one.charge.since),
        time("until", "Up to when.", lambda one: one.charge.until),
        seconds(
            "seconds",
            "Its share of the machine's time; those of a machine add up to its life.",
            lambda one: one.charge.time / SECOND,
        ),
        money("cost_microusd", "The sum.", lambda one: one.charge.cost),
        integer(
            "price_microusd",
            "The price of the whole machine then.",
            lambda one: one.charge.hourly,
            unit="micro-dollars an hour",
        ),
        text("archive", "The archive that holds the machine; null: live.", lambda one: one.machine.shown.archive),
    ),
    _sums,
)
