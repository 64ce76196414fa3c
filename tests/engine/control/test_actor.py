"""Intent, call, outcome: what a request becomes, with real processes of this machine."""

import msgspec
import pytest

from steno.engine.control.dispatcher import raise_failure
from steno.engine.errors import (
    Conflict,
    NameInUse,
    NotConfigured,
    ProviderError,
    ProviderFailing,
    ProviderUnreachable,
    TaskInvalid,
)
from steno.engine.state.states import Reason, State
from steno.engine.submit.requests import request_stop
from steno.events import types
from steno.events.clock import SECOND

WAIT = 600 * SECOND


def test_a_request_becomes_one_run_with_intent_and_outcome(bench):
    """Requested, intended, succeeded, in this order, and then what polls show."""
    run_id = bench.ask("exit 3")
    outcome = bench.dispatcher.submitted(run_id, WAIT)
    assert isinstance(outcome, types.SubmitSucceeded)
    run = bench.finish(run_id)
    assert (run.state, run.reason, run.exit_status) == (State.FAILED, Reason.EXIT_NONZERO, 3)
    kinds = bench.kinds(run_id)
    assert kinds[:3] == ["RunRequested", "SubmitIntended", "SubmitSucceeded"]
    assert set(kinds[3:]) == {"RunObserved"}


def test_secrets_reach_the_run_and_nothing_else(bench):
    """The value is in the process; not in the record's bytes, and not in the vault's after the outcome."""
    value = "hunter2-" + bench.ids.new()
    run_id = bench.ask('test "$TOKEN" = "$EXPECTED"', env={"TOKEN": value, "EXPECTED": value})
    vault = bench.record.store.blob("vault").path
    assert value in vault.read_text()
    assert isinstance(bench.dispatcher.submitted(run_id, WAIT), types.SubmitSucceeded)
    assert bench.finish(run_id).state is State.SUCCEEDED
    assert [file for file, content in bench.files().items() if value.encode() in content] == []


def test_a_request_whose_secrets_are_gone_is_abandoned(bench):
    """Never a call without its secrets."""
    run_id = bench.ask("true", env={"TOKEN": "hunter2"})
    bench.record.vault.erase(run_id)
    outcome = bench.dispatcher.submitted(run_id, WAIT)
    assert isinstance(outcome, types.IntentAbandoned)
    with pytest.raises(Conflict, match="secrets"):
        raise_failure(outcome)
    bench.controller.round()
    assert (bench.run(run_id).state, bench.run(run_id).reason) == (State.FAILED, Reason.REJECTED)


def test_a_task_the_provider_refuses_fails_with_its_words(bench):
    run_id = bench.ask("true", nodes=2)
    outcome = bench.dispatcher.submitted(run_id, WAIT)
    with pytest.raises(TaskInvalid, match="nodes"):
        raise_failure(outcome)


def test_a_task_whose_package_is_missing_here_is_rejected_and_recording_goes_on(bench, monkeypatch):
    """Requested where the package is, submitted by a recorder without it."""

    def missing(*_):
        raise NotConfigured("a task for dstack needs the package dstack")

    monkeypatch.setattr(bench.provider, "submit", missing)
    run_id = bench.ask("true")
    with pytest.raises(TaskInvalid, match="needs the package"):
        raise_failure(bench.dispatcher.submitted(run_id, WAIT))
    bench.controller.round()
    assert bench.run(run_id).reason is Reason.REJECTED


def test_two_requests_of_one_name_are_never_one_run(bench):
    """The second is refused while the first is active, and is not taken for it."""
    first = bench.ask("sleep 3600", name="twins")
    second = bench.ask("sleep 3600", name="twins")
    assert isinstance(bench.dispatcher.submitted(first, WAIT), types.SubmitSucceeded)
    with pytest.raises(NameInUse):
        raise_failure(bench.dispatcher.submitted(second, WAIT))
    bench.ask_to_stop(first, abort=True)
    bench.dispatcher.stopped(first, WAIT)
    assert bench.finish(first).state is State.STOPPED


