"""What an operator sees first: what runs, what today cost, how far the budget goes, what is wrong."""

from typing import Final

import msgspec

from engine.fold.world_codec import WorldState
from engine.money.budget import account
from engine.money.words import money
from engine.policy import Policy
from events.clock import format_time
from projections.models import incidents
from projections.models.bill_sums import DAY, decode_paid
from projections.models.lanes import lanes
from projections.models.money_objects import budget_object
from projections.models.queue_rows import queued_object
from projections.models.spend_curve import burn
from projections.store.reader_pool import Look

_RUNNING: Final = 500
_RECENT: Final = 10
_ANOMALIES: Final = 5


def overview(look: Look, policy: Policy) -> dict[str, object]:
    """The whole page as JSON values. `policy` is the one in force at the moment looked at (`policy_then` for one past).

    Money and times are as everywhere; lists that may be long are cut to their newest.
    """
    view, store = look.view, look.view.store
    world = view.world().state
    state, settled = view.ledger(look.now)
    running = store.page_of_runs(limit=_RUNNING, active=True)
    return {
        "position": look.position,
        "at": format_time(look.now),
        "head": look.record.head().position,
        "sources": [
            {
                "name": source.name,
                "observability": source.observability.value,
                "last_answered": None if source.last_answered is None else format_time(source.last_answered),
            }
            for source in view.sources(look.now)
        ],
        "running": [msgspec.Raw(value) for _, value in running],
        "queued": {run_id: queued_object(one) for run_id, one in view.queued(look.now).items()},
        "recent": [msgspec.Raw(value) for value in store.last_ended(_RECENT)],
        "today": today(look),
        "budget": budget_object(account(state, policy, look.now, settled), world, policy),
        "burn": burn(look),
        **lanes(look).to_json(),
        "anomalies": {"count": store.count_anomalies(), "newest": incidents.newest(look, _ANOMALIES)},
        "blind": view.open_gaps(),
    }


def today(look: Look) -> dict[str, object]:
    """The day in UTC that the moment is in: what machines cost in it, and how its runs ended."""
    store = look.view.store
    midnight = look.now - look.now % DAY
    spent = 0
    for row in store.vms.all(billed_or_since=midnight):
        if row.archive is None:
            spent += sum(part.cost for part in decode_paid(row.paid).parts if part.day * DAY >= midnight)
    ended = store.ended_since(midnight)
    return {
        "from": format_time(midnight),
        "spent_usd": money(spent),
        "succeeded": ended.get("succeeded", 0),
        "failed": ended.get("failed", 0),
        "stopped": ended.get("stopped", 0),
    }


def policy_then(state: WorldState, default: Policy) -> Policy:
    """The policy adopted last in a world of the past; `default` where none was.

    The budget is one for all sources, so that of a source whose machines are free is as good as any other's.
    """
    newest = max((steps[-1] for steps in state.policies.values()), key=lambda step: step.position, default=None)
    return msgspec.structs.replace(default if newest is None else newest.policy, free=False)
