"""The summary of a run's samples: stretches of working, idle and unknown time, and the highest of each GPU."""

from itertools import groupby, pairwise

from hypothesis import given
from hypothesis import strategies as st

from steno.engine.state.gpu_use import (
    APART,
    BUSY_FROM,
    LEAST_IDLE,
    MOST_NAMED,
    GpuUse,
    UseKind,
    stretches,
    times_within,
    used,
)
from steno.engine.state.policy import HOUR
from steno.engine.state.samples import TASK, Sample
from steno.events.clock import SECOND

START = 1_790_000_000
LATE = (START + 10**6) * SECOND  # when the events of the samples were recorded
USE = st.sampled_from([None, 0, 0, BUSY_FROM - 1, BUSY_FROM, 100])
MOMENT = st.dictionaries(st.sampled_from(["0", "1", "1:0", TASK]), USE, min_size=1)
HISTORY = st.lists(st.tuples(st.sampled_from([1, 10, 30, APART, APART + 1, 300]), MOMENT), min_size=1, max_size=25)

Moments = list[list[Sample]]


def moments(history: list[tuple[int, dict[str, int | None]]]) -> Moments:
    """The samples of each sample time."""
    second, times = START, Moments()
    for gap, uses in history:
        second += gap
        times.append([Sample(at=second * SECOND, device=device, use=use, memory=1) for device, use in uses.items()])
    return times


def every(times: Moments) -> list[Sample]:
    return [sample for samples in times for sample in samples]


def gpu_times(times: Moments) -> Moments:
    """Without samples of the task, which say nothing of the GPUs."""
    gpus = [[sample for sample in samples if sample.device != TASK] for samples in times]
    return [samples for samples in gpus if samples]


def known(samples: list[Sample], use: GpuUse | None = None, at: int = LATE) -> GpuUse:
    now = used(use, samples, at)
    assert now is not None
    return now


def by_second(times: Moments) -> list[str]:
    """The kind of each second, by the rule as it is written: the oracle."""
    kinds = list[str]()
    for before, samples in pairwise(gpu_times(times)):
        gap = (samples[0].at - before[0].at) // SECOND
        uses = [sample.use for sample in samples if sample.use is not None]
        kind = "unknown" if not uses or gap > APART else "idle" if all(use < BUSY_FROM for use in uses) else "working"
        kinds += [kind] * gap
    lasting = list[str]()
    for kind, group in groupby(kinds):
        length = len(list(group))
        lasting += ["working" if kind == "idle" and length < LEAST_IDLE else kind] * length
    return lasting


@given(HISTORY)
def test_stretches_follow_the_rule(history: list[tuple[int, dict[str, int | None]]]) -> None:
    """Law: each second has the kind that the rule gives it; neighbours differ; the kinds' times sum to the whole."""
    times = moments(history)
    use = known(every(times))
    known_stretches = list(stretches(use))
    lengths = [[stretch.kind.value] * ((stretch.until - stretch.since) // SECOND) for stretch in known_stretches]
    assert [kind for kinds in lengths for kind in kinds] == by_second(times)
    assert all(earlier.until == later.since for earlier, later in pairwise(known_stretches))
    assert all(earlier.kind != later.kind for earlier, later in pairwise(known_stretches))
    seen = [samples[0].at for samples in gpu_times(times)] or [0]
    first, last = seen[0], seen[-1]
    within = times_within(known_stretches, first, last)
    assert sum(within) == last - first
    assert within == tuple(by_second(times).count(kind) * SECOND for kind in UseKind)


@given(HISTORY, st.data())
def test_the_cut_of_samples_into_blocks_makes_no_difference(
    history: list[tuple[int, dict[str, int | None]]], data: st.DataObject
) -> None:
    """Law: nor does a block that comes again, or that a longer block contains."""
    times = moments(history)
    cuts = data.draw(st.lists(st.integers(0, len(times)), max_size=5))
    use: GpuUse | None = None
    for begin, end in pairwise([0, *sorted(cuts), len(times)]):
        use = used(use, every(times[data.draw(st.integers(0, begin)) : end]), LATE)
        use = used(use, every(times[begin:end]), LATE)
    assert use == known(every(times))


@given(HISTORY, st.integers(-HOUR, 3 * HOUR), st.integers(0, 2 * HOUR))
def test_times_within_moments_sum_to_the_time_between(
    history: list[tuple[int, dict[str, int | None]]], since: int, length: int
) -> None:
    """Law: and what no sample covers is unknown."""
    use, since = known(every(moments(history))), START * SECOND + since
    within = times_within(list(stretches(use)), since, since + length)
    assert sum(within) == length
    assert min(within) >= 0
    assert times_within([], since, since + length) == (0, 0, length)


def test_the_highest_of_each_gpu_and_the_mean_of_the_task() -> None:
    """Memory has the total of its moment; unknown is not 0."""
    use = known(
        [
            Sample(at=START * SECOND, device="0", use=7, memory=50, memory_total=100),
            Sample(at=START * SECOND, device="1", memory_total=9),
            Sample(at=START * SECOND, device=TASK, use=101, memory=3),
            Sample(at=(START + 9) * SECOND, device="0", use=3, memory=60, memory_total=101),
            Sample(at=(START + 9) * SECOND, device=TASK, use=200),
        ]
    )
    gpu, silent = use.devices
    assert (gpu.device, gpu.use, gpu.memory, gpu.memory_total) == ("0", 7, 60, 101)
    assert (silent.device, silent.use, silent.memory, silent.memory_total) == ("1", None, None, None)
    assert (use.task_memory, use.cpu) == (3, 151)


@given(HISTORY, st.booleans())
def test_the_tool_that_measures_the_task_does_not_hide_the_gpus(
    history: list[tuple[int, dict[str, int | None]]], task_first: bool
) -> None:
    """Law: events of two tools over the same time give the use of one event, in either order."""
    samples = every(moments(history))
    events = [[sample for sample in samples if (sample.device == TASK) is of_task] for of_task in (False, True)]
    use: GpuUse | None = None
    for event in reversed(events) if task_first else events:
        use = used(use, event, LATE)
    assert use == known(samples)


def test_samples_of_the_far_future_are_ignored() -> None:
    """A clock that is a year ahead must not silence the samples after it."""
    now = START * SECOND
    assert used(None, [Sample(at=now + HOUR + SECOND, device="0", use=1)], now) is None
    use = known([Sample(at=now + HOUR, device="0", use=1)], at=now)
    assert use.newest == START + HOUR // SECOND


def test_many_devices_are_counted_and_few_kept() -> None:
    samples = [Sample(at=(START + s) * SECOND, device=str(gpu), use=50) for s in range(30) for gpu in range(1_000)]
    use = known(samples)
    assert [device.device for device in use.devices] == [str(gpu) for gpu in range(MOST_NAMED)]
    assert use.more == 1_000 - MOST_NAMED


def test_a_day_of_changes_each_minute_stays_small() -> None:
    """A changing run takes two bytes a stretch, so a month of it less than 100 KB in each snapshot."""
    samples = [Sample(at=(START + 60 * m) * SECOND, device="0", use=100 * (m % 2)) for m in range(1_440)]
    use = known(samples)
    assert len(list(stretches(use))) == 1_439
    assert len(use.log) < 2 * 1_440 + 6
