"""The use of a run's GPUs over time, in a bounded number of points, from the samples of its stream."""

from contextlib import suppress

from steno.engine.state.gpu_use import APART, MOST_NAMED, UseKind, stretches, times_within
from steno.engine.state.policy import HOUR
from steno.engine.state.run import Run
from steno.engine.state.samples import TASK, Sample, unpack
from steno.engine.wire import Shape, Stretched, Time
from steno.events.clock import SECOND
from steno.events.errors import UnreadableInput
from steno.events.store.record import Record
from steno.events.types import SamplesRecorded


class GpuStretch(Stretched, frozen=True, kw_only=True):
    """A time in which all GPUs together worked, were idle, or are unknown."""

    kind: UseKind
    start: Time
    end: Time


class GpuCurve(Shape, frozen=True, kw_only=True):
    """The use of a GPU at each point, percent, null where it is unknown; its peaks of memory and power."""

    device: str  # its number; behind the machine's (`1:0`) if the run has several
    mean: tuple[float | None, ...]
    least: tuple[int | None, ...]
    most: tuple[int | None, ...]
    memory_mib: int | None
    memory_total_mib: int | None
    power_watts: int | None


class RunUse(Stretched, frozen=True, kw_only=True):
    """The use of a run's GPUs, from its start or its first sample to its end or its newest sample."""

    start: Time
    end: Time
    seconds: dict[str, float]  # working, idle, unknown: they sum to the whole
    stretches: tuple[GpuStretch, ...]
    gpus: tuple[GpuCurve, ...]  # at most 16; empty: no samples


def use_of(
    record: Record, run: Run, position: int, points: int, since: int | None = None, until: int | None = None
) -> RunUse:
    """The use of a run as known at a position, of its whole life or from a time to another."""
    log = list(stretches(run.use))
    newest = log[-1].until if log else run.first_at
    begun = min(newest, run.started_at or newest, *(stretch.since for stretch in log[:1]))
    start = begun if since is None else since
    end = max(start + SECOND, max(newest, run.finished_at or newest) if until is None else until)
    known, kept = -1, dict[str, list[Sample]]()
    for stored in record.read(until=position, stream=run.subject, types={"SamplesRecorded"}):
        with suppress(UnreadableInput):  # an anomaly of the run says so
            samples = unpack(stored.data.block) if isinstance(stored.data, SamplesRecorded) else []
            samples = [sample for sample in samples if sample.device != TASK]
            for sample in samples:
                if known < sample.at and start <= sample.at <= end:
                    kept.setdefault(sample.device, []).append(sample)
            known = max((known, *(sample.at for sample in samples)))  # what comes twice counts once
    names = sorted(kept, key=lambda device: (len(device), device))
    times = zip(UseKind, times_within(log, start, end), strict=True)
    within = ((kind, max(since, start), min(until, end)) for since, until, kind in log)
    return RunUse(
        start=start,
        end=end,
        seconds={kind.value: time / SECOND for kind, time in times},
        stretches=tuple(GpuStretch(kind=kind, start=begin, end=stop) for kind, begin, stop in within if begin < stop),
        gpus=tuple(_curve(device, kept[device], start, end, points) for device in names[:MOST_NAMED]),
    )


def _curve(device: str, samples: list[Sample], start: int, end: int, points: int) -> GpuCurve:
    uses, before, last = [list[int]() for _ in range(points)], start - HOUR, 0
    for sample in samples:  # each covers the time since the sample before, as in the fold
        place = min(points - 1, (sample.at - start) * points // (end - start))
        first = min(place, last + 1) if sample.at - before <= APART * SECOND else place
        for covered in range(first, place + 1) if sample.use is not None else ():
            uses[covered].append(sample.use or 0)
        before, last = sample.at, place
    fullest = max(samples, key=lambda sample: sample.memory or 0)
    return GpuCurve(
        device=device,
        mean=tuple(round(sum(use) / len(use), 1) if use else None for use in uses),
        least=tuple(min(use, default=None) for use in uses),
        most=tuple(max(use, default=None) for use in uses),
        memory_mib=fullest.memory,
        memory_total_mib=fullest.memory_total,
        power_watts=max((sample.power for sample in samples if sample.power is not None), default=None),
    )
