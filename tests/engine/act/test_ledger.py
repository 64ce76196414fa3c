"""What is open, and what to do about it."""

from hypothesis import given
from hypothesis import strategies as st

from engine.act.reconciler import UNHEARD, is_unheard
from engine.act.submitter import TOO_OLD, NextStep, next_step
from engine.facts import RunFacts
from engine.fold.outbox import Outbox
from engine.providers.dstack.run_reading import with_run_words
from engine.providers.dstack.words import RUN_STATUSES
from events import types
from events.clock import SECOND

NOW = 1_795_000_000 * SECOND


def requested(run_id="r1"):
    return types.RunRequested(
        run_id=run_id, provider="local", project="local", name=run_id, configuration=b"{}", submitter="ada"
    )


def held(run_id="r1"):
    return types.RunHeld(run_id=run_id, provider="local", why="cap", detail="3 of 3 machines are in use")


def placed(run_id="r1"):
    return types.RunPlaced(run_id=run_id, provider="local")


def requeued(run_id="r1"):
    return types.RunRequeued(
        run_id=run_id, provider="local", provider_id=f"p-{run_id}", attempt=2, gpu="MI210", not_before=NOW
    )


def intended(run_id="r1"):
    return types.SubmitIntended(run_id=run_id, provider="local", name=run_id)


def succeeded(run_id="r1"):
    return types.SubmitSucceeded(run_id=run_id, provider="local", provider_id=f"p-{run_id}", name=run_id)


def failed(run_id="r1"):
    return types.SubmitFailed(run_id=run_id, provider="local", error="no")


def abandoned(run_id="r1"):
    return types.IntentAbandoned(run_id=run_id, provider="local", intent="submit", why="old")


def stop_requested(run_id="r1"):
    return types.StopRequested(run_id=run_id, provider="local", name=run_id, submitter="ada")


def stop_succeeded(run_id="r1"):
    return types.StopSucceeded(run_id=run_id, provider="local")


def ledger_of(*events, at=NOW):
    outbox = Outbox()
    for position, event in enumerate(events, 1):
        outbox.apply(position, at, event)
    return outbox


def test_a_request_is_open_until_its_outcome():
    assert set(ledger_of(requested()).submits) == {"r1"}
    assert set(ledger_of(requested(), intended()).submits) == {"r1"}
    for outcome in (succeeded(), failed(), abandoned()):
        ledger = ledger_of(requested(), intended(), outcome)
        assert not ledger.submits
        assert ledger.outcomes["r1"] == 3


def test_a_request_waits_until_it_has_its_place():
    """Only the controller knows whether there is room; held or not makes no difference."""
    for waits in (ledger_of(requested()), ledger_of(requested(), held())):
        assert next_step(waits.submits["r1"], waits, NOW) is NextStep.WAIT
    ledger = ledger_of(requested(), held(), placed())
    assert next_step(ledger.submits["r1"], ledger, NOW) is NextStep.CALL
    assert ledger.submits["r1"].held is None


def test_an_intent_of_an_older_record_has_no_place_and_is_looked_for_all_the_same():
    ledger = ledger_of(requested(), intended())
    assert ledger.submits["r1"].placed is None
    assert next_step(ledger.submits["r1"], ledger, NOW) is NextStep.CHECK


def test_a_request_made_again_is_a_new_attempt_of_the_same_run():
    """Open again, without a place or an intent; the former provider id is nobody's any more."""
    ledger = ledger_of(requested(), placed(), intended(), succeeded(), requeued())
    again = ledger.submits["r1"]
    assert (again.attempt, again.placed, again.intended, again.position) == (2, None, None, 5)
    assert again.request == requested()
    assert ledger.former_ids == {"p-r1"}
    assert "r1" not in ledger.provider_ids
    assert "r1" not in ledger.outcomes
    assert next_step(again, ledger, NOW) is NextStep.WAIT


def test_a_run_is_made_again_once_for_each_answer_of_the_provider():
    """A second word about the same attempt, or one about a run nobody handed over, changes nothing."""
    before = ledger_of(requested(), placed(), intended(), succeeded(), requeued(), placed())
    after = ledger_of(requested(), placed(), intended(), succeeded(), requeued(), placed(), requeued())
    assert before.submits == after.submits
    assert ledger_of(requested(), requeued()).submits == ledger_of(requested()).submits


def test_a_run_in_a_queue_that_is_worked_on_does_not_grow_old():
    """It may wait for days while somebody decides about it; not while nobody looks."""
    ledger = ledger_of(requested(), held())
    waiting, late = ledger.submits["r1"], NOW + 3 * TOO_OLD
    assert next_step(waiting, ledger, late, looked_at=late - TOO_OLD) is NextStep.WAIT
    assert next_step(waiting, ledger, late, looked_at=late - TOO_OLD - 1) is NextStep.EXPIRED
    assert next_step(waiting, ledger, late) is NextStep.EXPIRED
    never_held = ledger_of(requested())
    assert next_step(never_held.submits["r1"], never_held, late, looked_at=late) is NextStep.EXPIRED


