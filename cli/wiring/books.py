"""What the money commands reckon from: the whole world, its costs, and the policy in force."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.wiring.app import App
    from engine.decide.budget import Account
    from engine.fold.world_codec import WorldState
    from engine.money.costs import Costs
    from engine.policy import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class Books:
    """Everything that money is reckoned from, at one moment."""

    state: WorldState
    costs: Costs
    policy: Policy
    now: int
    position: int

    @property
    def account(self) -> Account:
        """Where the budget stands."""
        from engine.decide.budget import account

        return account(self.state, self.policy, self.now)


@contextmanager
def books(app: App, at: str | None, *, every_run: bool = True) -> Iterator[Books]:
    """The books now, or as they were `--at` a time or position.

    Args:
        every_run: also load the runs that are over and on no live machine; the budget is reckoned without them.

    Raises:
        RecordNotFound, NotARecord, RecordDamaged, RecordTooNew: as they say.
        NotConfigured: the settings describe no policy.
    """
    from cli.wiring.time_arguments import seen_from
    from cli.wiring.view import viewing
    from engine.fold.archives import shown_part
    from engine.money.costs import Costs

    with viewing(app, at) as (_, view):
        state = shown_part(view.whole()) if every_run else view.world().state
        yield Books(
            state=state,
            costs=Costs(state),
            policy=_policy(app, state, at),
            now=seen_from(app, view, at),
            position=view.position,
        )


def _policy(app: App, state: WorldState, at: str | None) -> Policy:
    """What the settings say now; of the past, the policy adopted last by then, if there was one.

    The budget is one for all sources, so that of a source whose machines are free is as good as any other's.
    """
    from engine.settings.policy import policy_from

    known = [steps[-1] for steps in state.policies.values()]
    past = max(known, key=lambda step: step.position).policy if at is not None and known else None
    found = past or policy_from(app.settings)
    return msgspec.structs.replace(found, free=False)
