"""The rule set `current`: ours, memoryless, with no time limit of its own."""

from engine.facts import RunFacts
from engine.rules.evidence import decisive
from engine.rules.moves import Move
from engine.rules.progress import progress
from engine.rules.verdict import NAME, verdict_of


def judge(facts: RunFacts, *, stopped_by_policy: bool) -> Move:
    """What one observation says: a function of that observation and of our own requests to stop, of nothing else."""
    if decisive(facts) is None:
        return progress(facts, rules=NAME)
    return verdict_of(facts, stopped_by_policy=stopped_by_policy)
