"""From the queue to the provider: with real processes of this machine that cost something."""

import pytest
from stenotest.gated_run import holding

from steno.engine.control.dispatcher import raise_failure
from steno.engine.control.submitter import _submission
from steno.engine.errors import ProviderUnreachable, RefusedByPolicy
from steno.engine.providers.base import Named
from steno.engine.state.facts import RunFacts
from steno.engine.state.policy import HOUR, Policy, Rate, load_policy
from steno.engine.state.states import State, VmState
from steno.events import types
from steno.events.clock import SECOND, foreign_run_id
from steno.events.errors import VersionConflict
from steno.events.installation import version

pytestmark = pytest.mark.slow

WAIT = 600 * SECOND
PRICE = 1_990_000
ONE = Policy(max_vms=1, idle_timeout=2 * SECOND, assumed_duration=HOUR)
SCARCE = Policy(max_vms=3, idle_timeout=0, assumed_duration=HOUR, assumed=(Rate(gpu="MI210", hourly=PRICE),))


@pytest.fixture
def capped(open_bench, tmp_path):
    """A bench whose machines cost something, and of which there may be one."""
    return open_bench(tmp_path / "record.db", policy=ONE, price=PRICE)


def queued(bench):
    return [stored.type for stored in bench.record.read(stream=f"queue/{bench.provider.source}")]


def test_a_request_is_handed_over_once_it_has_its_place(capped):
    """Requested, placed, intended, taken: in this order, and the place is on the queue of its source."""
    run_id = capped.ask("true")
    assert isinstance(capped.dispatcher.submitted(run_id, WAIT), types.SubmitSucceeded)
    wanted = {"RunRequested", "RunPlaced", "SubmitIntended", "SubmitSucceeded"}
    assert [stored.type for stored in capped.record.read(types=wanted)] == [
        "RunRequested",
        "RunPlaced",
        "SubmitIntended",
        "SubmitSucceeded",
    ]
    assert queued(capped) == ["RunPlaced"]
    assert capped.finish(run_id).state is State.SUCCEEDED


def test_a_run_without_a_place_waits_and_goes_to_the_machine_that_comes_free(capped, gate):
    """Held once, with the reason; then one machine has had both, cold and warm, and is ended when it has idled."""
    first, second = capped.ask(holding(gate)), capped.ask("true")
    assert isinstance(capped.dispatcher.submitted(first, WAIT), types.SubmitSucceeded)
    held = capped.dispatcher.submitted(second, WAIT)
    assert isinstance(held, types.RunHeld)
    assert held.why == "cap"
    gate.touch()
    capped.poll_until(lambda: capped.run(second).state is State.SUCCEEDED)
    assert queued(capped) == ["RunPlaced", "RunHeld", "RunPlaced"]
    assert (capped.run(first).start, capped.run(second).start) == ("cold", "warm")
    capped.poll_until(lambda: all(vm.state is VmState.TERMINATED for vm in capped.machines()))
    (vm,) = capped.machines()
    assert vm.runs == (first, second)
    (stop,) = capped.facts("VmStopIntended")
    assert (stop.by, stop.vm_id) == ("idle", vm.vm_id)


def test_a_waiting_run_is_stopped_without_having_been_anywhere(capped):
    """`steno stop` ends a queue's entry; nothing is said to the provider about it."""
    first, second = capped.ask("sleep 3600"), capped.ask("true")
    capped.dispatcher.submitted(first, WAIT)
    capped.dispatcher.submitted(second, WAIT)
    capped.ask_to_stop(second)
    assert isinstance(capped.dispatcher.stopped(second, WAIT), types.IntentAbandoned)
    capped.controller.round()
    assert capped.run(second).state is State.STOPPED
    assert "SubmitIntended" not in capped.kinds(second)
    capped.ask_to_stop(first, abort=True)
    capped.finish(first)


def test_a_run_the_provider_has_no_capacity_for_is_handed_over_again_as_the_same_run(open_bench, tmp_path):
    """Its next GPU is asked for at once; the provider's new id is the run's, the former one stays known as former."""
    bench = open_bench(tmp_path / "record.db", policy=SCARCE, price=PRICE, gpu="MI210", gpu_count=1)
    run_id = bench.ask('test "$TOKEN" = x', resources={"gpu": "MI300X:1"}, fallback=("MI210",), env={"TOKEN": "x"})
    bench.dispatcher.submitted(run_id, WAIT)
    bench.poll_until(lambda: bench.run(run_id).state is State.SUCCEEDED)
    run = bench.run(run_id)
    (again,) = bench.facts("RunRequeued")
    assert (again.attempt, again.gpu, again.provider_id) == (2, "MI210", run.former_ids[0])
    assert run.provider_id != again.provider_id
    outcomes = bench.facts("SubmitSucceeded")
    assert [outcome.provider_id for outcome in outcomes] == [again.provider_id, run.provider_id]
    bench.controller.round()
    assert not bench.record.vault.owners()


