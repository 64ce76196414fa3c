"""Effects under way at the same time: what may start, in which order it goes on, and that polls never wait for it."""

import threading
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.inline_executor import InlineExecutor
from stenotest.records import StandingClock

from steno.engine.control import effects as module
from steno.engine.control.effects import AT_ONCE, Effects, Executor, Result
from steno.engine.errors import ProviderError, ProviderUnreachable
from steno.engine.state.policy import HOUR, Policy
from steno.engine.state.states import State, VmState
from steno.events.clock import SECOND

PRICE = 1_990_000
MANY = Policy(max_vms=20, idle_timeout=HOUR, assumed_duration=HOUR)


class ByHand:
    """An executor whose calls end when and in the order in which a test says."""

    def __init__(self):
        self.calls = []
        self.over = None

    def make(self, key, call):
        self.calls.append((key, call))

    def finish(self, number):
        key, call = self.calls.pop(number % len(self.calls))
        self.over = key, Result.of(call)

    def finished(self, wait):
        over, self.over = self.over, None
        return over

    def close(self):
        pass


@given(
    st.lists(
        st.one_of(
            st.tuples(st.sampled_from(["begin", "end"]), st.integers(0, 7), st.integers(0, 3)), st.integers(0, 30)
        ),
        max_size=80,
    )
)
def test_effects_of_one_thing_follow_one_another_and_lanes_are_bounded(steps):
    """Whatever starts and ends when: one effect of a key at a time, its calls in order, at most AT_ONCE of a lane."""
    hands = ByHand()
    effects = Effects(hands, StandingClock())
    going, lanes, done = {}, defaultdict(set), []

    def effect(lane, key, calls):
        assert key not in going
        going[key] = 0
        lanes[lane].add(key)
        assert len(lanes[lane]) <= AT_ONCE
        for number in range(calls):
            assert (yield lambda number=number: (key, number)) == (key, number)
            assert going[key] == number
            going[key] += 1
        del going[key]
        lanes[lane].discard(key)
        done.append(key)
        return True

    for step in steps:
        if isinstance(step, tuple):
            lane, number, calls = step
            key, free = f"run/{number}", not effects.has(f"run/{number}") and not effects.full(lane)
            ended = effects.start(lane, key, effect(lane, key, calls))
            assert ended == (free and calls == 0)
        elif hands.calls:
            hands.finish(step)
            assert effects.attend(0)
        assert {key for key, _ in hands.calls} == set(going) == {key for key in going if effects.has(key)}
    while hands.calls:
        hands.finish(0)
        effects.attend(0)
    assert not going


def test_a_clock_that_is_set_back_makes_no_wait_endless():
    """An hour back in the middle of a pause used to add that hour to it."""

    class SetBack(StandingClock):
        jumped = False

        def sleep(self, duration):
            super().sleep(duration)
            if not self.jumped:
                self.jumped = True
                self._now -= 3600 * SECOND

    clock = SetBack()
    began = clock.now()
    Effects(InlineExecutor(clock), clock).wait(15 * SECOND)
    assert clock.now() + 3600 * SECOND - began == 30 * SECOND


def test_an_error_ends_an_effect_and_is_kept():
    """A provider's error is kept and not raised where effects go on; any other error is a bug and is raised."""
    effects = Effects(InlineExecutor(StandingClock()), StandingClock())

    def fails(error):
        def call():
            raise error

        yield call
        return True

    assert not effects.start("end", "run/1", fails(ProviderUnreachable("gone")))
    assert str(effects.errors["run/1"]) == "gone"
    assert effects.unreachable
    with pytest.raises(KeyError):
        effects.start("end", "run/1", fails(KeyError("ours")))
    assert not effects.has("run/1")
    assert "run/1" not in effects.errors


def test_a_call_that_cannot_be_made_leaves_nothing_under_way(monkeypatch):
    """No thread can be started: the effect can start again with the next round."""
    effects = Effects(Executor(), StandingClock())

    def refuses(*_, **__):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(module.threading, "Thread", refuses)

    def effect():
        yield lambda: None
        return True

    with pytest.raises(RuntimeError, match="thread"):
        effects.start("end", "run/1", effect())
    assert not effects.busy


# -- with processes of this machine -----------------------------------------------------------------------------------


class Hang:
    """Calls of one method that wait until the test lets them go."""

    def __init__(self, monkeypatch, provider, name, hangs=lambda *_: True):
        self.calls, self.gate, method = [], threading.Event(), getattr(provider, name)

        def call(*args, **kwargs):
            self.calls.append(args)
            if hangs(*args):
                assert self.gate.wait(600)
            return method(*args, **kwargs)

        monkeypatch.setattr(provider, name, call)

    def let_go(self):
        self.gate.set()


