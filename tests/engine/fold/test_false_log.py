"""A provider's log of a machine that contradicts what its polls showed."""

import pytest
from stenotest.simulation import Simulation, vm_row

from steno.engine.money.bill import bill_vm
from steno.engine.money.prices import Book
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.facts import VmEvent
from steno.engine.state.states import VmState
from steno.engine.state.vm import Phase
from steno.events.clock import SECOND


def life(*logged: VmEvent, early: bool = False) -> Simulation:
    """Busy after one minute, idle after ten, terminated after seventeen; the log comes last, or `early`."""
    made = Simulation()
    began = made.now
    for status, wait in (("busy", 60), ("idle", 540), ("terminated", 420)):
        made.wait(wait)
        if early and status == "idle":
            made.log(*logged)
        made.machines(vm_row("m1", created=began, status=status))
    if not early:
        made.log(*logged)
    return made


def move(at: int, before: VmState, after: VmState) -> VmEvent:
    return VmEvent(provider_id="m1", at=Simulation().now + at * SECOND, before=before, after=after)


def phases(made: Simulation) -> list[Phase]:
    return [interval.phase for interval in bill_vm(made.vm("m1"), until=made.now, book=Book()).intervals]


def contradictions(made: Simulation) -> list[str]:
    return [note for note in made.vm("m1").noted if note.startswith(AnomalyKind.CONTRADICTION.value)]


BACK = move(900, VmState.PROVISIONING, VmState.BUSY)
OVER = move(100, VmState.IDLE, VmState.TERMINATING)


@pytest.mark.parametrize("logged", [(BACK,), (OVER,), (BACK, OVER)])
def test_a_date_that_polls_prove_wrong_bills_nothing_and_is_noted_once(logged: tuple[VmEvent, ...]) -> None:
    """Back to provisioning after it was up; told to end, and idle eight minutes later."""
    made = life(*logged)
    assert phases(made) == phases(life())
    assert contradictions(made) == ["contradiction: its provider's log of it contradicts the polls"]


def test_an_end_in_the_log_is_dropped_once_a_poll_shows_the_machine_alive() -> None:
    made = life(OVER, early=True)
    assert made.vm("m1").dates == ()
    assert len(contradictions(made)) == 1


def test_a_date_within_seconds_of_a_poll_is_taken_as_it_is() -> None:
    """Clocks differ, and an answer is older than its arrival."""
    ready, off = move(65, VmState.PROVISIONING, VmState.BUSY), move(595, VmState.IDLE, VmState.TERMINATING)
    made = life(ready, off)
    assert len(made.vm("m1").dates) == 2
    assert contradictions(made) == []
