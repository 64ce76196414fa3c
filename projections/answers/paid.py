"""The money of a range of time: every charge in it, cut exactly at its ends, and who pays."""

from collections.abc import Iterator
from typing import Any

from steno.engine.money.costs import Costs, charges, cut_at, cut_by_keeper
from steno.engine.state.kernel_mark import is_kept
from steno.projections.read_models.view import View


def paid(view: View, since: int, until: int) -> Iterator[tuple[str, str | None, str, int]]:
    """(machine, run, user, micro-dollars) of each part of a bill from `since` to before `until`; where no run pays, the
    user is who keeps the machine, else the line: `(idle)`. Ranges side by side sum to the bills exactly.
    """
    costs, store = Costs(view.state), view.store
    for row in store.vms.all(since=since, hidden=False):
        if row.created >= until:
            continue
        vm = view.state.vms[row.vm_id]
        bill = () if is_kept(vm) else charges(costs.bill(row.vm_id))
        cuts = (cut for charge in bill for whole in cut_at(charge, (since, until)) for cut in cut_by_keeper(whole, vm))
        for part, keeper in cuts:
            if since <= part.since < until:
                known: Any = store.runs.columns(part.run_id or "", "user")
                whose = f"({part.line.value})" if part.run_id is None else "unknown"
                who = keeper or (known and known[0]) or whose
                yield row.vm_id, part.run_id, who, part.cost
