"""Samples in the fold: they add to the use of their run, and move nothing."""

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, Item, single

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.state.gpu_use import stretches
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample, pack
from steno.engine.state.world import dump, load
from steno.events.clock import SECOND
from steno.events.types import SamplesRecorded

RUNNING = single("a", "running", "running", submitted=2)


def shown(*items: Item) -> Fold:
    """A world in which a provider showed a run like that."""
    story = DstackHistory()
    for item in items:
        story.listed(item).wait(5)
    world, reader = Fold(READINGS), PollReader(READINGS)
    for position, poll in story.polls():
        assert poll is not None
        world.apply(reader.read(position, poll))
    return world


def only(world: Fold) -> Run:
    (run,) = world.state.runs.all()
    return run


def records(world: Fold, block: bytes, run_id: str | None = None) -> list[str]:
    """Fold one event; the anomalies that it made."""
    known, run_id = len(world.state.anomalies), only(world).run_id if run_id is None else run_id
    event = SamplesRecorded(run_id=run_id, provider="dstack", provider_id="x", source="nvidia-smi", block=block)
    assert {type(change).__name__ for change in world.apply_event(world.state.position + 1, 2 * START, event)} <= {
        "Anomaly"
    }
    return [f"{anomaly.kind.value} {anomaly.subject}" for anomaly in world.state.anomalies[known:]]


@given(st.lists(st.tuples(st.integers(1, 90), st.sampled_from([0, 50])), min_size=1, max_size=12), st.data())
def test_a_snapshot_between_two_blocks_makes_no_difference(history: list[tuple[int, int]], data: st.DataObject) -> None:
    """Law: and nothing else of the run changes."""
    times = [START + SECOND * sum(gap for gap, _ in history[: place + 1]) for place in range(len(history))]
    samples = [Sample(at=at, device="0", use=use) for at, (_, use) in zip(times, history, strict=True)]
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, len(samples)), max_size=3))), len(samples)]
    whole, cut = shown(RUNNING), shown(RUNNING)
    before = msgspec.structs.replace(only(whole))
    for begin, end in pairwise(cuts):
        assert records(whole, pack(samples[begin:end])) == []
        records(cut, pack(samples[begin:end]))
        cut = Fold(READINGS, state=load(dump(cut.state)))
    assert only(whole).use is not None
    assert only(cut) == only(whole)
    assert msgspec.structs.replace(only(whole), use=None) == before


def test_a_block_that_cannot_be_read_is_one_anomaly() -> None:
    """A run has one for each tool, however often it comes; the use stays."""
    world = shown(RUNNING)
    records(world, pack([Sample(at=START, device="0", use=3)]))
    use, run_id = only(world).use, only(world).run_id
    assert records(world, b"no block") == [f"schema_drift run/{run_id}"]
    assert records(world, pack([])[:-2]) == []
    assert only(world).use == use


def test_samples_of_an_unknown_run_are_one_anomaly() -> None:
    world = shown(RUNNING)
    block = pack([Sample(at=START, device="0", use=3)])
    before = msgspec.structs.replace(only(world))
    assert records(world, block, run_id="nobody") == ["schema_drift source/dstack"]
    assert records(world, block, run_id="nobody else") == []
    assert only(world) == before


def test_a_new_attempt_keeps_the_log() -> None:
    """Time is time: what the GPUs did in the first attempt is paid for."""
    world = shown(RUNNING)
    records(world, pack([Sample(at=START + second * SECOND, device="0", use=0) for second in (0, 60)]))
    again = single("a", "running", "running", submitted=9, num=1)
    story = DstackHistory()
    ((_, poll),) = story.listed(again).polls()
    assert poll is not None
    world.apply(PollReader(READINGS).read(9, msgspec.structs.replace(poll, observed_at=poll.observed_at + 60 * SECOND)))
    assert only(world).attempts == 2
    assert [stretch.kind.value for stretch in stretches(only(world).use)] == ["idle"]
