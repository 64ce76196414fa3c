"""The levers in force, and what a lever is about: its runs and machines, and what they cost."""

from typing import Annotated

import msgspec
from msgspec import Meta

from steno.engine.money.prices import Book, rung_at
from steno.engine.state.levers import is_of, matches, stopped_by
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.submit.levers import in_force
from steno.engine.wire import Shape, Time, Usd
from steno.events.levers import LeverPulled
from steno.projections.read_models.schema import RunRow, VmRow
from steno.projections.read_models.view import View, waits

Names = Annotated[tuple[str, ...], Meta(description="Names; the beginning of an id where there is none.")]


class LeverReach(Shape, frozen=True, kw_only=True, rename={"spent": "spent_usd", "cost_hourly": "cost_usd_per_hour"}):
    """The reach of a lever now: the runs that it stops or holds back, and the machines that it ends or keeps, or that
    the runs are on.
    """

    runs: Names
    machines: Names
    spent: Annotated[Usd, Meta(description="What these runs cost so far; of a kept machine what that cost.")]
    cost_hourly: Annotated[Usd, Meta(description="What these machines cost an hour now.")]


class LeverObject(LeverReach, frozen=True, kw_only=True):
    """A lever in force."""

    lever_id: str
    action: str
    user: str | None
    gpu: str | None
    source: str | None
    state: str | None
    vm_id: str | None
    until: Time | None
    why: str
    by: str
    at: Time


class LeverList(Shape, frozen=True, kw_only=True):
    """Every lever in force, the oldest first."""

    levers: tuple[LeverObject, ...]


def reach(view: View, lever: LeverPulled, now: int) -> LeverReach:
    """The runs and machines that a lever is about, or would be about if it were pulled now."""
    state, runs, machines = view.state, list[Run](), list[Vm]()
    match lever.action:
        case "keep":
            machines = [state.vms[lever.vm_id or ""]]
        case "stop":
            runs = stopped_by(lever, state.runs.open())
            ids = dict.fromkeys(vm_id for run in runs for vm_id in run.links.values())
            machines = [vm for vm_id in ids if (vm := state.vms[vm_id]).billed]
        case _:
            runs = [run for run in state.runs.open() if waits(run) and matches(lever, run)]
            if lever.action == "drain":
                machines = [vm for vm in state.vms.open() if vm.ours and vm.billed and is_of(lever, vm.source)]
    kept = [view.store.vms.get(vm.vm_id) for vm in machines if lever.action == "keep"]
    paid = [view.store.runs.get(run.run_id) for run in runs]
    book = Book.of(state)
    return LeverReach(
        runs=tuple(run.name or run.run_id[:8] for run in runs),
        machines=tuple(vm.facts.name or vm.vm_id[:8] for vm in machines),
        spent=sum((row.cost or 0) for row in (*kept, *paid) if isinstance(row, RunRow | VmRow)),
        cost_hourly=sum(rung_at(book.tariff(vm), now).best for vm in machines if vm.billed),
    )


def lever_object(view: View, lever: LeverPulled, now: int) -> LeverObject:
    known, about = view.state.levers.get(lever.lever_id), msgspec.structs.asdict(reach(view, lever, now))
    return LeverObject(**about, **msgspec.structs.asdict(lever), at=now if known is None else known.at)


def levers(view: View, now: int) -> LeverList:
    return LeverList(levers=tuple(lever_object(view, lever.pulled, now) for lever in in_force(view.state, now)))
