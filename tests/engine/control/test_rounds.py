"""Rounds: their steps and pace, several recorders in one thread, and outcomes that another process decides."""

import threading
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.records import StandingClock, poll_of
from stenotest.waiting import wait

from steno.engine.control.controller import Controller
from steno.engine.control.dispatcher import Dispatcher
from steno.engine.control.effects import Executor
from steno.engine.control.poll_interval import Pace, Rhythm, after_round
from steno.engine.control.round_robin import RoundRobin
from steno.engine.errors import ProviderUnreachable
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.local.provider import LocalProvider
from steno.engine.providers.registry import READINGS
from steno.engine.state.changes import Blind
from steno.engine.state.outbox import Outbox
from steno.engine.state.policy import HOUR, Policy
from steno.engine.state.sources import Source
from steno.engine.state.states import State
from steno.events import types
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.errors import LeaseLost
from steno.events.poll import Poll
from steno.events.store.record import Record

WAIT = 600 * SECOND
PRICED = Policy(max_vms=2, idle_timeout=0, assumed_duration=HOUR)


@pytest.fixture
def priced(open_bench, tmp_path):
    return open_bench(tmp_path / "record.db", policy=PRICED, price=1_990_000)


def silent(bench, monkeypatch):
    """The provider does not answer any more."""

    def poll(follow, *, since):
        now = bench.clock.now()
        yield Poll(
            source=bench.provider.source,
            path="/local/runs/list",
            req=b"{}",
            started_at=now,
            observed_at=now,
            status=None,
            error="connection refused",
            answered=False,
        )

    monkeypatch.setattr(bench.provider, "poll", poll)


def test_nothing_is_decided_on_a_round_that_nobody_answered(priced, monkeypatch):
    """Our view may be old: the request waits, whatever room there seems to be."""
    run_id = priced.ask("true")
    silent(priced, monkeypatch)
    assert priced.controller.round().decisions == ()
    assert priced.kinds(run_id) == ["RunRequested"]
    monkeypatch.undo()
    priced.controller.round()
    assert "SubmitSucceeded" in priced.kinds(run_id)


def test_a_stop_goes_first_and_is_not_held_up_by_a_silent_server(priced, monkeypatch):
    """Before any poll, and where none is answered."""
    run_id = priced.ask("sleep 3600")
    priced.dispatcher.submitted(run_id, WAIT)
    priced.ask_to_stop(run_id, abort=True)
    silent(priced, monkeypatch)
    priced.controller.round()
    order = [stored.type for stored in priced.record.read(types={"StopSucceeded", "PollFailed"})]
    assert order == ["StopSucceeded", "PollFailed"]
    monkeypatch.undo()
    assert priced.finish(run_id).state is State.STOPPED


def test_a_round_that_only_looks_decides_and_adopts_nothing(priced):
    run_id = priced.ask("true")
    priced.controller.round(act=False)
    assert priced.kinds(run_id) == ["RunRequested"]
    assert not priced.facts("PolicyAdopted", "RunPlaced", "RunHeld")


def test_whoever_waits_is_told_at_once_that_the_provider_is_not_reached(priced, monkeypatch):
    """It was certainly not handed over, and never will be by this request."""
    silent(priced, monkeypatch)

    def unreachable(name, since):
        raise ProviderUnreachable("no answer from the server", sent=False)

    monkeypatch.setattr(priced.provider, "find", unreachable)
    run_id = priced.ask("true")
    outcome = priced.dispatcher.submitted(run_id, WAIT)
    assert outcome == types.SubmitFailed(
        run_id=run_id, provider="local", error="no answer from the server", reason="unreachable"
    )


def test_secrets_stay_while_the_run_may_have_to_be_made_again(priced):
    """Until it has started; a free machine never lacks capacity, so there they go with the outcome."""
    run_id = priced.ask("sleep 0.3", env={"TOKEN": "hunter2"})
    priced.controller._decide = lambda *situation: decided.pop() if decided else ()
    from steno.engine.decide.decisions import decide

    priced.controller.live.catch_up()
    decided = [decide(priced.world.state, priced.provider.source, PRICED, priced.clock.now())]
    priced.controller.act()
    assert "SubmitSucceeded" in priced.kinds(run_id)
    assert priced.record.vault.owners() == (run_id,)
    priced.finish(run_id)
    priced.controller.round()
    assert not priced.record.vault.owners()


