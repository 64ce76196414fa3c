"""What would have flipped a verdict: the same rules judge an answer that the provider could have given instead."""

from collections.abc import Callable, Iterable

import msgspec

from engine.facts import RunFacts
from engine.rules.moves import Move, Verdict


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could have gone otherwise, and what the rules say then."""

    change: str
    """`had the job exited 0`."""
    facts: RunFacts
    """The whole observation as it would have been."""
    verdict: str
    """`succeeded/exit_zero`."""

    def __str__(self) -> str:
        return f"{self.change}: {self.verdict}"


def flips(
    facts: RunFacts, judge: Callable[[RunFacts], Move], alternatives: Iterable[tuple[str, RunFacts]]
) -> tuple[Flip, ...]:
    """The alternatives to an observation (`Reading.alternatives`) of which the rules say another thing."""
    given = verdict_text(judge(facts))
    found = (Flip(change=change, facts=other, verdict=verdict_text(judge(other))) for change, other in alternatives)
    return tuple(flip for flip in found if flip.verdict != given)


def verdict_text(move: Move) -> str:
    """`failed/exit_nonzero`, or `no verdict yet (running)`."""
    if isinstance(move, Verdict):
        return f"{move.state.value}/{move.reason.value}"
    return "no verdict yet" if move.state is None else f"no verdict yet ({move.state.value})"
