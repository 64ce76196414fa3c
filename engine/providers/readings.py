"""The readings of all providers, by the path of a poll, and all rule sets."""

from typing import Final

from engine.providers import registry
from engine.providers.reading import Reading, Readings
from engine.rules.current import CURRENT
from engine.rules.sets import RuleSet
from events.errors import StenoError


def _installed(provider: str) -> Reading | None:
    return registry.kind(provider).reading() if provider in registry.names() else None


READINGS: Final = Readings({kind.name: kind.reading() for kind in registry.built_in()}, _installed)
"""In the order in which they are asked whose a path is."""

RULE_SETS: Final[dict[str, RuleSet]] = {  # ours, then each provider's
    rules.name: rules for rules in (CURRENT, *(one for kind in registry.built_in() for one in kind.rule_sets()))
}


class UnknownRules(StenoError):
    """There is no rule set of that name."""


def every_rule_set() -> dict[str, RuleSet]:
    """Every rule set by name, those of other packages too."""
    kinds = map(registry.kind, registry.names())
    return RULE_SETS | {one.name: one for kind in kinds for one in kind.rule_sets()}


def rules_named(name: str) -> RuleSet:
    """The rule set of that name; UnknownRules lists all names."""
    every = RULE_SETS if name in RULE_SETS else every_rule_set()
    if name not in every:
        raise UnknownRules(f"No rule set {name!r}. Use one of: {', '.join(every)}.")
    return every[name]
