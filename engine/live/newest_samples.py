"""What the GPUs of running runs did last, read from the newest samples of each in the record."""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, unpack
from steno.engine.state.states import State
from steno.engine.state.world import World
from steno.events.clock import SECOND
from steno.events.errors import UnreadableInput
from steno.events.types import SamplesRecorded

if TYPE_CHECKING:
    from steno.events.store.record import Record

_FRESH: Final = 600 * SECOND  # older samples say nothing about now


def running_runs(state: World) -> list[Run]:
    """The live runs that run, the newest last."""
    return [run for run in state.runs.open() if run.state is State.RUNNING and run.archive is None]


def newest_samples(record: "Record", runs: Iterable[Run], now: int) -> dict[str, list[Sample]]:
    """Run id → the newest sample of each of its GPUs; runs without any of the last ten minutes are left out. One look
    at the record a run.
    """
    newest: dict[str, list[Sample]] = {}
    for run in runs:
        for stored in record.read(stream=run.subject, types=("SamplesRecorded",), backwards=True, limit=1):
            with suppress(UnreadableInput):
                samples = unpack(stored.data.block) if isinstance(stored.data, SamplesRecorded) else []
                gpus = {sample.device: sample for sample in samples if sample.device and now - sample.at <= _FRESH}
                newest |= {run.run_id: list(gpus.values())} if gpus else {}
    return newest