def test_an_older_record_s_open_intent_is_carried_out_without_a_place(priced):
    """Records from before places: an intent with no outcome is looked for, and called where nothing is there."""
    run_id = priced.ask("true")
    priced.journal.write(
        f"run/{run_id}", types.SubmitIntended(run_id=run_id, provider="local", name=f"run-{run_id[:8]}")
    )
    assert priced.finish(run_id).state is State.SUCCEEDED
    assert not priced.facts("RunPlaced")


def test_a_request_nobody_looked_after_for_a_day_is_abandoned(priced):
    run_id = priced.ask("true")
    priced.clock.ahead += 25 * 3600 * SECOND
    priced.controller.round()
    (outcome,) = priced.facts("IntentAbandoned")
    assert outcome.run_id == run_id
    assert "24 hours" in outcome.why


def test_the_pause_is_that_of_the_polls_whatever_a_call_takes(priced, monkeypatch):
    """A submission of 15 s used to make 60 s of silence: nothing but the time of the polls counts."""
    priced.clock.stand_still()
    submit = priced.provider.submit

    def slowly(submission):
        priced.clock.ahead += 15 * SECOND
        return submit(submission)

    monkeypatch.setattr(priced.provider, "submit", slowly)
    run_id = priced.ask("true")
    assert priced.controller.round().pause == 0
    assert "SubmitSucceeded" in priced.kinds(run_id)
    assert 0 < priced.controller.round().pause <= SECOND


PACE = Pace()
rounds = st.lists(
    st.fixed_dictionaries(
        {"answered": st.booleans(), "moving": st.booleans(), "took": st.integers(min_value=0, max_value=60 * SECOND)}
    ),
    max_size=60,
)


@given(rounds)
def test_the_interval_never_leaves_its_bounds(history):
    """However the rounds went: a pause of at least `fast`, and never longer than `slow` from start to start."""
    rhythm = Rhythm()
    for step in history:
        rhythm = after_round(rhythm, PACE, **step)
        assert PACE.fast <= rhythm.interval <= PACE.slow
        if step["answered"]:
            assert rhythm.interval + step["took"] <= max(PACE.slow, step["took"] + PACE.fast)


@given(rounds)
def test_something_moving_is_polled_fast_at_once(history):
    """However slow it was, the round in which something moves brings the fast interval back."""
    rhythm = Rhythm()
    for step in history:
        rhythm = after_round(rhythm, PACE, **step)
    assert after_round(rhythm, PACE, answered=True, moving=True, took=1000).interval == PACE.fast


def test_a_quiet_source_slows_down_and_stays_fresh():
    """Quiet rounds grow the interval to its bound, which is under the 30 s after which a source is stale."""
    rhythm, seen = Rhythm(), []
    for _ in range(12):
        rhythm = after_round(rhythm, PACE, answered=True, moving=False, took=1000)
        seen.append(rhythm.interval)
    assert seen == sorted(seen)
    assert seen[-1] + 1000 == PACE.slow < 30 * SECOND


