"""Budget that moves from one owner of runs to another."""

from steno.events.codec import Fact


class BudgetMoved(Fact, kind=55):
    """A part of one owner's budget is another's from now on."""

    amount: int  # micro-dollars
    from_owner: str  # `user/alice`, as in `steno.engine.state.policy.OwnerLimit`
    to_owner: str
    why: str
    by: str
