"""A world of which most is in segments is decoded as far as somebody looks, and is the same to everybody.
Laws of what is folded and decided from it: in `test_tales`, `test_laws` and `test_race`.
"""

from typing import Any

import pytest
from stenotest.apart import EVER, apart

from engine.decide.controller import decide
from engine.facts import AttemptFacts, JobFacts, RunFacts
from engine.fold import segments
from engine.fold.lazy_things import Kept, LazyThings, found_by, held, some_of, tally_of
from engine.fold.run import Run, Said
from engine.fold.segments import Cold, Segment, brief_of
from engine.fold.snapshot import retire
from engine.fold.sources import Source
from engine.fold.world_codec import WorldState
from engine.policy import Policy
from engine.requirements import Requirements
from engine.states import Reason, State


def ended(number: int, **fields: Any) -> Run:
    known = {"run_id": f"r{number}", "provider": "dstack", "state": State.SUCCEEDED, "last_position": number}
    return Run(**{**known, "first_position": number, "first_at": number, "last_at": number, **fields})


def nothing(_: Segment) -> bytes:
    raise AssertionError("every segment was made here")


def cold_of(state: WorldState) -> Cold[Run]:
    assert isinstance(state.runs, LazyThings)
    return state.runs.cold


def test_only_what_a_decision_asks_for_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand runs that are over, a start looks at the few that are open."""
    runs = {run.run_id: run for run in map(ended, range(10_000))}
    runs["open"] = ended(10_000, run_id="open", state=State.RUNNING)
    source = Source(name="dstack/main", machines_position=10_000, machines_at=10_000)
    state = WorldState(rules="current", runs=runs, unsettled={"open": None}, sources={source.name: source})
    lazy = apart(state)
    with monkeypatch.context() as patch:
        patch.setattr(Cold, "content", lambda *_: pytest.fail("a segment was read"))
        assert decide(lazy, "dstack/main", Policy(max_vms=1), 10**9) == ()
        assert next(iter(reversed(lazy.runs.values()))).run_id == "open"
    assert len(lazy.runs) == 10_001
    assert len(cold_of(lazy)) == 10_000
    assert not cold_of(lazy).loaded
    again = apart(lazy)
    assert [run.run_id for run in again.runs.values()] == list(runs)


def test_a_lazy_dict_is_the_dict() -> None:
    """Read, written, in order, compared and copied."""
    plain = {run.run_id: run for run in map(ended, range(4))}
    state = WorldState(rules="current", runs=plain)

    def fresh() -> LazyThings[Run]:
        found = apart(state).runs
        assert isinstance(found, LazyThings)
        assert not dict.__len__(found)
        return found

    assert fresh() == plain
    assert plain == fresh()
    assert dict(fresh()) == plain == {**fresh()}
    assert list(fresh().items()) == list(plain.items())
    assert list(fresh().keys()) == list(plain.keys())
    assert list(reversed(fresh())) == list(reversed(plain))
    assert list(reversed(fresh().values())) == list(reversed(plain.values()))
    for things in (fresh(), dict(plain)):
        assert things.get("r9") is None
        assert "r2" in things
        assert None not in things  # an event that names no run
        assert things.pop("r2") == ended(2)
        assert things.pop("r2", None) is None
        with pytest.raises(KeyError):
            things.pop("r2")
        with pytest.raises(KeyError):
            del things["r2"]
        assert things.setdefault("r1", ended(7)) == ended(1)
        assert things.setdefault("r4", ended(4)) == ended(4)
        things["r0"] = ended(0, name="new")
        del things["r3"], things["r4"]
        things["r5"] = ended(5)
        assert list(things) == ["r0", "r1", "r5"]
        assert len(things) == 3
        assert things["r0"].name == "new"
    met = fresh()
    assert met["r1"] is met["r1"]
    part = met.part(lambda thing: thing.archive is None)
    assert part["r3"] is met["r3"]
    assert len(met.part(lambda thing: thing.hidden)) == 0
    assert met.part(lambda thing: thing.hidden).get("r1") is None


def test_what_changed_comes_back_to_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """And leaves its segment, until it is over again; others stay as they are. Segments are filled one by one."""
    monkeypatch.setattr(segments, "SIZE", 3)
    runs = {run.run_id: run for run in map(ended, range(8))}
    state = WorldState(rules="current", runs=runs)
    retire(state, EVER, nothing, newest=0)
    assert [(one.entries, one.first, one.last) for one in cold_of(state).segments] == [(3, 0, 2), (3, 3, 5), (2, 6, 7)]
    state.runs["r1"].state = State.RUNNING
    assert state.runs["r4"].state is State.SUCCEEDED
    state.runs["r8"] = ended(8)
    retire(state, EVER, nothing, newest=0)
    assert list(dict.__iter__(state.runs)) == ["r1"]
    assert not cold_of(state).loaded
    assert [(one.entries, len(one.gone)) for one in cold_of(state).segments] == [(3, 1), (3, 0), (3, 0)]
    assert list(state.runs) == [f"r{number}" for number in range(9)]
    state.runs["r1"].state = State.SUCCEEDED
    retire(state, EVER, nothing, newest=0)
    assert list(state.runs) == [f"r{number}" for number in range(9)]
    assert len(state.runs) == 9
    assert state.runs["r1"].state is State.SUCCEEDED


def test_the_newest_and_what_was_seen_lately_stay() -> None:
    """Estimates learn from the newest; what a list still shows is looked at by every poll."""
    state = WorldState(rules="current", runs={run.run_id: run for run in map(ended, range(10))})
    state.runs["r2"].last_position = 100
    retire(state, 50, nothing, newest=3)
    assert list(dict.__iter__(state.runs)) == ["r2", "r7", "r8", "r9"]


def test_what_the_world_keeps_beside_a_run_goes_and_comes_with_it() -> None:
    """Its provider's id and its outcome; what is taken away while it is here does not come back."""
    state = WorldState(rules="current", runs={run.run_id: run for run in map(ended, range(3))})
    state.by_provider = {f"dstack/p{number}": f"r{number}" for number in range(3)}
    state.outbox.outcomes = {"r0": 5, "r1": 6}
    retire(state, EVER, nothing, newest=0)
    assert isinstance(state.by_provider, Kept)
    assert not dict.__len__(state.by_provider)
    assert state.by_provider["dstack/p1"] == "r1"
    assert list(cold_of(state).loaded) == ["r1"]
    assert "r0" in state.outbox.outcomes
    assert state.outbox.outcomes.get("r2") is None
    assert state.by_provider.get("dstack/p9") is None
    assert state.by_provider.pop("dstack/p1", None) == "r1"
    assert state.by_provider.pop("dstack/p1", None) is None
    with pytest.raises(KeyError):
        state.by_provider["dstack/p1"]
    retire(state, EVER, nothing, newest=0)
    assert state.by_provider.get("dstack/p1") is None
    assert state.runs["r1"] == ended(1)
    assert state.outbox.outcomes["r1"] == 6
    assert state.by_provider.setdefault("dstack/p2", "other") == "r2"


