"""Rule sets: which observations the rules see, what they say of them, and what would flip it."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import msgspec

from engine.facts import RunFacts
from engine.states import Reason, State


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over, by a rule."""

    state: State
    reason: Reason
    exit_status: int | None = None
    rule: str

    def __str__(self) -> str:
        return f"{self.state.value}/{self.reason.value}"


class Live(msgspec.Struct, frozen=True, kw_only=True):
    """The run is not over, by a rule."""

    state: State | None  # None: the observation does not say; the run stays where it is
    rule: str
    pending: bool = False  # the provider requeued the run, whatever it did before
    sure: bool = True  # false: the observation may lag: it moves the run forward only, and is no anomaly when behind

    def __str__(self) -> str:
        return "no verdict yet" if self.state is None else f"no verdict yet ({self.state.value})"


Move = Verdict | Live


class ObservationFilter(StrEnum):
    """Which observations a rule set looks at."""

    EVERY = "every"  # every answer that shows the run
    FIRST_OF_NAME = "first-of-name"  # only the first that ever showed a run of that name
    CLOCK = "clock"  # none: only the time since first sight
    NAMED_LIST = "named-list"  # what the client's `runs.list()` would return, matched by name


class RunJudge(Protocol):
    def __call__(self, facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:
        """What the observation says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """A named way to fold a history."""

    name: str
    watch: ObservationFilter
    judge: RunJudge
    final: bool  # the first verdict stays, whatever comes
    metadata: bool  # it uses exit status and cost
    timeout: Callable[[int, int], Move] | None = None
    """(now, first sight of the run) → what it says of a run by the time alone; None: nothing."""
    hears: bool = False  # a task's own reports explain a nonzero exit status
    summary: str


class Flip(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that could have gone otherwise, and what the rules say then."""

    change: str  # `had the job exited 0`
    facts: RunFacts  # the whole observation as it would have been
    verdict: str  # `succeeded/exit_zero`

    def __str__(self) -> str:
        return f"{self.change}: {self.verdict}"


def flips(
    facts: RunFacts, judge: Callable[[RunFacts], Move], alternatives: Iterable[tuple[str, RunFacts]]
) -> tuple[Flip, ...]:
    """The alternatives to an observation (`Reading.alternatives`) of which the rules say another thing."""
    given = str(judge(facts))
    found = (Flip(change=change, facts=other, verdict=str(judge(other))) for change, other in alternatives)
    return tuple(flip for flip in found if flip.verdict != given)
