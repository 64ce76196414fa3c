"""Drained, intended, told, gone: with real processes of this machine that cost something."""

import pytest

from steno.engine.errors import ProviderError, ProviderRefused, ProviderUnreachable, VmInUse, VmNotFound
from steno.engine.state.policy import HOUR, Policy
from steno.engine.state.states import State, VmState
from steno.engine.submit.requests import confirm_gone, request_vm_stop
from steno.events import types
from steno.events.clock import SECOND

pytestmark = pytest.mark.slow

WAIT = 600 * SECOND
KEPT = Policy(max_vms=2, idle_timeout=HOUR, assumed_duration=HOUR)


@pytest.fixture
def kept(open_bench, tmp_path):
    """A bench whose machines cost something and are kept for an hour."""
    return open_bench(tmp_path / "record.db", policy=KEPT, price=1_990_000)


def wish(bench, vm, *, when_idle=False):
    return request_vm_stop(bench.journal, vm, project=bench.provider.project, when_idle=when_idle, submitter="ada")


def idle_machine(bench):
    """A machine that a run has left."""
    run_id = bench.ask("true")
    bench.dispatcher.submitted(run_id, WAIT)
    bench.poll_until(lambda: [vm.state for vm in bench.machines()] == [VmState.IDLE])
    return bench.machines()[0]


def kinds(bench, vm):
    seen = [stored.type for stored in bench.record.read(stream=f"vm/{vm.vm_id}")]
    return [kind for kind in seen if kind != "VmObserved"]


def test_a_machine_somebody_wants_gone_is_drained_told_and_seen_gone(kept):
    """Each step is an event, and the next one waits for it."""
    vm = idle_machine(kept)
    position = wish(kept, vm)
    outcome = kept.dispatcher.machine_stopped(vm.vm_id, position, WAIT)
    assert isinstance(outcome, types.VmStopSucceeded)
    assert kinds(kept, vm) == ["VmStopRequested", "VmDrainStarted", "VmStopIntended", "VmStopSucceeded"]
    kept.poll_until(lambda: not vm.billed)
    assert vm.state is VmState.TERMINATED


def test_a_run_on_it_is_stopped_first_unless_the_wish_is_for_when_it_is_idle(kept):
    """By policy, the usual way: request, intent, outcome; then the machine goes."""
    run_id = kept.ask("sleep 3600")
    kept.dispatcher.submitted(run_id, WAIT)
    kept.poll_until(lambda: [vm.state for vm in kept.machines()] == [VmState.BUSY])
    (vm,) = kept.machines()
    wish(kept, vm, when_idle=True)
    for _ in range(3):
        kept.controller.round()
    assert "StopRequested" not in kept.kinds(run_id)
    position = wish(kept, vm)
    assert isinstance(kept.dispatcher.machine_stopped(vm.vm_id, position, WAIT), types.VmStopSucceeded)
    assert kept.run(run_id).state is State.STOPPED
    (request,) = kept.facts("StopRequested")
    assert (request.by, request.submitter) == ("policy", "steno")
    assert kinds(kept, vm).count("VmStopIntended") == 1


@pytest.mark.parametrize("error", [ProviderUnreachable, ProviderRefused, ProviderError])
def test_a_stop_without_an_answer_is_asked_again_and_intended_once(kept, monkeypatch, error):
    """It is unknown if the provider got it: it stays open, and a second stop of one machine is harmless."""
    vm, calls = idle_machine(kept), []

    def lost(provider_id):
        calls.append(provider_id)
        raise error("no answer")

    monkeypatch.setattr(kept.provider, "stop_vm", lost)
    wish(kept, vm)
    kept.poll_until(lambda: len(calls) >= 3)
    assert kinds(kept, vm) == ["VmStopRequested", "VmDrainStarted", "VmStopIntended"]
    monkeypatch.undo()
    kept.poll_until(lambda: not vm.billed)
    assert kinds(kept, vm) == ["VmStopRequested", "VmDrainStarted", "VmStopIntended", "VmStopSucceeded"]


