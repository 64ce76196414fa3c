"""Machines whose row contradicts the run on them, and machines that vanished."""

from msgspec.structs import replace
from stenotest.simulation import Simulation, run_row, vm_row

from steno.engine.decide.machine import looks_free
from steno.engine.decide.why import why_up
from steno.engine.money.bill import bill_vm
from steno.engine.money.prices import Book
from steno.engine.rules.why_ended import cause_now
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.policy import MINUTE, Policy
from steno.engine.state.states import VmReason, VmState
from steno.engine.state.vm import Phase
from steno.events import types
from steno.events.clock import format_second

ONE = Policy(budget_total=None, idle_timeout=5 * MINUTE)


def looks(made: Simulation, minutes: int, run: dict[str, object], **machine: object) -> None:
    """A poll of the run and one of its machine, every half minute."""
    for _ in range(2 * minutes):
        made.wait(30)
        made.runs(run_row("a", on="m1", **run))  # type: ignore[arg-type]
        made.machines(vm_row("m1", created=BEGAN, **machine))  # type: ignore[arg-type]


BEGAN = Simulation().now


def phases(made: Simulation) -> list[Phase]:
    bill = bill_vm(made.vm("m1"), until=made.now, book=Book())
    return [interval.phase for interval in bill.intervals]


def contradictions(made: Simulation) -> list[str]:
    return [note for note in made.vm("m1").noted if note.startswith(AnomalyKind.CONTRADICTION.value)]


def test_a_machine_called_idle_under_a_running_run_is_busy() -> None:
    """A row of the two is wrong. The machine is billed to the run and kept; the contradiction is noted, once."""
    made = Simulation(ONE)
    made.ensured()
    made.wait(-30)
    looks(made, 20, {}, status="idle")
    vm = made.vm("m1")
    assert (vm.state, phases(made)) == (VmState.BUSY, [Phase.BUSY])
    assert contradictions(made) == ["contradiction: idle for 2 minutes, while run a is running on it"]
    assert why_up(made.world.state, vm, ONE, made.now) == (
        "It is busy with run a. Its provider calls it idle: one of the two is wrong.",
    )
    assert made.settle() == ()

    looks(made, 4, {"status": "done", "exit_status": 0, "finished": made.now}, status="idle")
    assert (made.vm("m1").state, phases(made)) == (VmState.IDLE, [Phase.BUSY, Phase.IDLE])
    looks(made, 6, {"status": "done", "exit_status": 0, "finished": made.now}, status="idle")
    assert [type(decision).__name__ for decision in made.settle()][:1] == ["VmDrainStarted"]


def test_a_run_that_lags_behind_its_machine_is_no_contradiction() -> None:
    """A server needs up to 85 s to see the end of a task."""
    made = Simulation(ONE)
    looks(made, 3, {}, status="busy")
    ended = made.now
    looks(made, 1, {}, status="idle")
    looks(made, 5, {"status": "done", "exit_status": 0, "finished": ended}, status="idle")
    assert (made.vm("m1").state, contradictions(made)) == (VmState.IDLE, [])


def test_a_machine_that_is_idle_where_nobody_looks_at_its_run_is_idle() -> None:
    """The last answer that shows the run is as old as the machine's first idle row."""
    made = Simulation(ONE)
    looks(made, 3, {}, status="busy")
    for _ in range(20):
        made.wait(30)
        made.machines(vm_row("m1", "idle", created=BEGAN))
    assert (made.vm("m1").state, contradictions(made)) == (VmState.IDLE, [])


def test_a_machine_that_vanished_says_when_it_was_last_reached() -> None:
    """dstack shows it as idle and unreachable, then ends it as idle: its reason is that it was unreachable."""
    made = Simulation(ONE)
    looks(made, 3, {}, status="busy")
    reached = format_second(made.now)
    looks(made, 2, {}, status="idle", unreachable=True)
    vm = made.vm("m1")
    line = f"last reached at {reached}"
    assert [note for note in vm.noted if "reached" in note] == [f"unreachable: {line}"]
    assert any(line in line_ for line_ in why_up(made.world.state, vm, ONE, made.now))
    running = cause_now(next(iter(made.world.state.runs.all())), made.world.state, made.now).why
    assert f"has not reached its machine since {reached}" in running

    made.wait(30)
    made.machines(
        vm_row("m1", "terminated", created=BEGAN, unreachable=True, reason="idle_timeout", finished_at=made.now)
    )
    vm = made.vm("m1")
    assert vm.reason is VmReason.UNREACHABLE
    assert [note for note in vm.noted if "reached" in note] == [f"unreachable: {line}"]
    assert any(line in line_ for line_ in why_up(made.world.state, vm, ONE, made.now))


def test_a_machine_that_answers_again_is_no_incident() -> None:
    made = Simulation(ONE)
    looks(made, 3, {}, status="busy")
    looks(made, 1, {}, status="busy", unreachable=True)
    looks(made, 3, {}, status="busy")
    assert made.vm("m1").noted == ()


def test_a_machine_whose_health_check_fails_is_an_anomaly_once_and_gets_no_run() -> None:
    """A warning is news too; a machine that is well again is free."""
    made = Simulation(ONE)
    looks(made, 1, {}, status="busy")
    done = {"status": "done", "exit_status": 0, "finished": made.now}
    for health, free in (("warning", True), ("failure", False), ("warning", True), ("failure", False), (None, True)):
        looks(made, 2, done, status="idle", health=health)
        vm = made.vm("m1")
        assert looks_free(vm) is free
        assert any(f"says {health}" in line for line in why_up(made.world.state, vm, ONE, made.now)) is bool(health)
    assert vm.noted == tuple(
        f"unhealthy: the health check of its provider says {word}" for word in ("warning", "failure")
    )


def test_a_machine_gone_before_a_minute_of_silence_is_an_incident_too() -> None:
    """Its end says idle, and it never answered again."""
    made = Simulation(ONE)
    looks(made, 1, {}, status="busy")
    reached = format_second(made.now)
    looks(made, 1, {}, status="terminated", unreachable=True, reason="idle_timeout", finished_at=made.now)
    assert made.vm("m1").noted == (f"unreachable: last reached at {reached}",)


def test_a_drained_machine_says_for_which_run() -> None:
    """While it drains, and once it is gone."""
    made = Simulation(ONE)
    made.ensured()
    looks(made, 1, {"status": "done", "exit_status": 0, "finished": BEGAN}, status="idle")
    vm_id = made.vm_id("m1")
    detail = "run train needs its place"
    made.tell(types.VmDrainStarted(vm_id=vm_id, provider="dstack", by="room", detail=detail))
    assert f"(room: {detail})" in why_up(made.world.state, made.vm("m1"), ONE, made.now)[0]
    looks(made, 1, {"status": "done", "exit_status": 0, "finished": BEGAN}, status="terminated", finished_at=made.now)
    assert f"(room: {detail})" in why_up(made.world.state, made.vm("m1"), ONE, made.now)[1]


def test_a_run_without_a_readable_submission_has_no_kind_of_start() -> None:
    """No source says if its machine was made for it."""
    made = Simulation(ONE)
    made.machines(vm_row("m1", created=BEGAN))
    made.wait(60)
    row = replace(run_row("a", "done", on="m1", exit_status=0, finished=made.now), submitted_at=None)
    (job,) = row.jobs
    undated = tuple(replace(attempt, submitted_at=None) for attempt in job.attempts)
    made.runs(replace(row, jobs=(replace(job, attempts=undated),)))
    (run,) = made.world.state.runs.all()
    assert (run.vm_id, run.start) == (made.vm_id("m1"), None)