def test_the_stop_of_a_machine_is_open_until_its_outcome():
    """And open again at the next intent; only the newest outcome counts."""
    where = {"vm_id": "v1", "provider": "local"}
    intent = types.VmStopIntended(**where, provider_id="i1", by="idle")
    refused = types.VmStopFailed(**where, error="a run is on it")
    assert set(ledger_of(intent).vm_stops) == {"v1"}
    ledger = ledger_of(intent, refused)
    assert not ledger.vm_stops
    assert ledger.vm_outcomes["v1"] == 2
    ledger = ledger_of(intent, refused, intent, types.VmStopSucceeded(**where))
    assert not ledger.vm_stops
    assert ledger.vm_outcomes["v1"] == 4


def test_a_notice_is_open_until_it_is_taken_or_given_up():
    intent = types.NoticeIntended(notice_id="n1", kind="budget", body=b"{}")

    def failed_try(attempt, *, final=False):
        return types.NoticeFailed(notice_id="n1", error="answered 500", attempt=attempt, final=final)

    assert ledger_of(intent, failed_try(1), failed_try(2)).notices["n1"].attempts == 2
    for end in (types.NoticeDelivered(notice_id="n1", status=200, attempt=3), failed_try(5, final=True)):
        ledger = ledger_of(intent, failed_try(1), end)
        assert not ledger.notices
        assert ledger.noticed == {"n1"}


def test_an_intent_without_outcome_is_looked_for_before_any_call():
    ledger = ledger_of(requested(), intended())
    assert next_step(ledger.submits["r1"], ledger, NOW) is NextStep.CHECK


def test_a_stopped_request_is_never_called():
    ledger = ledger_of(requested(), stop_requested())
    assert next_step(ledger.submits["r1"], ledger, NOW) is NextStep.STOPPED
    ledger = ledger_of(requested(), intended(), stop_requested())
    assert next_step(ledger.submits["r1"], ledger, NOW) is NextStep.LOOK


def test_a_request_that_waited_a_day_is_never_called():
    ledger = ledger_of(requested(), placed())
    assert next_step(ledger.submits["r1"], ledger, NOW + TOO_OLD) is NextStep.CALL
    assert next_step(ledger.submits["r1"], ledger, NOW + TOO_OLD + 1) is NextStep.EXPIRED
    ledger = ledger_of(requested(), intended())
    assert next_step(ledger.submits["r1"], ledger, NOW + TOO_OLD + 1) is NextStep.LOOK


def test_a_second_stop_opens_again():
    ledger = ledger_of(requested(), succeeded(), stop_requested(), stop_succeeded(), stop_requested())
    assert set(ledger.stops) == {"r1"}
    assert "r1" not in ledger.stop_outcomes


def test_a_stop_that_was_taken_and_not_heard_is_asked_for_again():
    """dstack 0.22.5 can answer 200 and forget: a later poll that shows the run as before says so."""
    taken = ledger_of(requested(), succeeded(), stop_requested(), stop_succeeded()).taken["r1"]
    later = NOW + UNHEARD + 1
    said = {word: with_run_words(RunFacts(provider_id="p"), word, None, ()) for word in (*RUN_STATUSES, None)}
    assert is_unheard(taken, facts=said["running"], seen_at=later)
    assert is_unheard(taken, facts=said["provisioning"], seen_at=later)
    assert not is_unheard(taken, facts=said["running"], seen_at=NOW + UNHEARD)
    for word in ("terminating", "terminated", "done", None):
        assert not is_unheard(taken, facts=said[word], seen_at=later)
    assert not is_unheard(taken, facts=None, seen_at=later)
    assert "r1" not in ledger_of(requested(), succeeded(), stop_requested()).taken


makers = [
    requested,
    held,
    placed,
    intended,
    succeeded,
    requeued,
    failed,
    abandoned,
    stop_requested,
    stop_succeeded,
]


@given(st.lists(st.tuples(st.sampled_from(makers), st.sampled_from(["r1", "r2"])), max_size=20))
def test_runs_do_not_touch_each_other(script):
    """The ledger of all events, seen for one run, is the ledger of that run's events."""
    whole = ledger_of(*(make(run) for make, run in script))
    for run in ("r1", "r2"):
        alone = ledger_of(*(make(who) for make, who in script if who == run))
        assert (run in whole.submits) == (run in alone.submits)
        assert (run in whole.stops) == (run in alone.stops)
        assert (run in whole.outcomes) == (run in alone.outcomes)
        assert whole.provider_ids.get(run) == alone.provider_ids.get(run)
