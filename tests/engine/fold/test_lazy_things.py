"""A world loaded from a snapshot is decoded as far as somebody looks, and is the same to everybody.
Laws of what is decided from it: in `test_laws` and `test_race`.
"""

from typing import Any

import msgspec

from engine.decide.controller import decide
from engine.fold.lazy_things import LazyThings, brief_of
from engine.fold.run import Run, Said
from engine.fold.sources import Source
from engine.fold.world_codec import WorldState, dump_lazy, load_lazy
from engine.policy import Policy
from engine.states import Reason, State


def ended(number: int, **fields: Any) -> Run:
    known = {"run_id": f"r{number}", "provider": "dstack", "state": State.SUCCEEDED, "last_position": number}
    return Run(**{**known, "first_position": number, "first_at": number, "last_at": number, **fields})


def test_only_what_a_decision_asks_for_is_decoded() -> None:
    """Of ten thousand runs that are over, a start looks at the few that are open."""
    runs = {run.run_id: run for run in map(ended, range(10_000))}
    runs["open"] = ended(10_000, run_id="open", state=State.RUNNING)
    source = Source(name="dstack/main", machines_position=10_000, machines_at=10_000)
    state = WorldState(rules="current", runs=runs, unsettled={"open": None}, sources={source.name: source})
    lazy = load_lazy(dump_lazy(state))
    assert isinstance(lazy.runs, LazyThings)
    assert decide(lazy, "dstack/main", Policy(max_vms=1), 10**9) == ()
    assert lazy.runs.encoded() == 10_000
    again = load_lazy(dump_lazy(lazy))
    assert lazy.runs.encoded() == 10_000
    assert next(iter(reversed(again.runs.values()))).run_id == "open"
    assert [run.run_id for run in again.runs.values()] == list(runs)


def test_a_lazy_dict_is_the_dict() -> None:
    """Read, written, in order, compared and copied."""
    plain = {run.run_id: run for run in map(ended, range(4))}
    briefs = {key: brief_of(run) for key, run in plain.items()}
    encoded = msgspec.msgpack.decode(msgspec.msgpack.encode(plain), type=dict[str, msgspec.Raw])

    def fresh() -> LazyThings[Run]:
        return LazyThings(dict(encoded), dict(briefs), lambda _, raw: msgspec.msgpack.decode(raw, type=Run))

    assert fresh() == plain
    assert plain == fresh()
    assert dict(fresh()) == plain == {**fresh()}
    assert list(fresh().items()) == list(plain.items())
    assert list(reversed(fresh().values())) == list(reversed(plain.values()))
    for things in (fresh(), plain):
        assert things.get("r9") is None
        assert "r2" in things
        assert things.pop("r2") == ended(2)
        assert things.pop("r2", None) is None
        assert things.setdefault("r1", ended(7)) == ended(1)
        things["r0"] = ended(0, name="new")
        del things["r3"]
        things["r5"] = ended(5)
        assert list(things) == ["r0", "r1", "r5"]
        assert things["r0"].name == "new"
    met = fresh()
    assert met["r1"] is met["r1"]
    assert met.encoded() == 3
    part = met.part(lambda thing: not thing.hidden)
    assert part["r3"] is met["r3"]


def test_a_brief_says_what_may_still_matter() -> None:
    """Output that was not read to its end, and a run without capacity, are looked at again."""
    said = Said(mark=b"{}")
    assert brief_of(ended(1, said=said)).speaks
    assert not brief_of(ended(1, said=msgspec.structs.replace(said, ended=True))).speaks
    assert not brief_of(ended(1, said=msgspec.structs.replace(said, over=True))).speaks
    assert brief_of(ended(1, state=State.FAILED, reason=Reason.NO_CAPACITY)).lacked
    assert brief_of(ended(1, finished_at=70, requested_at=80)).at == 80