def test_a_server_that_is_down_is_asked_less_and_less_and_found_again_at_once():
    """1, 2, 4, 8 s … while it fails; the first answer brings back the fast interval."""
    rhythm, seen = Rhythm(), []
    for _ in range(6):
        rhythm = after_round(rhythm, PACE, answered=False, moving=True, took=5 * SECOND)
        seen.append(rhythm.interval // SECOND)
    assert seen == [1, 2, 4, 8, 15, 15]
    assert after_round(rhythm, PACE, answered=True, moving=False, took=1000) == Rhythm(interval=PACE.fast)


def test_a_large_project_is_not_polled_without_a_pause():
    """A round that takes 2 s is followed by at least 8 s of rest."""
    assert after_round(Rhythm(), PACE, answered=True, moving=True, took=2 * SECOND).interval == 8 * SECOND


@pytest.mark.parametrize("took", [4, 10, 15, 40])
def test_a_slow_server_does_not_make_us_silent(took):
    """A round of 15 s used to be followed by 60 s of silence, in which the source counted as blind."""
    interval = after_round(Rhythm(), PACE, answered=True, moving=True, took=took * SECOND).interval
    assert interval == max(PACE.fast, PACE.slow - took * SECOND)


class Listed(LocalProvider):
    """Answers that nothing runs there; where `gate` is not set, it waits for it."""

    def __init__(self, folder, host):
        super().__init__(folder, clock=SystemClock(), ids=RandomIds(), host=host, environment={})
        self.gate = threading.Event()
        self.gate.set()
        self.waits = threading.Event()

    def poll(self, follow, *, since):
        if not self.gate.is_set():
            self.waits.set()
            self.gate.wait()
        yield poll_of(b"[]", source=self.source, at=SystemClock().now())


@pytest.fixture
def two(tmp_path):
    """The turns of two sources on one world, and their providers."""
    with ExitStack() as opened:
        record = opened.enter_context(
            Record.open(tmp_path / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock())
        )
        live, made = LiveWorld(READINGS, record), []
        for host in ("a", "b"):
            provider = Listed(tmp_path / host, host)
            controller = Controller(
                live=live,
                provider=provider,
                clock=SystemClock(),
                policy=Policy(free=True),
                pace=Pace(fast=SECOND // 100, slow=SECOND // 100),
                executor=Executor(),
            )
            rounds = []
            turns = RoundRobin(controller, lambda done, _held, rounds=rounds: rounds.append(done))
            opened.callback(turns.end, "the test ends")
            opened.callback(provider.gate.set)
            made.append((turns, provider, rounds))
        yield made


def step(two, until):
    """Go on with both until it holds."""

    def done():
        for turns, _, _ in two:
            turns.step()
        return until()

    wait(done)


def test_a_source_that_does_not_answer_delays_no_other(two):
    """The rounds of the other go on; what waited goes on when its answer comes."""
    (_, slow, waiting), (_, _, others) = two
    slow.gate.clear()
    step(two, lambda: len(others) >= 5)
    assert not waiting
    slow.gate.set()
    step(two, lambda: waiting)
    assert (waiting[0].polls, waiting[0].answered) == (1, 1)


def test_a_source_is_handed_over_when_its_round_and_its_effects_have_ended(two):
    """No new round begins; the lease is free, and taken again if the source comes back."""
    (leaving, provider, rounds), (staying, _, others) = two
    step(two, lambda: rounds and others)
    provider.gate.clear()
    step(two, provider.waits.is_set)  # not a round that passed the gate before
    leaving.leave()
    before = len(others)
    step(two, lambda: len(others) >= before + 3)
    assert leaving.controller.holds
    provider.gate.set()
    step(two, lambda: not leaving.controller.holds)
    done = len(rounds)
    before = len(others)
    step(two, lambda: len(others) >= before + 3)
    assert len(rounds) == done
    assert staying.controller.holds
    leaving.stay()
    step(two, lambda: len(rounds) > done)
    assert leaving.controller.holds


def test_a_round_that_fails_is_over_and_another_one_follows(two, monkeypatch):
    """A lost lease stops neither the thread nor the other source."""
    (failing, _, rounds), (_, _, others) = two
    step(two, lambda: rounds and others)
    monkeypatch.setattr(failing.controller.live.record, "append_polls", lambda *_, **__: failing_append())

    def failing_append():
        raise LeaseLost("another process acts")

    with pytest.raises(LeaseLost):
        step([two[0]], lambda: False)
    monkeypatch.undo()
    before = len(rounds), len(others)
    step(two, lambda: len(rounds) > before[0] and len(others) > before[1])


def test_changes_of_another_source_do_not_hurry_this_one(two):
    """A world has all sources; each is polled as often as its own changes ask for."""
    (here, _, rounds), _ = two
    step(two, lambda: rounds)
    assert here.controller._concerns(Blind(source=here.controller.source, since=1, until=None))
    assert not here.controller._concerns(Blind(source="dstack/elsewhere", since=1, until=None))


DOWN = "Unable to contact slurm controller"


def waiting(silent: dict[str, int]) -> Dispatcher:
    """Beside a holder that does not act; accounting answers all the time, the witnesses in `silent` do not."""
    clock, source = StandingClock(), Source(name="slurm/lab", last_answered=0, silent=silent)
    failure = SimpleNamespace(position=7)
    record = SimpleNamespace(
        read=lambda **_: iter([failure] if silent else []), poll=lambda _: SimpleNamespace(error=DOWN, status=1)
    )
    controller: Any = SimpleNamespace(
        source="slurm/lab",
        hold=lambda: False,
        catch_up=lambda: None,
        world=SimpleNamespace(state=SimpleNamespace(sources={"slurm/lab": source})),
        journal=SimpleNamespace(record=record, outbox=Outbox),
        actor=None,
        effects=None,
        clock=clock,
    )
    return Dispatcher(controller)


def test_a_controller_that_is_away_is_blamed_though_accounting_answers() -> None:
    """Once the time is up: before, the holder may be at work."""
    with pytest.raises(ProviderUnreachable, match=f"slurm/lab does not answer .*{DOWN}"):
        waiting({"controller": 0}).submitted("a-run", 60 * SECOND)


def test_a_holder_that_is_slow_is_no_outage() -> None:
    assert waiting({}).submitted("a-run", 60 * SECOND) is None
