"""Requests of machines for kernels: enough, never too many, and after a failure not at once."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.decide.kernel_machines import FIRST, MOST, kept_machine, to_start, why_waiting
from steno.engine.kernel.kept_machine import KeptMachine, name_of, port_of
from steno.engine.state.inventory import Inventory
from steno.engine.state.kernel_mark import gpu_named
from steno.engine.state.run import Requirements
from steno.engine.state.states import Reason, State, VmState
from steno.events.clock import SECOND

BENEATH = "local/here"
NOW = 1_000_000 * SECOND
GPUS = (None, "MI300X", "MI210")
IDS = st.uuids().map(str)


def kernel(gpu: str | None) -> Any:
    """A run in the queue that asks for this GPU."""
    terms = Requirements(submitter="tester", gpu=() if gpu is None else (gpu,), creation="reuse")
    return SimpleNamespace(run_id="k", terms=terms, requeues=0, held=None)


def keeper(run_id: str, gpu: str | None, state: State, *, ended_at: int = NOW, name: str | None = None) -> Any:
    """A run that keeps, kept or was to keep a machine; every later poll shows it."""
    terminal = state in (State.SUCCEEDED, State.FAILED, State.STOPPED)
    return SimpleNamespace(
        run_id=run_id, name=name or name_of(run_id, gpu), requested_at=NOW - 1, provider="local", project="here",
        provider_id=run_id, state=state, terminal=terminal, last_at=NOW + 2 * MOST,
        transitions=(SimpleNamespace(at=ended_at),), finished_at=None, exit_status=1 if state is State.FAILED else None,
        reason=Reason.EXIT_NONZERO if state is State.FAILED else None,
    )  # fmt: skip


def situation(queue: list[Any], keepers: Sequence[Any] = (), *, up: tuple[str, ...] = (), now: int = NOW) -> Any:
    """A moment of the kernels' source. `up`: run ids of machines whose listener has answered."""
    vms = [
        SimpleNamespace(provider_id=provider_id, runs=(), state=VmState.IDLE, facts=SimpleNamespace(gpu=None))
        for provider_id in up
    ]
    state = SimpleNamespace(runs=Inventory({run.run_id: run for run in keepers}))
    return SimpleNamespace(queue=tuple(queue), vms=tuple(vms), state=state, now=now, holds_back=lambda _: False)


def held(*runs: Any) -> tuple[KeptMachine, ...]:
    machines = [kept_machine(run) for run in runs]
    assert all(machines)
    return tuple(machine for machine in machines if machine is not None)


@given(st.lists(st.sampled_from(GPUS), max_size=6), st.lists(st.sampled_from(GPUS), max_size=4), st.integers(1, 3))
def test_machines_are_asked_for_up_to_the_limit(waiting: list[str | None], there: list[str | None], most: int) -> None:
    """A machine of each GPU at a time, only if more kernels wait than machines are coming, and at most the limit."""
    keepers = [keeper(f"{number:032x}", gpu, State.PROVISIONING) for number, gpu in enumerate(there)]
    gpus = to_start(situation([kernel(gpu) for gpu in waiting], keepers), BENEATH, held(*keepers), most)
    assert len(set(gpus)) == len(gpus)
    for gpu in GPUS:
        wanted = waiting.count(gpu) > there.count(gpu) and there.count(gpu) < most
        assert (gpu in gpus) == wanted


@given(st.integers(1, 12), st.integers(0, 2 * MOST))
def test_after_failures_there_is_a_pause_that_grows(failures: int, later: int) -> None:
    """And ends: nothing is given up, and nothing is asked for in a hurry."""
    failed = [
        keeper(f"{n:032x}", "MI300X", State.FAILED, ended_at=NOW - (failures - n)) for n in range(1, failures + 1)
    ]
    view = situation([kernel("MI300X")], failed, now=NOW + later)
    gpus = to_start(view, BENEATH, (), 1)
    pause = min(MOST, FIRST * 2 ** (failures - 1))
    assert (gpus == ("MI300X",)) == (later >= pause)
    if not gpus:
        why = why_waiting(view, BENEATH, (), kernel("MI300X"))
        assert "did not keep its machine (exit nonzero" in why
        assert "the next request is at" in why
        why = why_waiting(view, BENEATH, (), kernel("MI300X"), lambda machine: f"{machine.name} has no numpy")
        assert f"(exit nonzero: {failed[-1].name} has no numpy; see `steno logs" in why


def test_for_a_kernel_that_a_lever_holds_back_no_machine_is_asked_for() -> None:
    """A run that waits rents nothing."""
    moment = situation([kernel("MI300X")])
    assert to_start(moment, BENEATH, (), 3) == ("MI300X",)
    moment.holds_back = lambda _: True
    assert to_start(moment, BENEATH, (), 3) == ()


def test_a_machine_that_ended_as_told_is_no_failure() -> None:
    over = [keeper(f"{n:032x}", None, state) for n, state in enumerate((State.SUCCEEDED, State.STOPPED))]
    assert to_start(situation([kernel(None)], over), BENEATH, (), 1) == (None,)


def test_failures_before_the_last_success_are_forgotten() -> None:
    runs = [keeper("1" * 32, None, State.FAILED), keeper("2" * 32, None, State.SUCCEEDED)]
    assert to_start(situation([kernel(None)], runs), BENEATH, (), 1) == (None,)


@pytest.mark.parametrize(
    ("state", "up", "words"),
    [
        (State.QUEUED, False, "is being made ready: queued"),
        (State.RUNNING, False, "is being made ready: its listener starts"),
        (State.RUNNING, True, "has another kernel"),
    ],
)
def test_a_kernel_is_told_what_it_waits_for(state: State, up: bool, words: str) -> None:
    run = keeper("a" * 32, "MI300X", state)
    view = situation([kernel("MI300X")], [run], up=(run.run_id,) if up else ())
    assert words in why_waiting(view, BENEATH, held(run), kernel("MI300X"))


def test_a_kernel_that_needs_no_gpu_waits_for_any_machine() -> None:
    """It can go to a machine with a GPU, so the sentence names that machine."""
    run = keeper("a" * 32, "MI300X", State.RUNNING)
    assert "has another kernel" in why_waiting(
        situation([kernel(None)], [run], up=(run.run_id,)), BENEATH, held(run), kernel(None)
    )


def test_a_kernel_without_a_machine_is_told_that_one_is_asked_for() -> None:
    assert why_waiting(situation([kernel(None)]), BENEATH, (), kernel(None)) == "a machine is being requested"


@given(IDS, st.sampled_from(("MI300X", "MI250X", "H100", None)))
def test_a_name_tells_the_gpu(run_id: str, gpu: str | None) -> None:
    assert gpu_named(name_of(run_id, gpu)) == (gpu or "CPU")


@given(IDS)
def test_a_listeners_port_follows_from_its_run(run_id: str) -> None:
    """Outside the ports that programs get by chance (32768 and above) and of the system."""
    assert 20_000 <= port_of(run_id) < 30_000
    assert port_of(run_id) == port_of(run_id)


def test_other_runs_keep_no_machine() -> None:
    assert kept_machine(keeper("a" * 32, None, State.RUNNING, name="kernels-of-mine")) is None
    assert gpu_named("vector-add-0123456789ab") is None