def test_runs_of_a_race_are_found_by_it() -> None:
    """However long ago they ended."""
    runs = [ended(number, terms=Requirements(submitter="ada", race=f"race-{number % 3}")) for number in range(9)]
    lazy = apart(WorldState(rules="current", runs={run.run_id: run for run in runs}))
    assert [run.run_id for run in found_by(lazy.runs, "race-1")] == ["r1", "r4", "r7"]


def test_what_ended_lately_is_found_without_reading_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """In order, beside all that is held; a segment is passed by its row."""
    monkeypatch.setattr(segments, "SIZE", 3)
    lazy = apart(WorldState(rules="current", runs={run.run_id: run for run in map(ended, range(9))}))
    lazy.runs["r9"] = ended(9)
    read: list[int] = []
    numbered = Cold.numbered
    monkeypatch.setattr(Cold, "numbered", lambda self, one: (read.append(one.first), numbered(self, one))[1])
    late = [f"r{number}" for number in range(4, 10)]
    assert [run.run_id for run in some_of(lazy.runs, lambda brief: brief.at >= 4)] == late
    assert read == [3, 6]
    assert [run.run_id for run in held(lazy.runs)] == late


def test_a_tally_is_kept_with_each_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """It counts what changed since as it is now, and nothing twice."""
    monkeypatch.setattr(segments, "SIZE", 3)
    state = WorldState(rules="current", runs={run.run_id: run for run in map(ended, range(9))})
    state.runs["r4"].state = State.FAILED
    retire(state, EVER, nothing, newest=0)

    def states(state: WorldState) -> dict[str, int]:
        return dict(tally_of(state.runs, "states", lambda run: (run.state.value, 1)))

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
        assert tally_of(again.runs, f"another {number}", lambda _: ("", 1)) == {"": 10}
    assert all(len(segment.tallies) == 8 for segment in cold_of(again).segments)


def test_a_brief_says_what_may_still_matter() -> None:
    """Output that was not read to its end, and a run without capacity, are looked at again."""
    said = Said(mark=b"{}")
    assert brief_of(ended(1, said=said)).speaks
    assert not brief_of(ended(1, said=Said(mark=b"{}", ended=True))).speaks
    assert not brief_of(ended(1, said=Said(mark=b"{}", over=True))).speaks
    assert brief_of(ended(1, state=State.FAILED, reason=Reason.NO_CAPACITY)).lacked
    unrun = RunFacts(provider_id="p", jobs=(JobFacts(attempts=(AttemptFacts(unrun=True),)),))
    assert brief_of(ended(1, state=State.FAILED, reason=Reason.PROVIDER_ERROR, facts=unrun)).lacked
    assert not brief_of(ended(1, state=State.FAILED, reason=Reason.PROVIDER_ERROR)).lacked
    assert brief_of(ended(1, finished_at=70, requested_at=80)).at == 80
