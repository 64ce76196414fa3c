"""Machines of this host: made, kept warm, used again and ended, as the listing shows them."""

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pytest
from stenotest.waiting import wait

from steno.engine.errors import TaskInvalid, VmInUse, VmNotFound
from steno.engine.providers import registry
from steno.engine.providers.base import StopTarget
from steno.engine.providers.local.placement import gpu_label
from steno.engine.providers.registry import READINGS
from steno.engine.state.reading import Listing, Scope

pytestmark = pytest.mark.slow

DONE = ("ended", "exited", 0)
STOPPED = ("ended", "stopped", None)
NO_CAPACITY = ("ended", "no_capacity", None)
READING = registry.kind("local").reading()
ASKED = Scope(provider="local", source="local/here", listing=Listing.RUNS)


def on(machine, run_id: str) -> object:
    """The machine a run was on, by what the run says."""
    return machine.item(run_id)["machine"]["id"]


# -- a machine for a single run


def test_a_run_that_keeps_nothing_warm_is_its_machine(machine) -> None:
    """No process beside the supervisor; the machine's life is the run's, and it is free."""
    run_id = machine.submit(machine.gated)
    item, vm = machine.item(run_id), machine.the_machine()
    assert machine.processes() == []
    assert (vm["status"], vm["runs"], vm["price"]) == ("busy", 1, 0)
    assert (vm["hostname"], vm["created"]) == (item["machine"]["hostname"], item["submitted_at"])
    machine.open()
    assert machine.end(run_id) == DONE
    vm, ended_at = machine.the_machine(), machine.item(run_id)["ended_at"]
    assert (vm["status"], vm["reason"], vm["ended_at"]) == ("gone", "idle_timeout", ended_at)
    assert machine.item(run_id)["cost"] == 0


