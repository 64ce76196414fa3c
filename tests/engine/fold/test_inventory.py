"""A world of which most is in segments is decoded as far as it is needed, and gives the same answers.
Laws of what is folded and decided from it: in `test_tales`, `test_laws` and `test_race`.
"""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from stenotest.segmented_world import EVER, apart
from stenotest.waiting import LIMIT_S

from steno.engine.decide.decisions import decide
from steno.engine.fold.snapshot import retire
from steno.engine.state import segments
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts
from steno.engine.state.inventory import Index, Inventory, brief_of
from steno.engine.state.policy import Policy
from steno.engine.state.run import Requirements, Run, Said
from steno.engine.state.segments import Cold, Segment, SegmentedInventory
from steno.engine.state.sources import Source
from steno.engine.state.states import Reason, State
from steno.engine.state.world import World, dump, load


def ended(number: int, **fields: Any) -> Run:
    known = {"run_id": f"r{number}", "provider": "dstack", "state": State.SUCCEEDED, "last_position": number}
    return Run(**{**known, "first_position": number, "first_at": number, "last_at": number, **fields})


def nothing(_: Segment) -> bytes:
    raise AssertionError("every segment was made here")


def cold_of(state: World) -> Cold[Run]:
    assert isinstance(state.runs, SegmentedInventory)
    return state.runs.cold


def world_of(runs: list[Run], open_ids: tuple[str, ...] = ()) -> World:
    return World(rules="current", runs=Inventory({run.run_id: run for run in runs}, open_ids))


def ids(runs: Iterable[Run]) -> list[str]:
    return [run.run_id for run in runs]


def test_only_what_a_decision_asks_for_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start decodes no run of ten thousand that are over."""
    runs = [*map(ended, range(10_000)), ended(10_000, run_id="open", state=State.RUNNING)]
    source = Source(name="dstack/main", machines_position=10_000, machines_at=10_000)
    state = world_of(runs, ("open",))
    state.sources[source.name] = source
    lazy = apart(state)
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "content", lambda *_: pytest.fail("a segment was read"))
        assert decide(lazy, "dstack/main", Policy(max_vms=1), 10**9) == ()
        assert next(lazy.runs.newest()).run_id == "open"
        assert ids(lazy.runs.open()) == ["open"]
    assert len(lazy.runs) == 10_001
    assert len(cold_of(lazy)) == 10_000
    assert not cold_of(lazy).loaded
    again = apart(lazy)
    assert ids(again.runs.all()) == ids(runs)


def test_an_inventory_is_the_same_wherever_its_things_are() -> None:
    """Read, written, in order, compared, in parts and as bytes."""
    plain = world_of([*map(ended, range(3)), ended(3, state=State.RUNNING)], ("r3",))

    def fresh() -> Inventory[Run]:
        runs = apart(plain).runs
        assert isinstance(runs, SegmentedInventory)
        assert list(runs.memory) == ["r3"]
        return runs

    assert fresh() == plain.runs
    assert plain.runs == fresh()
    assert load(dump(apart(plain))) == plain
    assert ids(fresh().all()) == list(fresh().ids()) == list(plain.runs.ids())
    assert ids(fresh().newest()) == list(fresh().newest_ids()) == ["r3", "r2", "r1", "r0"]
    for things in (fresh(), Inventory(dict(zip(plain.runs.ids(), plain.runs.all(), strict=True)), ["r3"])):
        assert things.get("r9") is None
        assert "r9" not in things
        assert "r2" in things
        with pytest.raises(KeyError):
            things["r9"]
        with pytest.raises(KeyError):
            del things["r9"]
        assert ids(things.ended_since(2)) == ["r2"]
        assert {"r1", "r2"} <= set(ids(things.ended(lambda brief: brief.position >= 1))) <= {"r0", "r1", "r2"}
        things["r0"] = ended(0, name="new")
        del things["r2"]
        things["r5"] = ended(5)
        assert list(things.ids()) == ["r0", "r1", "r3", "r5"]
        assert len(things) == 4
        assert things["r0"].name == "new"
    met = fresh()
    assert met["r1"] is met["r1"]
    part = met.part(lambda thing: thing.archive is None)
    assert part["r1"] is met["r1"]
    assert ids(part.open()) == ["r3"]
    hidden = met.part(lambda thing: thing.hidden)
    assert len(hidden) == len(hidden.open()) == 0
    assert hidden.get("r1") is None


def test_what_changed_comes_back_to_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves its segment, until it is over again; others stay. Segments are filled one by one."""
    monkeypatch.setattr(segments, "SIZE", 3)
    state = world_of([*map(ended, range(8))])
    retire(state, EVER, nothing, newest=0)
    assert [(segment.entries, segment.first, segment.last) for segment in cold_of(state).segments] == [
        (3, 0, 2),
        (3, 3, 5),
        (2, 6, 7),
    ]
    state.runs["r1"].state = State.RUNNING
    assert state.runs["r4"].state is State.SUCCEEDED
    state.runs["r8"] = ended(8)
    retire(state, EVER, nothing, newest=0)
    assert list(state.runs.memory) == ["r1"]
    assert not cold_of(state).loaded
    assert [(segment.entries, len(segment.gone)) for segment in cold_of(state).segments] == [(3, 1), (3, 0), (3, 0)]
    assert list(state.runs.ids()) == [f"r{number}" for number in range(9)]
    state.runs["r1"].state = State.SUCCEEDED
    retire(state, EVER, nothing, newest=0)
    assert list(state.runs.ids()) == [f"r{number}" for number in range(9)]
    assert len(state.runs) == 9
    assert state.runs["r1"].state is State.SUCCEEDED


