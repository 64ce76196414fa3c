"""A machine that is kept is paid, while idle, by the user who keeps it: to the micro-dollar."""

from stenotest.simulation import Simulation, vm_row

from steno.engine.money.bill import Line
from steno.engine.money.costs import Costs, charges, cut_by_keeper
from steno.engine.money.daily import days_of
from steno.engine.money.focus import focus_rows
from steno.events.clock import SECOND
from steno.events.levers import LeverPulled, LeverReleased


def test_the_parts_of_a_kept_machines_bill_sum_to_it() -> None:
    """Idle for 60 s, kept for 120 s, released, idle again."""
    stage = Simulation()
    stage.ensured("shared")
    for second in range(0, 300, 30):
        stage.machines(vm_row())
        if second == 60:
            until = stage.now + 3600 * SECOND
            pulled = LeverPulled(
                lever_id="k", action="keep", vm_id=stage.vm_id("m1"), until=until, why="a crash", by="bob"
            )
            stage.tell(pulled)
        if second == 180:
            stage.tell(LeverReleased(lever_id="k", by="ada"))
        stage.wait(30)
    costs, vm = Costs(stage.world.state), stage.vm("m1")
    bill = costs.bill(vm.vm_id)
    parts = [part for charge in charges(bill) for part in cut_by_keeper(charge, vm)]
    assert sum(part.cost for part, _ in parts) == bill.cost
    kept = [part for part, by in parts if by == "bob"]
    assert sum(part.until - part.since for part in kept) == 120 * SECOND
    assert {part.line for part in kept} == {Line.IDLE}
    spend = days_of(vm, bill, str).spend
    assert sum(day.cost for day in spend) == bill.cost
    assert sum(day.cost for day in spend if day.user == "bob") == sum(part.cost for part in kept)
    header, *rows = focus_rows(costs)
    assert sum('"user": "bob"' in row[header.index("Tags")] for row in rows) == len(kept)