def test_a_machine_is_told_in_words_the_reading_knows(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every status, without drift."""
    machine.boots_when_told(monkeypatch, price=1_990_000, gpu="MI300X", gpu_count=2)
    seen = {}

    def look(status: str) -> None:
        """The machine once it is at that status, as the engine reads it."""
        wait(lambda: machine.is_at(status))
        _, poll = machine.provider.poll((), since=None)
        (item,) = msgspec.json.decode(poll.body, type=list[msgspec.Raw])
        seen[status] = READING.vm(bytes(item), ASKED)
        assert (seen[status].status, seen[status].drift) == (status, ())

    run_id = machine.submit(machine.gated, slot="steno-slot-1", idle_duration="off")
    look("provisioning")
    machine.power_on()
    look("busy")
    machine.open()
    look("idle")
    process = machine.pid_of_machine(seen["idle"].provider_id)
    os.kill(process, signal.SIGSTOP)  # or it would be gone before anybody looks
    try:
        machine.provider.stop_vm(seen["idle"].provider_id)
        look("stopping")
    finally:
        os.kill(process, signal.SIGCONT)
    look("gone")
    _, poll = machine.provider.poll((), since=None)
    scope = READINGS.scope(poll.path, poll.req)
    assert (scope.source, scope.endpoint, poll.source) == ("local/here", "vms", "local/here")
    made, busy, gone = seen["provisioning"], seen["busy"], seen["gone"]
    assert (made.price, made.gpu, made.gpu_count, made.gpu_memory_mib) == (1_990_000, "MI300X", 2, 196608)
    assert (made.name, made.fleet, made.instance_num, made.spot) == ("steno-slot-1-0", "steno-slot-1", 0, False)
    assert (made.hostname, made.backend, made.total_blocks) == (None, "local", 1)
    run = READING.runs(msgspec.json.encode(machine.item(run_id)), ASKED)[0].jobs[0].newest
    assert run is not None
    assert (busy.hostname, made.price) == (run.hostname, run.price)
    assert busy.hostname is not None
    assert (made.reason, gone.reason, gone.finished_at is not None) == (None, "stopped", True)
    assert [seen[word].busy_blocks for word in ("provisioning", "busy", "idle", "gone")] == [1, 1, 0, 0]


# -- kept warm


def test_a_second_run_takes_the_machine_of_the_first(machine) -> None:
    """Two back to back are one machine, one process: created for the first, there before the second."""
    machine.offers(price=1_990_000)
    first = machine.submit("true", idle_duration="1h")
    machine.end(first)
    wait(lambda: machine.is_at("idle"))
    second = machine.submit(machine.gated)
    assert machine.the_machine()["status"] == "busy"
    machine.open()
    assert machine.end(second) == DONE
    wait(lambda: machine.is_at("idle"))
    assert on(machine, first) == on(machine, second) == machine.the_machine()["id"]
    assert len(machine.processes()) == 1
    created = machine.the_machine()["created"]
    assert machine.item(first)["submitted_at"] == created
    assert machine.item(second)["submitted_at"] > created


def test_a_cold_run_waits_until_its_machine_is_up(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """In status provisioning, with no address yet; the command does not exist before. A warm one does not wait."""
    machine.boots_when_told(monkeypatch)
    cold = machine.submit("echo x > ran", idle_duration=3600)
    assert machine.words(cold) == ("provisioning", None, None)
    assert machine.item(cold)["machine"]["hostname"] is None
    assert machine.is_at("provisioning")
    assert not (machine.base / "ran").exists()
    machine.power_on()
    assert machine.end(cold) == DONE
    assert (machine.base / "ran").exists()
    (machine.base / "power").unlink()
    warm = machine.submit("true")
    assert machine.end(warm) == DONE
    assert on(machine, warm) == on(machine, cold)


def test_a_boot_is_waited_for_also_where_nothing_is_kept(machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own supervisor waits then."""
    machine.boots_when_told(monkeypatch)
    run_id = machine.submit("echo x > ran")
    assert machine.words(run_id)[0] == "provisioning"
    assert machine.is_at("provisioning")
    assert not (machine.base / "ran").exists()
    machine.power_on()
    assert machine.end(run_id) == DONE
    assert (machine.base / "ran").exists()
    assert machine.is_at("gone")
    assert machine.processes() == []


@pytest.mark.parametrize("kept", [True, False])
def test_a_boot_takes_the_time_it_was_given(machine, kept: bool) -> None:
    """Counted from the machine's start, which is after the submission's."""
    machine.offers(boot=1_000_000)
    began = time.monotonic()
    assert machine.end(machine.submit("true", **({"idle_duration": "1h"} if kept else {}))) == DONE
    assert time.monotonic() - began >= 1


@pytest.mark.parametrize("kept", [True, False])
def test_a_run_is_stopped_while_its_machine_comes_up(machine, monkeypatch: pytest.MonkeyPatch, kept: bool) -> None:
    """Its command never existed; a kept machine comes up all the same and waits for another run."""
    machine.boots_when_told(monkeypatch)
    run_id = machine.submit("echo x > ran", **({"idle_duration": "1h"} if kept else {}))
    machine.provider.stop(StopTarget(provider_id=run_id, name=""))
    assert machine.words(run_id)[0] in {"stopping", "ended"}
    assert machine.end(run_id) == STOPPED
    assert machine.is_at("provisioning" if kept else "gone")
    if kept:
        machine.power_on()
        wait(lambda: machine.is_at("idle"))
        assert machine.end(machine.submit("true")) == DONE
    assert not (machine.base / "ran").exists()
    assert len(machine.machines()) == 1


def test_a_machine_goes_when_nobody_came_for_long_enough(machine) -> None:
    """Its own backstop, with no engine anywhere; a run meanwhile starts the count again."""
    for _ in range(20):  # a machine as slow as that lets the first one go before the second run comes
        first = machine.submit("true", idle_duration=2)
        machine.end(first)
        second = machine.submit(machine.gated)
        if on(machine, first) == on(machine, second):
            break
        machine.provider.stop(StopTarget(provider_id=second, name="", abort=True))
        machine.end(second)
    else:
        raise AssertionError("no run came in time to meet an idle machine")
    time.sleep(2.5)  # longer than it may idle
    assert machine.words(second)[0] == "running"
    counted = time.monotonic()
    machine.open()
    wait(lambda: not machine.processes())
    assert time.monotonic() - counted >= 2
    assert machine.end(second) == DONE
    vm = next(item for item in machine.machines() if item["id"] == on(machine, first))
    assert (vm["status"], vm["reason"]) == ("gone", "idle_timeout")
    assert vm["message"] == "idle for 2 s"


@pytest.mark.parametrize(("own", "otherwise", "kept"), [("off", None, True), (False, 0, True), (0, 10**9, False)])
def test_zero_and_off_are_not_the_same_as_unset(machine, own: object, otherwise: int | None, kept: bool) -> None:
    """The task's time comes first, then the submission's, and the default is nothing."""
    submission = machine.submission("true", idle_duration=own)
    machine.provider.submit(msgspec.structs.replace(submission, idle=otherwise))
    wait(lambda: machine.is_at("idle" if kept else "gone"))
    assert bool(machine.processes()) == kept


def test_the_submission_says_how_long_where_the_task_does_not(machine) -> None:
    """`Submission.idle`."""
    submission = machine.submission("true")
    machine.provider.submit(msgspec.structs.replace(submission, idle=3_600_000_000))
    wait(lambda: machine.is_at("idle"))
    with pytest.raises(TaskInvalid, match="idle_duration"):
        machine.submit("true", idle_duration="soon")


# -- who gets which


def test_a_slot_has_one_machine(machine) -> None:
    """A run for a busy slot fails for want of capacity, one for a free slot takes what is there."""
    first = machine.submit("sleep 600", slot="steno-slot-1", idle_duration="1h")
    refused = machine.submit("true", slot="steno-slot-1")
    assert machine.words(refused) == NO_CAPACITY
    item = machine.item(refused)
    assert (item["message"], item["machine"]) == ("no capacity", None)
    assert item["detail"] == "steno-slot-1 has its machine, steno-slot-1-0, and it is not free"
    machine.provider.stop(StopTarget(provider_id=first, name="", abort=True))
    machine.end(first)
    warm = machine.submit("true", slot="steno-slot-1")
    assert machine.end(warm) == DONE
    assert on(machine, warm) == on(machine, first)
    assert on(machine, machine.submit("true", slot="steno-slot-2")) != on(machine, first)


def test_reuse_never_makes_a_machine(machine) -> None:
    """Without an idle machine the run has failed, and nothing was made."""
    run_id = machine.submit("true", creation="reuse")
    assert machine.words(run_id) == NO_CAPACITY
    assert machine.machines() == []
    first = machine.submit("true", idle_duration="1h")
    machine.end(first)
    assert machine.end(machine.submit("true", creation="reuse")) == DONE
    assert len(machine.machines()) == 1


def test_create_never_takes_a_used_machine(machine) -> None:
    """A machine of its own, beside the idle one."""
    first = machine.submit("true", idle_duration="1h")
    machine.end(first)
    second = machine.submit("true", creation_policy="create")
    assert on(machine, second) != on(machine, first)


def test_one_that_found_no_place_can_be_asked_for_again(machine) -> None:
    """The run id gets a new id at the provider; the old id stays with the first attempt. Repeated, it is one run."""
    submission = msgspec.structs.replace(machine.submission("true", name="mine"), creation="reuse")
    assert machine.provider.submit(submission).provider_id == submission.run_id
    again = msgspec.structs.replace(submission, creation="reuse-or-create")
    taken = machine.provider.submit(again)
    assert taken.provider_id == f"{submission.run_id}-2"
    assert machine.another().submit(again) == taken
    assert machine.provider.find("mine", 0)[0].provider_id == taken.provider_id
    assert machine.end(taken.provider_id) == DONE
    assert machine.words(submission.run_id) == NO_CAPACITY


@pytest.mark.parametrize(("text", "label"), [("MI300X", ("MI300X", 1)), (" MI210:2 ", ("MI210", 2))])
def test_a_label_is_a_model_and_a_number(text: str, label: tuple[str, int]) -> None:
    """As `STENO_LOCAL_GPU` has it."""
    assert gpu_label(text) == label


@pytest.mark.parametrize("text", ["", "2", "MI300X:0", "MI300X:17", "MI300X:x", "MI 300", ":1", "a" * 40])
def test_what_is_no_label_is_refused(text: str) -> None:
    """With what it must be."""
    with pytest.raises(ValueError, match="as MI300X or MI300X:2"):
        gpu_label(text)


def test_a_labelled_host_has_no_other_gpus(machine) -> None:
    """With a label a task's GPU is followed, so that a fallback list can be tried; without one it is ignored."""
    machine.offers(gpu="MI210", gpu_count=1)
    asks = machine.submission("true", resources={"gpu": "MI300X:1"})
    assert machine.words(machine.provider.submit(asks).provider_id) == NO_CAPACITY
    assert machine.end(machine.submit("true", resources={"gpu": "MI210:1"})) == DONE
    fallback = msgspec.structs.replace(asks, run_id=machine.new_id(), name="other", gpu="MI210")
    assert machine.end(machine.provider.submit(fallback).provider_id) == DONE
    assert machine.item(fallback.run_id)["ignored"] == []


def test_of_many_who_want_a_slot_one_gets_it(machine) -> None:
    """Looking for a place and taking it are one step: ten at once never share a machine, and make one."""

    def ask(number: int) -> str:
        submission = machine.submission(machine.gated, name=f"run-{number}", idle_duration="1h")
        return machine.another().submit(msgspec.structs.replace(submission, slot="steno-slot-1")).provider_id

    with ThreadPoolExecutor(10) as pool:
        runs = list(pool.map(ask, range(10)))
    assert sorted(machine.words(run_id) != NO_CAPACITY for run_id in runs) == [False] * 9 + [True]
    wait(lambda: machine.is_at("busy"))
    assert len(machine.processes()) == 1


# -- told to go


def test_an_idle_machine_goes_when_told(machine) -> None:
    """By the user's word, in a fraction of a second; told again it is left alone."""
    machine.end(machine.submit("true", idle_duration="1h"))
    vm_id = machine.the_machine()["id"]
    machine.provider.stop_vm(vm_id)
    machine.provider.stop_vm(vm_id)
    wait(lambda: machine.is_at("gone"))
    assert machine.the_machine()["reason"] == "stopped"
    machine.provider.stop_vm(vm_id)
    later = machine.submit("true", idle_duration="1h")
    assert on(machine, later) != vm_id


def test_a_machine_with_a_run_on_it_is_not_ended(machine) -> None:
    """Be it kept or there for that run only; nothing is done to either."""
    kept = machine.submit("sleep 600", idle_duration="1h", name="first")
    bound = machine.submit("sleep 600", name="second")
    wait(lambda: machine.is_at("busy", "busy"))
    for run_id, name in ((kept, "first"), (bound, "second")):
        with pytest.raises(VmInUse, match=name):
            machine.another().stop_vm(on(machine, run_id))
    assert list(machine.state.rglob("stop.json")) == []
    assert machine.is_at("busy", "busy")
    machine.provider.stop(StopTarget(provider_id=bound, name="", abort=True))
    machine.end(bound)
    machine.provider.stop_vm(on(machine, bound))


@pytest.mark.parametrize("vm_id", ["", "..", "nobody", "a/b"])
def test_an_unknown_machine_is_not_found(machine, vm_id: str) -> None:
    """Before anything was submitted and after."""
    with pytest.raises(VmNotFound):
        machine.provider.stop_vm(vm_id)
    machine.end(machine.submit("true"))
    with pytest.raises(VmNotFound):
        machine.provider.stop_vm(vm_id)


# -- the listing


def test_a_machine_is_told_gone_however_many_went(machine) -> None:
    """The newest hundred stay; older machines are left out once listed, and the answer says that it is not all."""
    machine.end(machine.submit("true"))
    made = machine.state / next(entry.name for entry in machine.state.iterdir() if not entry.name.startswith("."))
    assert len(machine.machines()) == 1
    for number in range(130):
        copy = machine.state / f"old-{number:03}"
        copy.mkdir()
        for name in ("started.json", "ended.json"):
            (copy / name).write_bytes((made / name).read_bytes())
        accepted = msgspec.json.decode((made / "accepted.json").read_bytes())
        accepted |= {"run_id": copy.name, "at": 1000 + number}
        accepted["machine"] |= {"id": f"vm-{number:03}", "created": 1000 + number}
        (copy / "accepted.json").write_bytes(msgspec.json.encode(accepted))
    _, first = machine.provider.poll((), since=None)
    assert len(msgspec.json.decode(first.body)) == 131
    assert first.complete
    _, later = machine.provider.poll(("old-002",), since=None)
    rows = msgspec.json.decode(later.body)
    assert (len(rows), rows[-1]["id"], later.complete) == (101, "vm-002", False)
    assert READINGS.scope(later.path, later.req).limit <= len(rows)
    _, bounded = machine.another().poll((), since=rows[0]["ended_at"] + 1)
    assert (bounded.body, bounded.complete) == (b"[]", False)