def test_a_former_attempt_has_a_stream_of_its_own(open_bench, tmp_path):
    """Both attempts are listed for ever: in one stream each would be news to the other."""
    bench = open_bench(tmp_path / "record.db", policy=SCARCE, price=PRICE, gpu="MI210", gpu_count=1)
    run_id = bench.ask("true", resources={"gpu": "MI300X:1"}, fallback=("MI210",))
    bench.dispatcher.submitted(run_id, WAIT)
    run = bench.finish(run_id)
    (former,) = run.former_ids
    assert bench.world.identify("local", RunFacts(provider_id=run.provider_id)) == run_id
    assert bench.world.identify("local", RunFacts(provider_id=former)) == foreign_run_id("local", former)


def test_without_patience_the_first_answer_stands(open_bench, tmp_path):
    policy = Policy(max_vms=3, idle_timeout=0, queue_patience=0, assumed_duration=HOUR)
    bench = open_bench(tmp_path / "record.db", policy=policy, price=PRICE, gpu="MI210", gpu_count=1)
    run_id = bench.ask("true", resources={"gpu": "MI300X:1"}, fallback=("MI210",))
    bench.dispatcher.submitted(run_id, WAIT)
    assert bench.finish(run_id).state is State.FAILED
    assert not bench.facts("RunRequeued")


@pytest.mark.parametrize("called", [False, True])
def test_a_look_for_a_new_attempt_does_not_find_the_former(open_bench, tmp_path, called):
    """A crash after the second intent: the provider knows a run of that name, and it may be the first attempt's."""
    bench = open_bench(tmp_path / "record.db", policy=SCARCE, price=PRICE, gpu="MI210", gpu_count=1)
    run_id = bench.ask("echo ran >> ran.txt", resources={"gpu": "MI300X:1"}, fallback=("MI210",))
    former = bench.dispatcher.submitted(run_id, WAIT).provider_id
    bench.controller._decide = lambda *_: ()
    bench.finish(run_id)
    where = {"run_id": run_id, "provider": "local"}
    again = types.RunRequeued(**where, provider_id=former, attempt=2, gpu="MI210", not_before=0)
    bench.journal.queue(bench.provider.source, [again, types.RunPlaced(**where, gpu="MI210")], version=1)
    bench.journal.write(f"run/{run_id}", types.SubmitIntended(**where, name=f"run-{run_id[:8]}"))
    assert [run.provider_id for run in bench.provider.find(f"run-{run_id[:8]}", 0)] == [former]
    if called:
        (submit,) = bench.actor.open()
        sent = _submission(submit, {"type": "task", "commands": ["echo ran >> ran.txt"]}, submit.request.name)
        bench.provider.submit(sent)
    bench.poll_until(lambda: bench.run(run_id).state is State.SUCCEEDED)
    outcome = bench.facts("SubmitSucceeded")[-1]
    assert outcome.provider_id != former
    assert outcome.found is called
    assert (tmp_path / "ran.txt").read_text() == "ran\n"


def test_a_new_attempt_waits_for_the_end_of_the_former_whose_name_it_has(open_bench, tmp_path, monkeypatch):
    """dstack fails the job first and the run a moment later: until then its name is in use, by ourselves."""
    bench = open_bench(tmp_path / "record.db", policy=SCARCE, price=PRICE, gpu="MI210", gpu_count=1)
    run_id = bench.ask("true", resources={"gpu": "MI300X:1"}, fallback=("MI210",))
    bench.dispatcher.submitted(run_id, WAIT)

    names = []

    def holder(name):
        names.append(name)
        return Named(provider_id=bench.run(run_id).former_ids[-1], mark=run_id, ended=False)

    monkeypatch.setattr(bench.provider, "holder", holder)
    bench.poll_until(lambda: len(names) > 2)
    assert bench.facts("RunRequeued")
    assert not bench.facts("SubmitFailed")
    monkeypatch.undo()
    assert bench.finish(run_id).state is State.SUCCEEDED


def test_a_request_that_cannot_be_afforded_is_refused_with_the_arithmetic(open_bench, tmp_path):
    """The controller looks at the budget once more when the run gets its place."""
    policy = Policy(budget_total=1_000_000, rates=(Rate(gpu="MI300X", hourly=PRICE),))
    bench = open_bench(tmp_path / "record.db", policy=policy, price=PRICE)
    run_id = bench.ask("true", resources={"gpu": "MI300X:1"})
    outcome = bench.dispatcher.submitted(run_id, WAIT)
    assert isinstance(outcome, types.IntentAbandoned)
    assert outcome.policy
    with pytest.raises(RefusedByPolicy, match=r"\$1.99/h"):
        raise_failure(outcome)
    assert "SubmitIntended" not in bench.kinds(run_id)


def place(run_id):
    return types.RunPlaced(provider="local", run_id=run_id)


def refusal(run_id):
    return types.IntentAbandoned(provider="local", intent="submit", policy=True, run_id=run_id, why="no")


