"""The money of a range of time: every charge in it, cut exactly at its ends, and who pays."""

from collections.abc import Iterator
from typing import Any

from steno.engine.money.costs import Costs, charges, cut_at
from steno.engine.state.kernel_mark import is_kept
from steno.projections.read_models.view import View


def paid(view: View, since: int, until: int) -> Iterator[tuple[str, str | None, str, int]]:
    """(machine, run, user, micro-dollars) of each part of a bill from `since` to before `until`; with the line
    as the user where no run pays. Ranges side by side sum to the bills exactly.
    """
    costs, store = Costs(view.state), view.store
    for row in store.vms.all(since=since, hidden=False):
        if row.created >= until:
            continue
        bill = () if is_kept(view.state.vms[row.vm_id]) else charges(costs.bill(row.vm_id))
        for part in (part for charge in bill for part in cut_at(charge, (since, until))):
            if since <= part.since < until:
                known: Any = store.runs.columns(part.run_id or "", "user")
                who = f"({part.line.value})" if part.run_id is None else (known and known[0]) or "unknown"
                yield row.vm_id, part.run_id, who, part.cost