@pytest.mark.parametrize("error", [VmInUse, VmNotFound])
def test_a_stop_the_provider_refuses_is_said_in_its_words(kept, monkeypatch, error):
    """The machine stays, and is billed; nothing is guessed."""
    vm = idle_machine(kept)

    def refuses(provider_id):
        raise error("Fleet is in use")

    monkeypatch.setattr(kept.provider, "stop_vm", refuses)
    position = wish(kept, vm)
    outcome = kept.dispatcher.machine_stopped(vm.vm_id, position, WAIT)
    assert outcome == types.VmStopFailed(vm_id=vm.vm_id, provider="local", error="Fleet is in use")
    kept.controller.round()
    assert vm.billed
    assert not kept.journal.outbox().vm_stops


def test_an_open_stop_is_given_up_where_a_run_has_come_meanwhile(kept):
    """A crash between intent and call, and somebody's run on the machine when the next process looks."""
    run_id = kept.ask("sleep 3600")
    kept.dispatcher.submitted(run_id, WAIT)
    kept.poll_until(lambda: kept.run(run_id).state is State.RUNNING)
    (vm,) = kept.machines()
    assert vm.state is VmState.BUSY
    left = types.VmStopIntended(vm_id=vm.vm_id, provider="local", provider_id=vm.provider_id, by="idle")
    kept.journal.write(f"vm/{vm.vm_id}", left)
    kept.controller.round()
    (outcome,) = kept.facts("VmStopFailed")
    assert "a run came" in outcome.error
    assert kept.run(run_id).state is State.RUNNING


def test_an_open_stop_of_an_empty_machine_is_carried_out_by_whoever_comes_back(kept, open_bench):
    """The engine was away; the machine idled and was billed. One intent, one outcome, gone."""
    vm = idle_machine(kept)
    kept.journal.write(
        f"vm/{vm.vm_id}",
        types.VmDrainStarted(vm_id=vm.vm_id, provider="local", by="idle"),
        types.VmStopIntended(vm_id=vm.vm_id, provider="local", provider_id=vm.provider_id, by="idle"),
    )
    back = open_bench(kept.path, policy=KEPT, price=1_990_000)
    back.poll_until(lambda: back.machines() and not any(vm.billed for vm in back.machines()))
    assert kinds(kept, vm) == ["VmDrainStarted", "VmStopIntended", "VmStopSucceeded"]


def test_an_engine_that_was_away_ends_what_is_due_when_it_is_back(kept, open_bench):
    """Another process, which knows nothing but the record: it finds the machine, sees it idle, and ends it."""
    vm = idle_machine(kept)
    kept.controller.release()
    back = open_bench(kept.path, policy=Policy(max_vms=2, idle_timeout=SECOND), price=1_990_000)
    back.poll_until(lambda: back.machines() and not any(vm.billed for vm in back.machines()))
    (machine,) = back.machines()
    assert (machine.vm_id, machine.reason.value) == (vm.vm_id, "idle_timeout")
    assert kinds(kept, vm) == ["VmDrainStarted", "VmStopIntended", "VmStopSucceeded"]


def test_a_stop_that_is_open_is_not_intended_again(kept):
    """Deciding it again, with the first intent's outcome unknown, adds nothing."""
    vm = idle_machine(kept)
    stop = types.VmStopIntended(provider="local", vm_id=vm.vm_id, provider_id=vm.provider_id, by="idle")
    kept.journal.write(
        f"vm/{vm.vm_id}", types.VmStopIntended(vm_id=vm.vm_id, provider="local", provider_id=vm.provider_id, by="idle")
    )
    assert kept.actor.carry_out((stop,), kept.world.state, kept.journal.queue_version(kept.provider.source)) == ()
    assert kinds(kept, vm) == ["VmStopIntended"]


def test_somebodys_word_that_a_machine_is_gone_is_a_fact_of_its_own(kept):
    vm = idle_machine(kept)
    confirm_gone(kept.journal, vm, ended_at=vm.last_at, submitter="ada")
    (fact,) = kept.facts("VmGoneConfirmed")
    assert (fact.vm_id, fact.ended_at, fact.submitter) == (vm.vm_id, vm.last_at, "ada")