def test_a_decision_made_on_an_older_queue_is_not_carried_out(capped):
    """None of it: neither the place nor what else was decided with it."""
    first, second = capped.ask("true"), capped.ask("true")
    capped.controller.live.catch_up()
    state, before = capped.world.state, capped.journal.queue_version(capped.provider.source)
    capped.journal.queue(capped.provider.source, [types.RunPlaced(run_id=first, provider="local")], version=before)
    with pytest.raises(VersionConflict):
        capped.actor.carry_out((place(second), refusal(first)), state, before)
    assert queued(capped) == ["RunPlaced"]
    assert "IntentAbandoned" not in capped.kinds(first)


def test_a_round_whose_decision_is_overtaken_decides_again(capped):
    """Another process takes the one place between the decision and its append: this one then holds its run."""
    first, second = capped.ask("sleep 3600"), capped.ask("true")
    real, overtaken = capped.controller._decide, []

    def decide(state, source, policy, *more):
        decisions = real(state, source, policy, *more)
        if not overtaken:
            overtaken.append(decisions)
            capped.journal.queue(source, [types.RunPlaced(run_id=first, provider="local")], version=0)
        return decisions

    capped.controller._decide = decide
    capped.controller.round()
    assert any(isinstance(place, types.RunPlaced) and place.run_id == first for place in overtaken[0])
    assert queued(capped) == ["RunPlaced", "RunHeld"]
    assert capped.run(second).held is not None
    capped.ask_to_stop(first, abort=True)
    capped.finish(first)


def test_what_is_decided_twice_is_done_once(capped):
    """A decision about what is there already adds nothing, in this round or after a crash."""
    run_id = capped.ask("sleep 3600")
    capped.controller.live.catch_up()
    state, source = capped.world.state, capped.provider.source
    hold = types.RunHeld(provider="local", run_id=run_id, why="cap", detail="1 of 1 machines")
    for _ in range(2):
        capped.actor.carry_out((hold,), state, capped.journal.queue_version(source))
    for _ in range(2):
        capped.actor.carry_out((place(run_id),), state, capped.journal.queue_version(source))
    assert queued(capped) == ["RunHeld", "RunPlaced"]
    late = types.RunRequeued(provider="local", run_id=run_id, provider_id="another", attempt=2, gpu=None, not_before=0)
    assert capped.actor.carry_out((late, hold, refusal(run_id)), state, 2) == ()
    assert capped.kinds(run_id).count("SubmitSucceeded") == 1
    capped.ask_to_stop(run_id, abort=True)
    capped.finish(run_id)


def test_a_server_that_goes_away_ends_no_run_that_waited(capped, monkeypatch, gate):
    """Whoever waits at a terminal is told; a run of the queue is handed over when the server is back."""
    first, second = capped.ask(holding(gate)), capped.ask("true")
    capped.dispatcher.submitted(first, WAIT)
    assert isinstance(capped.dispatcher.submitted(second, WAIT), types.RunHeld)

    def gone(*_, **__):
        raise ProviderUnreachable("the server does not answer", sent=False)

    monkeypatch.setattr(capped.provider, "plan", gone)
    gate.touch()
    capped.poll_until(lambda: capped.journal.outbox().submits[second].placed is not None)
    assert second in capped.journal.outbox().submits
    fresh = capped.ask("true", name="fresh")
    capped.journal.queue(capped.provider.source, [types.RunPlaced(run_id=fresh, provider="local")], version=3)
    outcome = capped.dispatcher.submitted(fresh, WAIT)
    assert isinstance(outcome, types.SubmitFailed)
    assert outcome.reason == "unreachable"
    monkeypatch.undo()
    assert capped.finish(second).state is State.SUCCEEDED


def test_a_policy_is_adopted_again_after_another_process_adopted_its_own(capped):
    """Decisions follow the policy in force, which is the policy of the process that decides."""
    capped.controller.round()
    capped.journal.adopt_policy(capped.provider.source, Policy(max_vms=7), capped.world.state)
    capped.controller.round()
    adopted = [load_policy(event.policy).max_vms for event in capped.facts("PolicyAdopted")]
    assert adopted == [1, 7, 1]


def test_a_decision_names_the_world_that_it_was_made_from(capped):
    """The position of the newest event before it, the time, the version; what is not decided names none."""
    run_id = capped.ask("true")
    capped.controller.round()
    (placed,) = capped.record.read(types={"RunPlaced"})
    decided = placed.data.decided_at
    assert decided.position == placed.position - 1
    assert 0 <= placed.observed_at - decided.at < 600 * SECOND
    assert (decided.software, decided.watched) == (version(), True)
    capped.ask_to_stop(run_id)
    assert [event.decided_at for event in capped.facts("StopRequested")] == [None]


def test_a_policy_is_adopted_where_it_differs_from_the_one_in_force(capped):
    """Once a change, by whoever acts: a replay then decides by the same."""
    for _ in range(2):
        capped.controller.round()
    state, source = capped.world.state, capped.provider.source
    assert [step.policy for step in state.policies[source]] == [ONE]
    assert not capped.journal.adopt_policy(source, ONE, state)
    assert capped.journal.adopt_policy(source, Policy(max_vms=2), state)
    assert len(capped.facts("PolicyAdopted")) == 2
