"""Open requests, and the next step of each."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.control.actor import UNHEARD, is_unheard
from steno.engine.control.submitter import TOO_OLD, NextStep, next_step
from steno.engine.providers.dstack.run_reading import with_run_words
from steno.engine.providers.dstack.words import RUN_STATUSES
from steno.engine.state.facts import RunFacts
from steno.engine.state.outbox import Outbox
from steno.events import types
from steno.events.clock import SECOND

NOW = 1_795_000_000 * SECOND


RUN = {"run_id": "r1", "provider": "local"}
REQUESTED = types.RunRequested(**RUN, project="local", name="r1", configuration=b"{}", submitter="ada")
HELD = types.RunHeld(**RUN, why="cap", detail="3 of 3 machines are in use")
PLACED = types.RunPlaced(**RUN)
REQUEUED = types.RunRequeued(**RUN, provider_id="p-r1", attempt=2, gpu="MI210", not_before=NOW)
INTENDED = types.SubmitIntended(**RUN, name="r1")
SUCCEEDED = types.SubmitSucceeded(**RUN, provider_id="p-r1", name="r1")
FAILED = types.SubmitFailed(**RUN, error="no")
ABANDONED = types.IntentAbandoned(**RUN, intent="submit", why="old")
STOP_REQUESTED = types.StopRequested(**RUN, name="r1", submitter="ada")
STOP_SUCCEEDED = types.StopSucceeded(**RUN)


def ledger_of(*events):
    outbox = Outbox()
    for position, event in enumerate(events, 1):
        outbox.apply(position, NOW, event)
    return outbox


def test_a_request_is_open_until_its_outcome():
    assert set(ledger_of(REQUESTED).submits) == {"r1"}
    assert set(ledger_of(REQUESTED, INTENDED).submits) == {"r1"}
    for outcome in (SUCCEEDED, FAILED, ABANDONED):
        outbox = ledger_of(REQUESTED, INTENDED, outcome)
        assert not outbox.submits
        assert outbox.outcomes["r1"] == 3


def test_a_request_waits_until_it_has_its_place():
    """Only the controller knows whether there is room; held or not makes no difference."""
    for waits in (ledger_of(REQUESTED), ledger_of(REQUESTED, HELD)):
        assert next_step(waits.submits["r1"], waits, NOW) is NextStep.WAIT
    outbox = ledger_of(REQUESTED, HELD, PLACED)
    assert next_step(outbox.submits["r1"], outbox, NOW) is NextStep.CALL
    assert outbox.submits["r1"].held is None


def test_an_intent_of_an_older_record_has_no_place_and_is_looked_for_all_the_same():
    outbox = ledger_of(REQUESTED, INTENDED)
    assert outbox.submits["r1"].placed is None
    assert next_step(outbox.submits["r1"], outbox, NOW) is NextStep.CHECK


def test_a_request_made_again_is_a_new_attempt_of_the_same_run():
    """Open again, without a place or an intent; the former provider id is nobody's any more."""
    outbox = ledger_of(REQUESTED, PLACED, INTENDED, SUCCEEDED, REQUEUED)
    again = outbox.submits["r1"]
    assert (again.attempt, again.placed, again.intended, again.position) == (2, None, None, 5)
    assert again.request == REQUESTED
    assert outbox.former_ids == {"p-r1"}
    assert "r1" not in outbox.provider_ids
    assert "r1" not in outbox.outcomes
    assert next_step(again, outbox, NOW) is NextStep.WAIT


def test_a_run_is_made_again_once_for_each_answer_of_the_provider():
    """A second word about the same attempt, or one about a run nobody handed over, changes nothing."""
    before = ledger_of(REQUESTED, PLACED, INTENDED, SUCCEEDED, REQUEUED, PLACED)
    after = ledger_of(REQUESTED, PLACED, INTENDED, SUCCEEDED, REQUEUED, PLACED, REQUEUED)
    assert before.submits == after.submits
    assert ledger_of(REQUESTED, REQUEUED).submits == ledger_of(REQUESTED).submits


def test_a_run_in_a_queue_that_is_worked_on_does_not_grow_old():
    """It may wait for days while somebody decides about it; not while nobody looks."""
    outbox = ledger_of(REQUESTED, HELD)
    waiting, late = outbox.submits["r1"], NOW + 3 * TOO_OLD
    assert next_step(waiting, outbox, late, looked_at=late - TOO_OLD) is NextStep.WAIT
    assert next_step(waiting, outbox, late, looked_at=late - TOO_OLD - 1) is NextStep.EXPIRED
    assert next_step(waiting, outbox, late) is NextStep.EXPIRED
    never_held = ledger_of(REQUESTED)
    assert next_step(never_held.submits["r1"], never_held, late, looked_at=late) is NextStep.EXPIRED


