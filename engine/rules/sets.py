"""Rule sets by name: which observations reach the rules, and what the rules say of them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

from engine.facts import RunFacts
from engine.rules import current, pollers
from engine.rules.moves import Move
from events.errors import StenoError


class UnknownRules(StenoError):
    """There is no rule set of that name."""


class Watch(StrEnum):
    """Which observations a rule set looks at."""

    EVERY = "every"  # every answer that shows the run
    FIRST_OF_NAME = "first-of-name"  # only the first that ever showed a run of that name
    CLOCK = "clock"  # none: only the time since first sight
    NAMED_LIST = "named-list"  # what the client's `runs.list()` would return, matched by name


class Judge(Protocol):
    """One observation, judged."""

    def __call__(self, facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:
        """What the observation says."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSet:
    """A named way to fold a history."""

    name: str
    watch: Watch
    judge: Judge
    final: bool
    """The first verdict stays, whatever comes."""
    metadata: bool
    """It knows exit status and cost."""
    hears: bool = False
    """What a task itself reports says why its exit status is not zero."""
    summary: str


def _sdk(facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:  # noqa: ARG001 - it knew no policies
    return pollers.judge_sdk(facts)


def _stale(facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:  # noqa: ARG001 - it knew no policies
    return pollers.judge_sdk(facts, pollers.STALE)


def _fix(facts: RunFacts, /, *, stopped_by_policy: bool) -> Move:  # noqa: ARG001 - it knew no policies
    return pollers.judge_fix(facts)


CURRENT: Final = RuleSet(
    name="current",
    watch=Watch.EVERY,
    judge=current.judge,
    final=False,
    metadata=True,
    hears=True,
    summary="ours: the newest decisive observation alone gives the verdict",
)

RULE_SETS: Final[dict[str, RuleSet]] = {
    rules.name: rules
    for rules in (
        CURRENT,
        RuleSet(
            name=pollers.SDK,
            watch=Watch.EVERY,
            judge=_sdk,
            final=True,
            metadata=False,
            summary="the first poller: terminating or terminated is failure",
        ),
        RuleSet(
            name=pollers.ENUM,
            watch=Watch.CLOCK,
            judge=_sdk,
            final=True,
            metadata=False,
            summary="no status ever matches, so every run fails ten minutes after first sight",
        ),
        RuleSet(
            name=pollers.STALE,
            watch=Watch.FIRST_OF_NAME,
            judge=_stale,
            final=True,
            metadata=False,
            summary="only the first observation of a name counts",
        ),
        RuleSet(
            name=pollers.FIX,
            watch=Watch.NAMED_LIST,
            judge=_fix,
            final=True,
            metadata=True,
            summary="the first poller repaired: exit status of the newest submission, active-only list, by name",
        ),
    )
}


def rules_named(name: str) -> RuleSet:
    """The rule set of that name.

    Raises:
        UnknownRules: there is none; the message lists those there are.
    """
    try:
        return RULE_SETS[name]
    except KeyError:
        raise UnknownRules(f"No rule set {name!r}. Use one of: {', '.join(RULE_SETS)}.") from None
