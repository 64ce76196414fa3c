"""The policy in force is an event, so that a replay knows what decisions were made by."""

from engine.act.journal import Journal
from engine.fold.world_codec import WorldState
from engine.policy import Policy, dump_policy
from events import types


def adopt_policy(journal: Journal, source: str, policy: Policy, state: WorldState) -> bool:
    """Write down that decisions about this source are made by this policy from now on; False where they were before.

    Args:
        state: the world, folded up to the head of the record.
    """
    adopted = state.policies.get(source, ())
    if adopted and adopted[-1].policy == policy:
        return False
    journal.source(source, types.PolicyAdopted(source=source, policy=dump_policy(policy)))
    return True