def test_the_newest_and_what_was_seen_lately_stay() -> None:
    """Estimates learn from the newest; what a list still shows is looked at by every poll."""
    state = world_of([*map(ended, range(10))])
    state.runs["r2"].last_position = 100
    retire(state, 50, nothing, newest=3)
    assert list(state.runs.memory) == ["r2", "r7", "r8", "r9"]


def test_what_the_world_keeps_beside_a_run_goes_and_comes_with_it() -> None:
    """Its provider's id and its outcome; what is taken away while it is here does not come back."""
    state = world_of([*map(ended, range(3))])
    state.by_provider = Index({f"dstack/p{number}": f"r{number}" for number in range(3)})
    state.outbox.outcomes = Index({"r0": 5, "r1": 6})
    retire(state, EVER, nothing, newest=0)
    assert not state.by_provider.here
    assert state.by_provider["dstack/p1"] == "r1"
    assert list(cold_of(state).loaded) == ["r1"]
    assert "r0" in state.outbox.outcomes
    assert state.outbox.outcomes.get("r2") is None
    assert state.by_provider.get("dstack/p9") is None
    assert state.by_provider.pop("dstack/p1") == "r1"
    assert state.by_provider.pop("dstack/p1") is None
    with pytest.raises(KeyError):
        state.by_provider["dstack/p1"]
    retire(state, EVER, nothing, newest=0)
    assert state.by_provider.get("dstack/p1") is None
    assert state.runs["r1"] == ended(1)
    assert state.outbox.outcomes["r1"] == 6


def test_runs_of_a_race_are_found_by_it() -> None:
    """However long ago they ended."""
    runs = [ended(number, terms=Requirements(submitter="ada", race=f"race-{number % 3}")) for number in range(9)]
    lazy = apart(world_of(runs))
    assert ids(lazy.runs.raced("race-1")) == ["r1", "r4", "r7"]


def test_what_ended_lately_is_found_without_reading_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, with what is in memory; a segment is passed by its row."""
    monkeypatch.setattr(segments, "SIZE", 3)
    lazy = apart(world_of([*map(ended, range(9))]))
    lazy.runs["r9"] = ended(9)
    read: list[int] = []
    numbered = Cold.numbered
    monkeypatch.setattr(
        Cold, "numbered", lambda self, segment: (read.append(segment.first), numbered(self, segment))[1]
    )
    late = [f"r{number}" for number in range(4, 10)]
    assert ids(lazy.runs.ended_since(4)) == late
    assert read == [3, 6]
    assert ids(lazy.runs.in_memory()) == late


def test_a_tally_is_kept_with_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what changed since as it is now, and nothing twice."""
    monkeypatch.setattr(segments, "SIZE", 3)
    state = world_of([*map(ended, range(9))])
    state.runs["r4"].state = State.FAILED
    retire(state, EVER, nothing, newest=0)

    def states(state: World) -> dict[str, int]:
        return dict(state.runs.sums("states", lambda run: (run.state.value, 1)))

    assert states(state) == {"succeeded": 8, "failed": 1}
    state.runs["r1"].state = State.RUNNING
    state.runs["r9"] = ended(9, state=State.QUEUED)
    assert states(state) == {"succeeded": 7, "failed": 1, "running": 1, "queued": 1}
    retire(state, EVER, nothing, newest=0)
    assert states(state) == {"succeeded": 7, "failed": 1, "running": 1, "queued": 1}
    again = apart(state)
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "numbered", lambda *_: pytest.fail("a tally was made twice"))
        assert states(again) == {"succeeded": 7, "failed": 1, "running": 1, "queued": 1}
    for number in range(20):
        assert again.runs.sums(f"another {number}", lambda _: ("", 1)) == {"": 10}
    assert all(len(segment.tallies) == 8 for segment in cold_of(again).segments)


def test_a_brief_says_what_may_still_matter() -> None:
    """Output that was not read to its end, and a run without capacity, are looked at again."""
    output = Said(mark=b"{}")
    assert brief_of(ended(1, said=output)).speaks
    assert not brief_of(ended(1, said=Said(mark=b"{}", ended=True))).speaks
    assert not brief_of(ended(1, said=Said(mark=b"{}", over=True))).speaks
    assert brief_of(ended(1, state=State.FAILED, reason=Reason.NO_CAPACITY)).lacked
    unrun = RunFacts(provider_id="p", jobs=(JobFacts(attempts=(AttemptFacts(unrun=True),)),))
    assert brief_of(ended(1, state=State.FAILED, reason=Reason.PROVIDER_ERROR, facts=unrun)).lacked
    assert not brief_of(ended(1, state=State.FAILED, reason=Reason.PROVIDER_ERROR)).lacked
    assert brief_of(ended(1, finished_at=70, requested_at=80)).at == 80


def test_threads_that_fetch_a_run_at_once_get_one_object() -> None:
    """Two decode it at the same time, and the first wins."""
    state = apart(world_of([*map(ended, range(3))]))
    cold, both = cold_of(state), Barrier(2, timeout=LIMIT_S)
    decode = cold._decode

    def together(encoded: Any) -> Run:
        both.wait()
        return decode(encoded)

    cold._decode = together
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: state.runs["r1"], range(2))
    assert first is second is state.runs["r1"]
