"""Runs as tables: the objects of `steno ps --json` with exact times and sums, their changes of state, and the samples
of their GPUs.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

from steno.engine.objects import RanObject, RunObject, TransitionObject
from steno.engine.state.samples import Sample, unpack
from steno.events.clock import SECOND, parse_time
from steno.events.errors import UnreadableInput
from steno.events.types import SamplesRecorded
from steno.projections.frames.source import FrameSource
from steno.projections.frames.table import FrameTable, boolean, integer, integers, money, seconds, text, time
from steno.projections.read_models.schema import RunRow


class _Run(NamedTuple):
    row: RunRow
    object: RunObject
    ran: RanObject


class _Step(NamedTuple):
    run: _Run
    step: TransitionObject
    until: int | None  # the next step


_Row = tuple[SamplesRecorded, Sample]


def moment(text: str | None) -> int | None:
    return None if text is None else parse_time(text)


def microusd(text: str | None) -> int | None:
    """Micro-dollars of a sum as objects have it, with six decimals."""
    return None if text is None else int(text.replace(".", ""))


def _runs(source: FrameSource) -> Iterator[_Run]:
    table = source.view.store.runs
    for row in source.counted(table.all(hidden=False), table.count()):
        yield _Run(row, row.public, row.executed)


def _steps(source: FrameSource) -> Iterator[_Step]:
    for run in _runs(source):
        for step, following in pairwise((*run.object.transitions, None)):
            assert step is not None  # noqa: S101 - None is the last
            yield _Step(run, step, None if following is None else parse_time(following.at))


def _samples(source: FrameSource) -> Iterator[_Row]:
    for stored in source.events(("SamplesRecorded",)):
        if isinstance(event := stored.data, SamplesRecorded):
            with suppress(UnreadableInput):
                yield from [(event, sample) for sample in unpack(event.block)]


def _of(field: str) -> Callable[[_Row], object]:
    return lambda row: getattr(row[1], field)


def _seconds(span: int | None) -> float | None:
    return None if span is None else span / SECOND


def _lasted(row: _Step) -> float | None:
    return None if row.until is None else (row.until - parse_time(row.step.at)) / SECOND


RUNS: Final = FrameTable[_Run](
    "runs",
    "One run, without those of hidden archives.",
    (
        text("run_id", "Its id.", lambda r: r.object.run_id),
        text("name", "Its name, which several may have.", lambda r: r.object.name),
        text("provider", "Where it ran.", lambda r: r.object.provider),
        text("provider_id", "The provider's id.", lambda r: r.object.provider_id),
        text("project", "The provider's project.", lambda r: r.row.project),
        text("source", "Whose polls show it, or its archive.", lambda r: r.row.source),
        text("username", "Who submitted it.", lambda r: r.row.user),
        text("state", "Our verdict, or its progress.", lambda r: r.object.state),
        text("reason", "The reason beside the verdict.", lambda r: r.object.reason),
        integer("exit_status", "Of its first job.", lambda r: r.object.exit_status),
        text("rule", "The rule that gave the verdict.", lambda r: r.object.rule),
        integers("evidence", "The polls it rests on.", lambda r: r.object.evidence),
        text("reported_status", "The provider's own word.", lambda r: r.object.reported and r.object.reported.status),
        text("reported_reason", "The provider's own reason.", lambda r: r.object.reported and r.object.reported.reason),
        integer("attempts", "How often the provider was asked to run it.", lambda r: r.object.attempts),
        text("vm_id", "Its machine, the last of several.", lambda r: r.object.vm_id),
        text("start", "`cold`: a machine was made for it; `warm`; null: unknown.", lambda r: r.object.start),
        time("submitted_at", "When it was requested, or submitted elsewhere.", lambda r: moment(r.object.submitted_at)),
        time(
            "provider_submitted_at",
            "When its provider got it; null: it was submitted elsewhere, or waits in Steno's queue.",
            lambda r: moment(r.object.provider_submitted_at),
        ),
        time("started_at", "When its last attempt ran.", lambda r: moment(r.object.started_at)),
        time("finished_at", "When it ended.", lambda r: moment(r.object.finished_at)),
        seconds(
            "waited_seconds",
            "From `submitted_at` until it ran, Steno's queue included; null: unknown, or tried again.",
            lambda r: _seconds(r.row.waited),
        ),
        seconds("execution_seconds", "From `started_at` to `finished_at`.", lambda r: r.object.execution_seconds),
        money(
            "cost_microusd", "What it costs, without idle time; null: unknown.", lambda r: microusd(r.object.cost_usd)
        ),
        money("provider_cost_microusd", "The provider's own figure.", lambda r: microusd(r.object.provider_cost_usd)),
        text("gpu_asked", "The GPU it asked for: `MI300X:2`.", lambda r: r.ran.gpu_asked),
        text("gpu_got", "The GPU of its machine.", lambda r: r.ran.gpu_got),
        text("image", "Its container's image.", lambda r: r.ran.image),
        text("command", "What it executes, cut after 1,000 characters.", lambda r: r.ran.command),
        text(
            "waits", "Why it waits at its provider, if that says so.", lambda r: r.object.waits and str(r.object.waits)
        ),
        text("kernel", "The problem that it solves, if it is a kernel.", lambda r: r.object.kernel),
        text("archive", "The archive that holds it; null: live.", lambda r: r.object.archive),
        seconds(
            "working_seconds",
            "Busy time in which its GPUs worked, by their samples; null: no samples.",
            lambda r: r.object.busy and r.object.busy.working_seconds,
        ),
        seconds(
            "idle_inside_seconds",
            "Busy time in which its GPUs were idle; null: no samples.",
            lambda r: r.object.busy and r.object.busy.idle_inside_seconds,
        ),
        seconds(
            "unknown_seconds",
            "The rest of its busy time; null: no samples, all of it.",
            lambda r: r.object.busy and r.object.busy.unknown_seconds,
        ),
    ),
    _runs,
)

TRANSITIONS: Final = FrameTable[_Step](
    "transitions",
    "One change of a run's state, at the poll that caused it.",
    (
        text("run_id", "The run.", lambda row: row.run.object.run_id),
        integer("position", "The poll, or our own event.", lambda row: row.step.position),
        time("observed_at", "The time of that position.", lambda row: moment(row.step.at)),
        text("from_state", "The state before.", lambda row: row.step.origin),
        text("to_state", "The state after.", lambda row: row.step.target),
        text("rule", "The rule that decided.", lambda row: row.step.rule),
        seconds("seconds", "How long it was in `to_state`; null: it still is.", _lasted),
        text("archive", "The archive that holds the run; null: live.", lambda row: row.run.object.archive),
    ),
    _steps,
)

_BOOLEAN: Final[dict[int | None, bool]] = {0: False, 1: True}
_DEVICE: Final = "The GPU's number, behind the machine's if there are several (`1:0`); empty: the task's processes."

SAMPLES: Final = FrameTable[_Row](
    "samples",
    "One sample of a device of a run, hidden archives included; null: the tool does not say.",
    (
        text("run_id", "The run.", lambda row: row[0].run_id),
        time("t", "When it was taken, to the second, by the clock of the tool.", _of("at")),
        text("device", _DEVICE, _of("device")),
        integer("use", "Percent of the device; of processes: of one core.", _of("use"), unit="percent"),
        integer("memory_mib", "Memory in use.", _of("memory"), unit="MiB"),
        integer("memory_total_mib", "Memory in all.", _of("memory_total"), unit="MiB"),
        integer("power_w", "Power.", _of("power"), unit="W"),
        integer("temperature_c", "Temperature.", _of("temperature"), unit="°C"),
        boolean("throttled", "Its clock was held down.", lambda row: _BOOLEAN.get(row[1].throttled)),
        integer("errors", "Uncorrected memory errors since its driver started.", _of("errors")),
        integer("event", "The number of its driver's newest event (an XID).", _of("event")),
        text("tool", "What measured it: the provider, or the vendor's tool.", lambda row: row[0].source),
    ),
    _samples,
)
