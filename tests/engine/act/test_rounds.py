"""What a round does, in which order, and what it leaves alone."""

import pytest

from engine.errors import ProviderUnreachable
from engine.policy import HOUR, Policy
from engine.states import State
from events import types
from events.clock import SECOND
from events.poll import Poll

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
    """What we see may be old: the request waits, whatever room there seems to be."""
    run_id = priced.ask("true")
    silent(priced, monkeypatch)
    assert priced.recorder.round().decisions == ()
    assert priced.kinds(run_id) == ["RunRequested"]
    monkeypatch.undo()
    priced.recorder.round()
    assert "SubmitSucceeded" in priced.kinds(run_id)


def test_a_stop_goes_first_and_is_not_held_up_by_a_silent_server(priced, monkeypatch):
    """Before any poll, and where none is answered."""
    run_id = priced.ask("sleep 3600")
    priced.dispatcher.submitted(run_id, WAIT)
    priced.ask_to_stop(run_id, abort=True)
    silent(priced, monkeypatch)
    priced.recorder.round()
    order = [stored.type for stored in priced.record.read(types={"StopSucceeded", "PollFailed"})]
    assert order == ["StopSucceeded", "PollFailed"]
    monkeypatch.undo()
    assert priced.finish(run_id).state is State.STOPPED


def test_a_round_that_only_looks_decides_and_adopts_nothing(priced):
    run_id = priced.ask("true")
    priced.recorder.round(act=False)
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
    priced.recorder._decide = lambda *scene: decided.pop() if decided else ()
    from engine.decide.controller import decide

    priced.recorder.live.catch_up()
    decided = [decide(priced.world.state, priced.provider.source, PRICED, priced.clock.now())]
    priced.recorder.act()
    assert "SubmitSucceeded" in priced.kinds(run_id)
    assert priced.record.vault.owners() == (run_id,)
    priced.finish(run_id)
    priced.recorder.round()
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
    priced.recorder.round()
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
    assert priced.recorder.round().pause == 0
    assert "SubmitSucceeded" in priced.kinds(run_id)
    assert 0 < priced.recorder.round().pause <= SECOND
