"""Machines of one name, told apart in lists: dstack gives a name again, and two projects may use the same."""

import pytest
from click import unstyle
from stenotest.stage import Stage, vm_row

from cli.render.vms import listing
from engine.money.costs import Costs
from engine.objects import vm_object


@pytest.mark.parametrize(
    ("first", "second", "shown"),
    [
        ({"backend": "runpod"}, {}, ("runpod atl1", "amddevcloud atl1")),
        ({"region": "nyc1"}, {}, ("amddevcloud nyc1", "amddevcloud atl1")),
        ({}, {}, ("host-m1", "host-m2")),
        ({"hostname": None}, {"hostname": None}, ("m1", "m2")),
    ],
)
def test_where_tells_two_machines_of_one_name_apart(
    first: dict[str, str], second: dict[str, str], shown: tuple[str, str]
) -> None:
    """By cloud and region, else by address, else by the provider's id; the source is the same here."""
    made = Stage()
    made.machines(vm_row("m1", **first), vm_row("m2", **second))
    vms = [made.vm("m1"), made.vm("m2")]
    state = made.world.state
    costs = Costs(state)
    table = listing([vm_object(vm, costs.bill(vm.vm_id)) for vm in vms], state.vms.__getitem__, lambda _: made.now, 200)
    head, *rows = unstyle(table).splitlines()
    at = head.index("WHERE")
    assert tuple(row[at:].split("  ")[0].strip() for row in rows) == shown