def test_the_stop_of_a_machine_is_open_until_its_outcome():
    """And open again at the next intent; only the newest outcome counts."""
    where = {"vm_id": "v1", "provider": "local"}
    intent = types.VmStopIntended(**where, provider_id="i1", by="idle")
    refused = types.VmStopFailed(**where, error="a run is on it")
    assert set(ledger_of(intent).vm_stops) == {"v1"}
    outbox = ledger_of(intent, refused)
    assert not outbox.vm_stops
    assert outbox.vm_outcomes["v1"] == 2
    outbox = ledger_of(intent, refused, intent, types.VmStopSucceeded(**where))
    assert not outbox.vm_stops
    assert outbox.vm_outcomes["v1"] == 4


def test_a_notice_is_open_until_it_is_taken_or_given_up():
    intent = types.NoticeIntended(notice_id="n1", kind="budget", body=b"{}")

    def failed_try(attempt, *, final=False):
        return types.NoticeFailed(notice_id="n1", error="answered 500", attempt=attempt, final=final)

    assert ledger_of(intent, failed_try(1), failed_try(2)).notices["n1"].attempts == 2
    for end in (types.NoticeDelivered(notice_id="n1", status=200, attempt=3), failed_try(5, final=True)):
        outbox = ledger_of(intent, failed_try(1), end)
        assert not outbox.notices
        assert outbox.noticed == {"n1"}


def test_an_intent_without_outcome_is_looked_for_before_any_call():
    outbox = ledger_of(REQUESTED, INTENDED)
    assert next_step(outbox.submits["r1"], outbox, NOW) is NextStep.CHECK


def test_a_stopped_request_is_never_called():
    outbox = ledger_of(REQUESTED, STOP_REQUESTED)
    assert next_step(outbox.submits["r1"], outbox, NOW) is NextStep.STOPPED
    outbox = ledger_of(REQUESTED, INTENDED, STOP_REQUESTED)
    assert next_step(outbox.submits["r1"], outbox, NOW) is NextStep.LOOK


def test_a_request_that_waited_a_day_is_never_called():
    outbox = ledger_of(REQUESTED, PLACED)
    assert next_step(outbox.submits["r1"], outbox, NOW + TOO_OLD) is NextStep.CALL
    assert next_step(outbox.submits["r1"], outbox, NOW + TOO_OLD + 1) is NextStep.EXPIRED
    outbox = ledger_of(REQUESTED, INTENDED)
    assert next_step(outbox.submits["r1"], outbox, NOW + TOO_OLD + 1) is NextStep.LOOK


def test_a_second_stop_opens_again():
    outbox = ledger_of(REQUESTED, SUCCEEDED, STOP_REQUESTED, STOP_SUCCEEDED, STOP_REQUESTED)
    assert set(outbox.stops) == {"r1"}
    assert "r1" not in outbox.stop_outcomes


def test_a_stop_that_was_taken_and_not_heard_is_asked_for_again():
    """dstack 0.22.5 can answer 200 and forget: a later poll that shows the run as before says so."""
    taken = ledger_of(REQUESTED, SUCCEEDED, STOP_REQUESTED, STOP_SUCCEEDED).taken["r1"]
    later = NOW + UNHEARD + 1
    facts = {word: with_run_words(RunFacts(provider_id="p"), word, None, ()) for word in (*RUN_STATUSES, None)}
    assert is_unheard(taken, facts=facts["running"], seen_at=later)
    assert is_unheard(taken, facts=facts["provisioning"], seen_at=later)
    assert not is_unheard(taken, facts=facts["running"], seen_at=NOW + UNHEARD)
    for word in ("terminating", "terminated", "done", None):
        assert not is_unheard(taken, facts=facts[word], seen_at=later)
    assert not is_unheard(taken, facts=None, seen_at=later)
    assert "r1" not in ledger_of(REQUESTED, SUCCEEDED, STOP_REQUESTED).taken


EVENTS = (
    *(REQUESTED, HELD, PLACED, INTENDED, SUCCEEDED, REQUEUED),
    *(FAILED, ABANDONED, STOP_REQUESTED, STOP_SUCCEEDED),
)


def event_of(event, run):
    """The event of `r1` as that of another run."""
    fields = msgspec.structs.asdict(event).items()
    return msgspec.structs.replace(
        event, **{name: value.replace("r1", run) for name, value in fields if "r1" in str(value)}
    )


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.sampled_from(["r1", "r2"])), max_size=20))
def test_runs_do_not_touch_each_other(script):
    """The ledger of all events, seen for one run, is the ledger of that run's events."""
    whole = ledger_of(*(event_of(event, run) for event, run in script))
    for run in ("r1", "r2"):
        alone = ledger_of(*(event_of(event, run) for event, who in script if who == run))
        assert (run in whole.submits) == (run in alone.submits)
        assert (run in whole.stops) == (run in alone.stops)
        assert (run in whole.outcomes) == (run in alone.outcomes)
        assert whole.provider_ids.get(run) == alone.provider_ids.get(run)
