"""Read models that the live world feeds are those that a fold of the record makes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from stenotest.growing_record import Growing
from stenotest.read_models import kept_moments, replayed, said

from steno.engine.fold.record_fold import RecordFold
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.poll import Poll
from steno.events.store.record import ANY, Batch, Record
from steno.projections.read_models.projection_writer import ProjectionWriter
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.world_table import cut_of

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]


def folded(store: ProjectionStore) -> list[object]:
    """Every run and machine as the engine has it, and what the rules saw of each run."""
    rows = (*store.runs.all(), *store.vms.all())
    return [*(row.decoded for row in rows), *store.cases.all()]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param(f"dstack-{name}", step, marks=() if step in here else pytest.mark.long)
        for name, here in {
            "0.22.5/retry_success": [1, 60], "0.22.5/name_reuse": [60], "0.19.37/flap": [1, 60], "0.22.5/several": [60],
        }.items()
        for step in (1, 7, 60)
    ],
)  # fmt: skip
def test_rows_from_the_live_world_are_those_of_a_fold(
    name: str, step: int, tmp_path: Path, recording: Polls, recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many answers come between two writes, in every field and in order; and only the live world folds."""
    polls = recording(name)
    with recorded(tmp_path / "record.db", polls[:2]) as record, ProjectionStore.create(None) as store:
        live = LiveWorld(READINGS, record)
        live.catch_up()
        fed = ProjectionWriter(record, store, spacing=64, live=live)
        fed.advance(live.position)
        with monkeypatch.context() as patch:
            run = RecordFold.run
            folds: list[RecordFold] = []
            patch.setattr(RecordFold, "run", lambda self, *a, **k: (folds.append(self), run(self, *a, **k))[1])
            for start in range(2, len(polls), step):
                record.append_polls(polls[start : start + step])
                live.catch_up()
                fed.advance(live.position)
            assert len({id(fold) for fold in folds}) == 1
        with ProjectionStore.create(None) as other:
            ProjectionWriter(record, other, spacing=64).advance(record.head().position)
            assert folded(store) == folded(other)
            assert said(store) == said(other) == replayed(record)
            assert [position // 64 for position in kept_moments(store)] == [
                position // 64 for position in kept_moments(other)
            ]


def test_a_writer_behind_what_the_live_world_knows_reads_the_record(growing: Growing) -> None:
    """A world that began later cannot say what changed before, and loses nothing by it."""
    growing.grow(40)
    with ProjectionStore.create(None) as store:
        fed = ProjectionWriter(growing.record, store, spacing=1 << 62)
        fed.advance(20)
        live = LiveWorld(READINGS, growing.record)
        live.catch_up()
        live.touched.floor = 100
        assert cut_of(live, 20) is None
        fed = ProjectionWriter(growing.record, store, spacing=1 << 62, live=live)
        fed.advance(live.position)
        growing.grow(5)
        live.catch_up()
        fed.advance(live.position)
        assert said(store) == replayed(growing.record)


def test_what_is_hidden_is_hidden_in_rows_of_the_live_world(growing: Growing) -> None:
    """An event may change runs and machines that no answer shows."""
    with ProjectionStore.create(None) as store:
        live = LiveWorld(READINGS, growing.record)
        live.catch_up()
        fed = ProjectionWriter(growing.record, store, spacing=1 << 62, live=live)
        fed.advance(live.position)
        source = next(iter(live.state.sources))
        hidden = types.SourceHidden(source=source, by="ada")
        growing.record.append_many([Batch(stream=f"source/{source}", events=(hidden,), expected_version=ANY)])
        live.catch_up()
        fed.advance(live.position)
        assert said(store) == replayed(growing.record)
