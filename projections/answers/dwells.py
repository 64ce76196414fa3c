"""Dwells: how long runs and machines that wait have been in their state, beside the others of their kind.

The comparison is with this record's own history: ended runs of the same name, else of the same provider and GPU; ended
machines of the same kind. A dwell is measured up to the newest answer of its source, so it depends on the record only,
and time in which nobody looked makes nothing stuck. It is stuck while it lasts: nothing is stored, reported again or
taken back.
"""

from collections.abc import Callable, Iterable
from typing import Final

from steno.engine.money.report import rank
from steno.engine.notify.dwells import LEAST, LOOKED_AT, WAITS, History, history_of
from steno.engine.state.run import Run
from steno.engine.state.states import VmState
from steno.engine.state.vm import Vm
from steno.engine.wire import Position, Shape, Time
from steno.events.clock import SECOND, duration
from steno.projections.read_models.schema import RunRow, VmRow
from steno.projections.read_models.view import View

_VM_WAITS: Final = (VmState.PROVISIONING, VmState.TERMINATING)


class Dwell(Shape, frozen=True, kw_only=True):
    """How long a run or machine has been in a state that it should leave."""

    subject: str  # `run/<run_id>` or `vm/<vm_id>`
    name: str | None
    state: str
    since: Time
    position: Position  # the event that brought it there
    seconds: float  # up to the newest answer of its source
    among: str  # whom it is compared with: `runs named train`
    samples: int  # ended dwells in this state among those
    p95_seconds: float | None  # 95 of 100 of these were not longer; null: too few to judge
    stuck: bool  # it is longer than that
    more: str  # the command that shows more

    @property
    def detail(self) -> str:
        """`provisioning for 14m, and 95 of 100 runs named train (57) took at most 6m`."""
        usual = duration(round((self.p95_seconds or 0) * SECOND))
        lasts = f"{self.state} for {duration(round(self.seconds * SECOND))}"
        return f"{lasts}; of {self.samples} {self.among} 95 % took at most {usual}"


def dwells(view: View) -> tuple[Dwell, ...]:
    """Every dwell that lasts: those that are stuck first, then the longest. Reads what goes on, and at most 200 ended
    runs or machines of each kind of which one waits.
    """
    histories: dict[str, History] = {}
    lasting: list[Dwell] = []
    things: tuple[Run | Vm, ...] = (*view.state.runs.open(), *view.state.vms.open())
    for thing in things:
        steps = thing.transitions if isinstance(thing, Run) else thing.steps
        waits = thing.state in WAITS and not thing.is_schedule if isinstance(thing, Run) else thing.state in _VM_WAITS
        if not waits or not steps or thing.archive is not None or thing.hidden:
            continue
        sources = tuple(thing.started) if isinstance(thing, Run) else (thing.source,)
        answered = (view.state.sources[name].last_answered or 0 for name in sources if name in view.state.sources)
        seconds = max(0, max(answered, default=0) - steps[-1].at) / SECOND
        among, samples = _compared(view, thing, histories)
        usual = rank(sorted(samples), 95) if len(samples) >= LEAST else None
        lasting.append(
            Dwell(
                subject=thing.subject,
                name=thing.name if isinstance(thing, Run) else thing.facts.name,
                state=thing.state.value,
                since=steps[-1].at,
                position=steps[-1].position,
                seconds=seconds,
                among=among,
                samples=len(samples),
                p95_seconds=None if usual is None else usual / SECOND,
                stuck=usual is not None and seconds * SECOND > usual,
                more=more_about(thing.subject, steps[-1].position),
            )
        )
    return tuple(sorted(lasting, key=lambda dwell: (not dwell.stuck, -dwell.seconds)))


def _compared(view: View, thing: Run | Vm, histories: dict[str, History]) -> tuple[str, list[int]]:
    """(with whom a run or machine is compared, their ended dwells in its state)."""
    kinds: list[tuple[str, Callable[[], Iterable[RunRow | VmRow]]]] = []
    if isinstance(thing, Vm):
        row = view.store.vms.get(thing.vm_id)
        kind = "" if row is None else row.kind
        kinds.append((f"machines {kind}", lambda: view.store.vms.ended_of(kind, LOOKED_AT)))
    else:
        name, provider, gpu = thing.name, thing.provider, (view.store.runs.columns(thing.run_id, "gpu") or ("",))[0]
        if name is not None:
            kinds.append((f"runs named {name}", lambda: view.store.runs.ended_named(name, LOOKED_AT)))
        models = gpu.strip().replace("\n", ", ").removeprefix("none")
        kinds.append(
            (f"{provider} runs on {models or 'no GPU'}", lambda: view.store.runs.ended_on(provider, gpu, LOOKED_AT))
        )
    among, samples = "", list[int]()
    for among, rows in kinds:
        if among not in histories:
            histories[among] = history_of(row.decoded for row in rows())
        samples = histories[among].get(thing.state.value, [])
        if len(samples) >= LEAST:
            break
    return among, samples


def more_about(subject: str, position: int) -> str:
    """The command that shows more of what is odd about `run/<id>`, `vm/<id>` or `source/<name>`."""
    kind, _, name = subject.partition("/")
    return f"steno poll {position}" if kind == "source" else f"steno explain {name}"