def test_a_stop_is_requested_intended_and_done(bench):
    run_id = bench.ask("sleep 3600")
    bench.dispatcher.submitted(run_id, WAIT)
    bench.ask_to_stop(run_id)
    assert isinstance(bench.dispatcher.stopped(run_id, WAIT), types.StopSucceeded)
    run = bench.finish(run_id)
    assert (run.state, run.reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
    kinds = [kind for kind in bench.kinds(run_id) if kind != "RunObserved"]
    assert kinds[3:] == ["StopRequested", "StopIntended", "StopSucceeded"]


def test_a_stop_ends_the_run_that_was_recorded_whatever_id_was_asked_for(bench, open_bench, tmp_path):
    """The caller reads the id in the read models, which are not verified: the engine's own fold decides the run."""
    wanted, other = bench.ask("sleep 3600", name="wanted"), bench.ask("sleep 3600", name="other")
    for run_id in (wanted, other):
        assert isinstance(bench.dispatcher.submitted(run_id, WAIT), types.SubmitSucceeded)
    (tmp_path / "second.db.local").symlink_to(tmp_path / "record.db.local")
    second = open_bench(tmp_path / "second.db")
    second.poll_until(lambda: len(second.world.state.runs) == 2)
    foreign = next(run for run in second.world.state.runs.all() if run.name == "wanted")
    false = msgspec.structs.replace(foreign, provider_id=other)
    request_stop(second.journal, false, project=second.provider.project, abort=True, submitter="ada")
    assert isinstance(second.dispatcher.stopped(foreign.run_id, WAIT), types.StopSucceeded)
    assert second.finish(foreign.run_id).state is State.STOPPED
    bench.controller.round()
    assert not bench.run(other).terminal


def test_a_stop_before_the_submission_prevents_it(bench):
    """Nothing is ever handed over, and the run reads as stopped by its user."""
    run_id = bench.ask("sleep 3600")
    bench.ask_to_stop(run_id)
    assert isinstance(bench.dispatcher.stopped(run_id, WAIT), types.IntentAbandoned)
    bench.controller.round()
    assert (bench.run(run_id).state, bench.run(run_id).reason) == (State.STOPPED, Reason.STOPPED_BY_USER)
    assert "SubmitIntended" not in bench.kinds(run_id)


def test_a_recorder_carries_out_what_others_asked_for(bench):
    """A request without a holder waits in the record; the next round of the holder brings it about."""
    run_id = bench.ask("true")
    assert bench.finish(run_id).state is State.SUCCEEDED


def test_a_secret_left_by_a_crash_is_erased_by_the_next_round(bench):
    """A crash between outcome and erasing leaves the value in the vault, not for long."""
    run_id = bench.ask("true", env={"TOKEN": "hunter2"})
    bench.journal.write(f"run/{run_id}", types.SubmitFailed(run_id=run_id, provider="local", error="crashed"))
    assert run_id in bench.record.vault.owners()
    bench.controller.round()
    assert run_id not in bench.record.vault.owners()


def test_a_stop_does_not_wait_behind_a_submission_the_provider_cannot_answer_for(bench, monkeypatch):
    """A request in trouble holds up no other, least of all a stop of something that costs money."""
    running = bench.ask("sleep 3600")
    bench.dispatcher.submitted(running, WAIT)
    troubled = bench.ask("true", name="troubled")
    bench.journal.write(f"run/{troubled}", types.SubmitIntended(run_id=troubled, provider="local", name="troubled"))
    bench.ask_to_stop(running, abort=True)

    def broken(name, since):
        raise ProviderError("answered 500")

    monkeypatch.setattr(bench.provider, "find", broken)
    assert bench.actor.end_runs(bench.world.state) == 1
    bench.actor.hand_over(bench.world.state)
    assert troubled in bench.journal.outbox().submits
    assert isinstance(bench.journal.event(bench.journal.outbox().stop_outcomes[running]), types.StopSucceeded)
    monkeypatch.undo()
    assert bench.finish(running).state is State.STOPPED
    assert bench.finish(troubled).state is State.SUCCEEDED


@pytest.mark.parametrize(("trouble", "raised"), [(ProviderFailing, ProviderUnreachable), (ProviderError, TaskInvalid)])
def test_only_a_task_that_the_provider_refuses_is_rejected(bench, monkeypatch, trouble, raised):
    """A server that is overloaded or broken may take the same task later: exit 3, not 2."""

    def broken(submission):
        raise trouble("cannot submit the task")

    monkeypatch.setattr(bench.provider, "submit", broken)
    run_id = bench.ask("true")
    with pytest.raises(raised):
        raise_failure(bench.dispatcher.submitted(run_id, WAIT))


@pytest.mark.parametrize("call", ["plan", "submit"])
def test_a_bug_of_the_provider_ends_its_task_and_nothing_else(bench, monkeypatch, call, caplog):
    """A request that made every later command on the record fail too was seen: `int("abc")` in `submit`."""

    def broken(*_args, **_options):
        int("abc")

    run_id = bench.ask("true")
    with monkeypatch.context() as patched:
        patched.setattr(bench.provider, call, broken)
        with pytest.raises(TaskInvalid, match=r"by a bug .ValueError: invalid literal"):
            raise_failure(bench.dispatcher.submitted(run_id, WAIT))
    assert "Traceback" in caplog.text
    later = bench.ask("true")
    assert isinstance(bench.dispatcher.submitted(later, WAIT), types.SubmitSucceeded)
