"""Rule sets by name: which observations reach the rules, and what the rules say of them."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from engine.facts import RunFacts
from engine.rules import current
from engine.rules.moves import Move


class ObservationFilter(StrEnum):
    """Which observations a rule set looks at."""

    EVERY = "every"  # every answer that shows the run
    FIRST_OF_NAME = "first-of-name"  # only the first that ever showed a run of that name
    CLOCK = "clock"  # none: only the time since first sight
    NAMED_LIST = "named-list"  # what the client's `runs.list()` would return, matched by name


class RunJudge(Protocol):
    """One observation, judged."""

    def __call__(self, facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:
        """What the observation says."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """A named way to fold a history."""

    name: str
    watch: ObservationFilter
    judge: RunJudge
    final: bool
    """The first verdict stays, whatever comes."""
    metadata: bool
    """It knows exit status and cost."""
    timeout: Callable[[int, int], Move] | None = None
    """(now, first sight of the run) → what it says of a run by the time alone; None: nothing."""
    hears: bool = False
    """What a task itself reports says why its exit status is not zero."""
    summary: str


CURRENT: Final = RuleSet(
    name="current",
    watch=ObservationFilter.EVERY,
    judge=current.judge,
    final=False,
    metadata=True,
    hears=True,
    summary="ours: the newest decisive observation alone gives the verdict",
)
