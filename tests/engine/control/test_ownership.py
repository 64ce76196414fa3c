"""A run at the provider is ours if it carries our run id; a run that only has our name is not."""

import pytest
from stenotest.gated_run import holding

from steno.engine.control.dispatcher import raise_failure
from steno.engine.errors import Conflict, NameInUse
from steno.engine.providers.base import Named, Submission
from steno.engine.providers.task import choose_name
from steno.engine.state.policy import HOUR, Policy
from steno.engine.state.states import State
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id

pytestmark = pytest.mark.slow

WAIT = 600 * SECOND
PRICE = 1_990_000
ONE = Policy(max_vms=1, idle_timeout=2 * SECOND, assumed_duration=HOUR)


@pytest.fixture
def capped(open_bench, tmp_path):
    """A bench whose machines cost something, and of which there may be one."""
    return open_bench(tmp_path / "record.db", policy=ONE, price=PRICE)


def strangers(bench, *commands, name):
    """A run that somebody else submits straight to the provider; its id there."""
    task = {"type": "task", "commands": list(commands)}
    wanted = Submission(
        run_id=bench.ids.new(),
        name=name,
        project=bench.provider.project,
        configuration=task,
        base=str(bench.path.parent),
    )
    return bench.provider.submit(wanted).provider_id


def foreign(bench, provider_id):
    """The run that the provider knows under that id, as somebody else's."""
    return bench.world.state.runs[foreign_run_id("local", provider_id)]


def named(provider_id, *, mark=None, ended=False, at=None):
    return Named(provider_id=provider_id, mark=mark, ended=ended, submitted_at=at)


def test_a_strangers_run_of_a_waiting_requests_name_stays_theirs_and_ours_runs(capped, gate, tmp_path):
    """It comes while ours waits under the cap and ends before ours starts: ours is handed over all the same."""
    first, ours = capped.ask(holding(gate)), capped.ask("echo ours >> ran.txt", name="train")
    capped.dispatcher.submitted(first, WAIT)
    assert isinstance(capped.dispatcher.submitted(ours, WAIT), types.RunHeld)
    theirs = strangers(capped, "true", name="train")
    capped.poll_until(
        lambda: capped.world.state.by_provider.get(f"local/{theirs}") and foreign(capped, theirs).terminal
    )
    assert (capped.run(ours).provider_id, capped.run(ours).state) == (None, State.QUEUED)
    gate.touch()
    assert capped.finish(ours).state is State.SUCCEEDED
    assert (tmp_path / "ran.txt").read_text() == "ours\n"
    assert capped.run(ours).provider_id == ours
    assert foreign(capped, theirs).state is State.SUCCEEDED


def test_a_stop_of_a_waiting_request_leaves_the_strangers_run_of_its_name_alone(capped, gate):
    """The request ends; theirs goes on until its own end."""
    first, ours = capped.ask(holding(gate)), capped.ask("true", name="train")
    capped.dispatcher.submitted(first, WAIT)
    capped.dispatcher.submitted(ours, WAIT)
    theirs = strangers(capped, holding(gate), name="train")
    capped.poll_until(lambda: f"local/{theirs}" in capped.world.state.by_provider)
    capped.ask_to_stop(ours, abort=True)
    assert isinstance(capped.dispatcher.stopped(ours, WAIT), types.IntentAbandoned)
    capped.controller.round()
    assert capped.run(ours).state is State.STOPPED
    assert not foreign(capped, theirs).terminal
    assert "StopIntended" not in [stored.type for stored in capped.record.read()]
    gate.touch()
    capped.poll_until(lambda: foreign(capped, theirs).terminal)
    assert foreign(capped, theirs).state is State.SUCCEEDED


@pytest.mark.parametrize("ended", [False, True])
def test_a_name_the_user_chose_is_refused_where_a_strangers_run_has_it(bench, monkeypatch, ended):
    """Before any call: an active run would refuse it, a finished one would be deleted for it."""
    monkeypatch.setattr(bench.provider, "holder", lambda name: named("theirs", ended=ended))
    run_id = bench.ask("true", name="train")
    outcome = bench.dispatcher.submitted(run_id, WAIT)
    with pytest.raises(NameInUse, match="delete that run first$" if ended else "steno stop theirs"):
        raise_failure(outcome)
    assert "SubmitIntended" not in bench.kinds(run_id)
    assert bench.provider.find("train", 0) == ()


def test_a_finished_run_of_ours_gives_its_name_back(bench, monkeypatch):
    """As ever: a task file with a fixed name is submitted again and again."""
    first = bench.ask("true", name="train")
    bench.dispatcher.submitted(first, WAIT)
    bench.finish(first)
    monkeypatch.setattr(bench.provider, "holder", lambda name: named(first, mark=first, ended=True))
    assert isinstance(bench.dispatcher.submitted(bench.ask("true", name="train"), WAIT), types.SubmitSucceeded)


