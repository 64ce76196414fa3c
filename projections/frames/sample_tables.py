"""Samples as a table: what the GPUs and the processes of each run did."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from steno.engine.state.samples import Sample, unpack
from steno.events.errors import UnreadableInput
from steno.events.types import SamplesRecorded
from steno.projections.frames.table import FrameTable, boolean, integer, text, time

if TYPE_CHECKING:
    from steno.projections.frames.source import FrameSource

_Row = tuple[SamplesRecorded, Sample]


def _samples(source: "FrameSource") -> Iterator[_Row]:
    for stored in source.events(("SamplesRecorded",)):
        if isinstance(event := stored.data, SamplesRecorded):
            with suppress(UnreadableInput):
                yield from [(event, sample) for sample in unpack(event.block)]


def _of(field: str) -> Callable[[_Row], object]:
    return lambda row: getattr(row[1], field)


_DEVICE: Final = "The GPU's number, behind the machine's if there are several (`1:0`); empty: the task's processes."
_BOOLEAN: Final[dict[int | None, bool]] = {0: False, 1: True}

SAMPLES: Final = FrameTable[_Row](
    "samples",
    "One sample of a device of a run, hidden archives included; null: the tool does not say.",
    (
        text("run_id", "The run.", lambda row: row[0].run_id),
        time("t", "When it was taken, to the second, by the clock of the tool.", _of("at")),
        text("device", _DEVICE, _of("device")),
        integer("use", "How busy it was; of processes: of one core.", _of("use"), unit="percent"),
        integer("memory_mib", "Memory in use.", _of("memory"), unit="MiB"),
        integer("memory_total_mib", "Memory in all.", _of("memory_total"), unit="MiB"),
        integer("power_w", "Power.", _of("power"), unit="W"),
        integer("temperature_c", "Temperature.", _of("temperature"), unit="°C"),
        boolean("throttled", "Its clock was held down.", lambda row: _BOOLEAN.get(row[1].throttled)),
        integer("errors", "Uncorrected memory errors since its driver started.", _of("errors")),
        integer("event", "The number of its driver's newest event (an XID).", _of("event")),
        text("tool", "What measured it: `dstack`, `nvidia-smi`, `amd-smi` …", lambda row: row[0].source),
    ),
    _samples,
)
