"""Rows of runs, their marks and moves; the configurations of what they execute are read once from the record."""

from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import msgspec

from steno.engine.fold.chains import began
from steno.engine.money.reconcile import divergences
from steno.engine.money.report import gpu_of, start_time, user_of
from steno.engine.objects import COMMAND_SHOWN, RanObject, run_object
from steno.engine.providers.registry import READINGS
from steno.engine.rules.sets import CURRENT
from steno.engine.state.changes import Transition, VmStep
from steno.engine.state.inventory import Inventory
from steno.engine.state.kernel_mark import gpu_kept
from steno.engine.state.run import Requirements, Run
from steno.engine.state.state_machines import TERMINAL
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, source_of
from steno.events.clock import SECOND
from steno.events.store.record import Record
from steno.events.types import RunRequested
from steno.projections.read_models.cost_rows import Money, decode_against
from steno.projections.read_models.notes import FirstMove, Mark
from steno.projections.read_models.run_query import NO_GPU
from steno.projections.read_models.schema import RunRow
from steno.projections.read_models.tables import RunTable


def configurations(record: Record, runs: Iterable[Run], table: RunTable) -> dict[str, RanObject]:
    """Run id → what its configuration says: that of its request, else that of the first poll that showed it. Those
    in the table are not read again.
    """
    configured: dict[str, RanObject] = {}
    by_poll: dict[int, list[Run]] = {}
    for run in runs:
        known = table.get(run.run_id)
        if known is not None:
            configured[run.run_id] = known.executed
        elif run.requested_at is None:
            by_poll.setdefault(run.first_position, []).append(run)
        else:
            event = record.event(run.first_position)
            configured[run.run_id] = _read(event.configuration if isinstance(event, RunRequested) else b"", run.terms)
    for position, there in by_poll.items():
        given = _shown_at(record, position)
        for run in there:
            text = given.get(run.listed_as or "")
            terms = None if text is None else READINGS.terms(run.provider, text, "")
            configured[run.run_id] = _read(text or b"", terms)
    return configured


def run_row(run: Run, vm: Vm | None, configuration: RanObject, money: Money, folded: bytes) -> RunRow:
    """The row of a run; `vm` is its machine."""
    cost, against = money
    odd = divergences(World(rules=CURRENT.name, runs=Inventory({run.run_id: run})))
    run_json = run_object(run, CURRENT, cost, None if against is None else decode_against(against).use)
    ran = _what_ran(run, vm, configuration)
    return RunRow(
        run_id=run.run_id,
        provider=run.provider,
        provider_id=run.provider_id,
        name=run.name,
        ended=run.terminal or run.unseen,
        is_foreign=run.requested_at is None,
        # an array's tasks are found by its provider's time
        sort_at=began(run) if run.requested_at is None or run.tasks else run.requested_at,
        object=msgspec.json.encode(run_json),
        ran=msgspec.json.encode(ran),
        folded=folded,
        state=run.state.value,
        reason=run_json.reason,
        cost=cost,
        odd=msgspec.json.encode(odd[0]) if odd else None,
        user=user_of(run),
        project=ran.project,
        source=ran.source,
        gpu=_gpu_words(ran),
        vm_id=run.vm_id,
        part_of=run_json.group,
        task=None if run.facts is None else run.facts.task,
        took=None if run_json.execution_seconds is None else round(run_json.execution_seconds * SECOND),
        start=run.start if gpu_kept(run) is None else None,
        waited=start_time(run),
        words=_search_words(run, ran),
        against=against,
        archive=run.archive,
        hidden=run.hidden or run.carries is not None,
    )


def run_marks(runs: Iterable[Run]) -> Iterator[Mark]:
    for run in runs:
        for step in run.transitions:
            if step.after in TERMINAL:
                kind = f"run_{step.after.value}"
                yield Mark(position=step.position, at=step.at, kind=kind, subject=f"run/{run.run_id}")


def moves_of(thing: Run | Vm, after: int) -> Iterator[FirstMove]:
    """The moves that a run or machine made after a position."""
    kind = "run" if isinstance(thing, Run) else "vm"
    steps: tuple[Transition | VmStep, ...] = thing.transitions if isinstance(thing, Run) else thing.steps
    for step in takewhile(lambda step: step.position > after, reversed(steps)):
        yield FirstMove(kind, thing.provider, step.before.value, step.after.value, step.position, thing.subject)


def _what_ran(run: Run, vm: Vm | None, configuration: RanObject) -> RanObject:
    """The object of what a run executes by now; `vm` is its machine."""
    facts = run.facts
    return msgspec.structs.replace(
        configuration,
        gpu_got=None if vm is None else gpu_of(vm),
        project=run.project or (None if facts is None else facts.project),
        source=run.archive or source_of(run),
        user=None if facts is None else facts.user,
        submitter=None if run.terms is None else run.terms.submitter,
    )


def _gpu_words(ran: RanObject) -> str:
    """`RunRow.gpu`: what a filter by GPU compares."""
    models, colon, number = (ran.gpu_got or ran.gpu_asked or "").lower().partition(":")
    words = [word for model in models.split(", ") if model for word in (model, f"{model}{colon}{number}")]
    return "".join(f"\n{word}" for word in dict.fromkeys(words)) + "\n"


def _search_words(run: Run, ran: RanObject) -> str:
    """`RunRow.words`: what a search looks through, without NUL."""
    parts = (run.name, ran.command, run.run_id, run.provider_id)
    return "\n".join(dict.fromkeys(part for part in parts if part)).lower().replace("\0", "\ufffd")


def _shown_at(record: Record, position: int) -> dict[str, bytes]:
    """Provider id → configuration, of the runs that a poll shows."""
    (stored,) = record.read(after=position - 1, limit=1)
    question = None if stored.scope is None else record.scope(stored.scope)
    reading = None if question is None else READINGS.asked(question.path, bytes(question.req))[1]
    given: dict[str, bytes] = {}
    for item in () if reading is None else record.items(position):
        try:
            given.update(reading.configurations(item))  # type: ignore[union-attr]
        except ValueError:  # it is not an item as we know it
            continue
    return given


def _read(configuration: bytes, terms: Requirements | None) -> RanObject:
    """The content of a configuration; unreadable parts count as absent."""
    try:
        task: Any = msgspec.json.decode(configuration)
    except (msgspec.DecodeError, RecursionError):
        task = None
    task = task if isinstance(task, dict) else {}
    lines = task.get("commands")
    command = "\n".join(line for line in lines if isinstance(line, str)) if isinstance(lines, list) else ""
    if len(command) > COMMAND_SHOWN:
        command = command[: COMMAND_SHOWN - 1] + "…"
    kind, image = (
        value[:COMMAND_SHOWN] if isinstance(value := task.get(key), str) else None for key in ("type", "image")
    )
    return RanObject(
        type=kind, command=command or None, image=image, gpu_asked=None if terms is None else _asked(terms)
    )


def _asked(terms: Requirements) -> str:
    models = ", ".join((*terms.gpu, *terms.fallback)) or terms.gpu_vendor or ("any" if terms.gpu_count else "")
    return f"{models}:{max(1, terms.gpu_count)}" if models else NO_GPU