def test_a_name_that_steno_chose_gets_a_number_where_it_is_taken(bench, monkeypatch):
    """The run is known by the name it was handed over under."""
    run_id = bench.ids.new()
    name = choose_name(run_id, "a-stem-of-28-characters-long")
    bench.ids.new = lambda: run_id
    monkeypatch.setattr(bench.provider, "holder", lambda wanted: named("theirs") if wanted == name else None)
    bench.ask("true", name=name)
    outcome = bench.dispatcher.submitted(run_id, WAIT)
    assert (outcome.name, len(outcome.name) <= 41) == (f"{name[:26]}-{name[-12:]}-2", True)
    assert bench.finish(run_id).name == outcome.name
    assert bench.run(run_id).state is State.SUCCEEDED


def test_a_run_that_says_it_is_this_request_is_never_joined_by_a_second(bench, monkeypatch):
    """A record brought back from a copy: what it does not know it handed over is not handed over under another name."""
    run_id = bench.ids.new()
    bench.ids.new = lambda: run_id
    monkeypatch.setattr(bench.provider, "holder", lambda name: named("x", mark=run_id))
    bench.ask("true", name=choose_name(run_id))
    with pytest.raises(NameInUse, match="steno stop x"):
        raise_failure(bench.dispatcher.submitted(run_id, WAIT))


# -- calls of versions that gave the provider no mark


def lost(bench):
    """A request whose call was made by an older version, which died before the answer."""
    run_id = bench.ask("echo ran >> ran.txt", name="train")
    bench.journal.write(f"run/{run_id}", types.SubmitIntended(run_id=run_id, provider="local", name="train"))
    return run_id


def test_a_run_without_a_mark_is_ours_if_everything_about_it_is(bench, monkeypatch):
    run_id = lost(bench)
    theirs = strangers(bench, "true", name="train")
    there = (named(theirs, at=bench.clock.now()),)
    monkeypatch.setattr(bench.provider, "find", lambda name, since: there)
    monkeypatch.setattr(
        bench.provider, "is_same", lambda submission, provider_id: provider_id == theirs and submission.name == "train"
    )
    bench.controller.round()
    (outcome,) = bench.facts("SubmitSucceeded")
    assert (outcome.run_id, outcome.provider_id, outcome.found) == (run_id, theirs, True)
    assert bench.finish(run_id).provider_id == theirs


def test_a_run_that_only_has_the_name_is_left_to_a_person(bench, monkeypatch, tmp_path):
    """Nothing is called and nothing adopted until somebody stops the request; the run itself goes on."""
    run_id = lost(bench)
    theirs = strangers(bench, "sleep 3600", name="train")
    there = (named(theirs, at=bench.clock.now()),)
    monkeypatch.setattr(bench.provider, "find", lambda name, since: there)
    for _ in range(3):
        bench.controller.round()
    assert len(bench.facts("RunHeld")) == 1
    run = bench.run(run_id)
    assert (run.provider_id, run.terminal, run.held.why) == (None, False, "ambiguous")
    (anomaly,) = bench.world.state.anomalies
    assert (anomaly.kind, anomaly.subject) == ("ambiguous_submission", f"run/{run_id}")
    assert f"steno stop {run_id}" in anomaly.detail
    assert theirs in anomaly.detail

    bench.ask_to_stop(run_id)
    outcome = bench.dispatcher.stopped(run_id, WAIT)
    assert isinstance(outcome, types.IntentAbandoned)
    with pytest.raises(Conflict):
        raise_failure(bench.journal.event(bench.journal.outbox().outcomes[run_id]))
    bench.controller.round()
    assert bench.run(run_id).state is State.STOPPED
    assert foreign(bench, theirs).state is State.RUNNING
    assert not (tmp_path / "ran.txt").exists()


@pytest.mark.parametrize("there", ["older", "marked", "seen before"])
def test_a_run_that_cannot_come_from_the_lost_call_is_nobodys_doubt(bench, monkeypatch, there):
    """It was submitted before the call, or carries another's mark, or was known before the request: ours is called."""
    theirs = strangers(bench, "true", name="train")
    while not any(run.ended for run in bench.provider.find("train", 0) if run.provider_id == theirs):
        bench.clock.sleep(SECOND // 20)  # while it goes on it has its name
    if there == "seen before":
        bench.controller.round()
    run_id = lost(bench)
    at = bench.clock.now() - (60 * SECOND if there == "older" else 0)
    theirs_there = (named(theirs, at=at, mark="another" if there == "marked" else None),)
    real = bench.provider.find
    monkeypatch.setattr(bench.provider, "find", lambda name, since: (*theirs_there, *real(name, since)))
    assert bench.finish(run_id).state is State.SUCCEEDED
    assert bench.run(run_id).provider_id == run_id
    assert not bench.facts("RunHeld")
