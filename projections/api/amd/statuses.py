"""The new statuses of one kernel for a client, with current figures."""

import copy
from typing import Any

import msgspec

from steno.engine.decide.budget import starts_of
from steno.engine.decide.queue import may_be_made_again
from steno.engine.errors import RunNotFound
from steno.engine.money.costs import Costs
from steno.engine.providers.registry import READINGS
from steno.engine.state.run import Run
from steno.engine.state.world import World, policy_of, source_of
from steno.engine.wire import DOLLAR
from steno.events.clock import SECOND, format_time
from steno.events.store.record import Record
from steno.projections.answers.kernel import KernelEvent, Status, facts_of, statuses
from steno.projections.api.feed.framer import event_id
from steno.projections.api.service import Service

_STARTS = {"cold": "COLD_START", "warm": "WARM_REUSE"}


class VmMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The run's machine, and all machines."""

    vm_id: str | None
    price_usd_per_hour: float | None
    active_vms: int
    cold_starts: int
    warm_reuses: int


class StatusObject(msgspec.Struct, frozen=True, kw_only=True):
    """A status; what else its task said (`test`, `sizes`, `median_ms` …) are further keys of the same object."""

    position: int
    status: str
    message: str
    run_id: str
    name: str | None
    at: str
    elapsed_seconds: float  # since the submission
    vm_state: str | None  # COLD_START or WARM_REUSE; None until the machine is known
    cost_usd: float | None  # so far, or in all
    vm_metrics: VmMetrics
    final: bool


class Story:
    """The statuses of a kernel for one client. For one thread at a time."""

    def __init__(self, service: Service, run_id: str, after: int = 0) -> None:
        """`after`: the last position the client knows."""
        self._service = service
        self._run_id = run_id
        self._told = after
        self._stamp: tuple[object, ...] | None = None
        self._facts: dict[int, KernelEvent] = {}
        self._read = 0
        self.over = False  # the last status has been told

    def news(self) -> list[tuple[bytes, bytes]]:
        """(message id, JSON text) of each status since the last call; raises `RunNotFound` if there is no such kernel
        run.
        """
        with self._service.feed.state() as state:
            run = state.runs.get(self._run_id)
            if run is None or run.said is None:
                raise RunNotFound(f"there is no kernel {self._run_id!r}; POST /api/amd/submit names each in its stream")
            patience = policy_of(state, source_of(run)).queue_patience
            again = run.terminal and may_be_made_again(run, patience, self._service.clock.now())
            held = None if run.held is None else run.held.position
            stamp = (run.transitions, run.said, held, run.reason, run.provider_id, again)
            if stamp == self._stamp:
                return []
            self._stamp = stamp
            run, position = copy.copy(run), state.position
            cost, machine = Costs(state).of_run(run.run_id), _machine(state, run)
        store, clock = self._service.store, self._service.clock
        with Record.open(store, clock=clock, shapes=READINGS.shape, check=False) as record:
            self._facts |= {event.position: event for event in facts_of(record, run, after=self._read, until=position)}
            self._read = position
            facts = [self._facts[position] for position in sorted(self._facts)]
            story = statuses(run, facts, may_go_on=again)
            new = [step for step in story if step.position > self._told]
            self.over = bool(story) and story[-1].final
            self._told = new[-1].position if new else self._told
            began = facts[0].at if facts else run.first_at
            return [
                (
                    event_id(step.position, record.digest(step.position)),
                    msgspec.json.encode(_object(step, run, began, cost, machine)),
                )
                for step in new
            ]


def _machine(state: World, run: Run) -> VmMetrics:
    vm = None if run.vm_id is None else state.vms.get(run.vm_id)
    price = None if vm is None else vm.facts.price
    starts = starts_of(state)
    return VmMetrics(
        vm_id=run.vm_id,
        price_usd_per_hour=None if price is None else price / DOLLAR,
        active_vms=sum(vm.billed and vm.archive is None for vm in state.vms.open()),
        cold_starts=starts["cold"],
        warm_reuses=starts["warm"],
    )


def _object(step: Status, run: Run, began: int, cost: int | None, machine: VmMetrics) -> dict[str, Any]:
    fixed = StatusObject(
        position=step.position,
        status=step.status,
        message=step.message,
        run_id=run.run_id,
        name=run.name,
        at=format_time(step.at),
        elapsed_seconds=max(0, step.at - began) / SECOND,
        vm_state=None if step.status == "IN_QUEUE" else _STARTS.get(run.start or ""),
        cost_usd=None if cost is None else cost / DOLLAR,
        vm_metrics=machine,
        final=step.final,
    )
    first = msgspec.structs.asdict(fixed)
    return first | step.facts | first  # the first keys in their order