@pytest.fixture
def hang(monkeypatch):
    """`hang(provider, "submit", hangs=…)`: its calls wait, those that `hangs` selects; released when the test ends."""
    made = []

    def at(*args, **kwargs):
        made.append(Hang(monkeypatch, *args, **kwargs))
        return made[-1]

    yield at
    for hanging in made:
        hanging.let_go()


@pytest.fixture
def many(open_bench, tmp_path):
    """A bench with room for twenty machines, whose calls are made beside the polls."""
    return open_bench(tmp_path / "record.db", policy=MANY, price=PRICE, executor=Executor())


def until(bench, done):
    """Rounds as a recorder makes them, until it is so."""

    def attended():
        bench.controller.effects.attend(SECOND // 20)
        return done()

    bench.poll_until(attended)


def positions(bench, kind, run_id=None):
    stream = None if run_id is None else f"run/{run_id}"
    return [stored.position for stored in bench.record.read(types={kind}, stream=stream)]


@pytest.mark.slow
def test_polls_go_on_while_a_submission_hangs(many, hang):
    """Every round ends, and is recorded, between the intent and its outcome; the run is handed over once."""
    held = hang(many.provider, "submit")
    run_id = many.ask("true")
    until(many, lambda: held.calls)
    before = len(positions(many, "PollRecorded"))
    for _ in range(5):
        done = many.controller.round()
        assert done.answered == done.polls > 0
    assert len(positions(many, "PollRecorded")) >= before + 5
    assert "SubmitSucceeded" not in many.kinds(run_id)
    held.let_go()
    until(many, lambda: run_id in many.world.state.runs and many.run(run_id).terminal)
    assert many.run(run_id).state is State.SUCCEEDED
    assert len(held.calls) == 1
    assert [many.kinds(run_id).count(kind) for kind in ("SubmitIntended", "SubmitSucceeded")] == [1, 1]
    assert not many.world.state.blind


@pytest.mark.slow
def test_other_runs_are_handed_over_while_one_submission_hangs(many, hang):
    """Later requests do not wait for it."""
    held = hang(many.provider, "submit", hangs=lambda submission: submission.name == "hangs")
    first = many.ask("true", name="hangs")
    others = [many.ask("true") for _ in range(2)]
    until(many, lambda: all("SubmitSucceeded" in many.kinds(run_id) for run_id in others))
    assert many.kinds(first)[-1] == "SubmitIntended"
    held.let_go()
    until(many, lambda: "SubmitSucceeded" in many.kinds(first))


@pytest.mark.slow
def test_at_most_so_many_submissions_are_made_at_once_and_all_are_made(many, hang):
    """The others start as soon as one has ended, without another round; each counts those that are ahead of it."""
    held, plans = hang(many.provider, "submit"), []
    many.provider.plan = lambda submission, *, ahead=0: plans.append(ahead)
    runs = [many.ask("true") for _ in range(AT_ONCE + 2)]
    until(many, lambda: len(held.calls) == AT_ONCE)
    for _ in range(3):
        many.controller.round()
    assert len(held.calls) == AT_ONCE
    assert plans == list(range(AT_ONCE))
    held.let_go()
    many.controller.effects.wait(600 * SECOND, until=lambda: len(positions(many, "SubmitSucceeded")) == len(runs))
    assert sorted(sent.run_id for (sent,) in held.calls) == sorted(runs)


@pytest.mark.slow
def test_a_run_the_provider_cannot_answer_for_is_not_asked_for_again_before_the_next_round(many, hang, monkeypatch):
    """The end of another's submission starts what waited for its place, and nothing that has just met trouble."""
    held, submit = hang(many.provider, "submit"), many.provider.submit
    bad, tried = many.ask("true", name="bad"), []

    def fails(submission):
        if submission.run_id == bad:
            tried.append(submission)
            raise ProviderError("answered 500")
        return submit(submission)

    monkeypatch.setattr(many.provider, "submit", fails)

    def no_answer(name, since):
        tried.append(name)
        raise ProviderError("answered 500")

    monkeypatch.setattr(many.provider, "find", no_answer)
    others = [many.ask("true") for _ in range(AT_ONCE + 2)]
    many.controller.round()
    held.let_go()
    many.controller.effects.wait(600 * SECOND, until=lambda: len(positions(many, "SubmitSucceeded")) == len(others))
    assert len(tried) == 2  # handed over, and looked for
    many.controller.round()
    many.controller.effects.wait(600 * SECOND, until=lambda: len(tried) == 3)


@pytest.mark.slow
def test_a_run_is_stopped_while_submissions_hang(many, hang):
    """A stop of something that costs money never waits for a start."""
    running = many.ask("sleep 3600")
    until(many, lambda: "SubmitSucceeded" in many.kinds(running))
    held = hang(many.provider, "submit")
    for _ in range(AT_ONCE):
        many.ask("true")
    until(many, lambda: len(held.calls) == AT_ONCE)
    many.ask_to_stop(running, abort=True)
    until(many, lambda: many.run(running).terminal)
    assert not held.gate.is_set()
    assert "StopSucceeded" in many.kinds(running)
    held.let_go()


@pytest.mark.slow
def test_a_stop_of_a_run_whose_submission_hangs_follows_it(many, hang):
    """Never beside it, so that the provider cannot start what it was told to stop."""
    held, stopped = hang(many.provider, "submit"), hang(many.provider, "stop", hangs=lambda *_: False)
    run_id = many.ask("sleep 3600")
    until(many, lambda: held.calls)
    many.ask_to_stop(run_id, abort=True)
    for _ in range(3):
        many.controller.round()
    assert not stopped.calls
    held.let_go()
    until(many, lambda: many.run(run_id).terminal)
    (taken,), (intended,) = positions(many, "SubmitSucceeded", run_id), positions(many, "StopIntended", run_id)
    assert taken < intended
    assert many.run(run_id).state is State.STOPPED


@pytest.mark.slow
def test_an_idle_machine_goes_in_time_while_submissions_hang(open_bench, tmp_path, hang):
    """Its evidence grows with the polls, which go on: a submission of 5 s used to be added to every timeout."""
    policy = Policy(max_vms=20, idle_timeout=2 * SECOND, assumed_duration=HOUR)
    bench = open_bench(tmp_path / "record.db", policy=policy, price=PRICE, executor=Executor())
    bench.controller.stays = True  # else the provider's own timer is as short as ours
    first = bench.ask("true")
    until(bench, lambda: bench.machines() and bench.machines()[0].state is VmState.IDLE)
    held = hang(bench.provider, "submit")
    for _ in range(AT_ONCE):
        bench.ask("true", creation_policy="create")
    until(bench, lambda: not bench.machines()[0].billed)
    assert len(held.calls) == AT_ONCE
    assert not held.gate.is_set()
    assert bench.machines()[0].runs == (first,)
    assert len(positions(bench, "VmStopIntended")) == len(positions(bench, "VmStopSucceeded")) == 1
    held.let_go()


@pytest.mark.slow
def test_a_stop_of_a_machine_that_hangs_is_made_once(many, hang):
    """Its intent is open and under way: neither the next rounds nor what they decide tell the provider again."""
    many.ask("true")
    until(many, lambda: many.machines() and many.machines()[0].state is VmState.IDLE)
    held = hang(many.provider, "stop_vm")
    many.controller.policy = Policy(max_vms=20, idle_timeout=0, assumed_duration=HOUR)
    until(many, lambda: held.calls)
    for _ in range(5):
        many.controller.round()
    assert len(held.calls) == 1
    held.let_go()
    until(many, lambda: not many.machines()[0].billed)
    assert len(held.calls) == 1


@pytest.mark.slow
def test_whoever_leaves_waits_for_the_answer_and_writes_it_down(many, hang):
    """Released in order: the outcome is in the record before the lease is free."""
    held = hang(many.provider, "submit")
    run_id = many.ask("true")
    assert many.controller.hold()
    until(many, lambda: held.calls)
    threading.Timer(0.2, held.let_go).start()
    many.controller.release()
    assert many.kinds(run_id)[-1] == "SubmitSucceeded"
    assert many.controller.hold()


@pytest.mark.slow
def test_whoever_leaves_with_a_call_under_way_keeps_the_lease(many, hang, monkeypatch, open_bench):
    """Its process could still start the run: no other may look for it before that process is gone."""
    monkeypatch.setattr(module, "DRAIN_TIMEOUT", SECOND // 5)
    held = hang(many.provider, "submit")
    run_id = many.ask("true")
    assert many.controller.hold()
    until(many, lambda: held.calls)
    lease = many.controller._lease
    store, name = many.record.store, many.provider.source
    many.controller.release()
    assert many.kinds(run_id)[-1] == "SubmitIntended"
    assert store.lease(name) is None
    lease.release()  # as the end of the process does
    held.let_go()
    other = open_bench(many.path, policy=MANY, price=PRICE)
    assert other.finish(run_id).state is State.SUCCEEDED
    assert other.kinds(run_id).count("SubmitSucceeded") == 1
