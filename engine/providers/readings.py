"""The readings of all providers, by the path of a poll, and all rule sets. A built-in provider is imported when its
answers are met: a command that reads a record needs one or two.
"""

from functools import cache
from typing import Final

from engine.providers import registry
from engine.providers.reading import Reading, Readings
from engine.rules.current import CURRENT
from engine.rules.sets import RuleSet
from events.errors import StenoError


@cache
def _reading(name: str) -> Reading:
    return registry.kind(name).reading()


READINGS: Final = Readings(registry.BUILT_IN, lambda name: _reading(name) if registry.knows(name) else None)
"""In the order in which they are asked whose a path is."""


class UnknownRules(StenoError):
    """There is no rule set of that name."""


def every_rule_set() -> dict[str, RuleSet]:
    """Every rule set by name: ours, then each provider's, those of other packages too."""
    kinds = map(registry.kind, registry.names())
    return {one.name: one for one in (CURRENT, *(one for kind in kinds for one in kind.rule_sets()))}


def rules_named(name: str) -> RuleSet:
    """The rule set of that name; UnknownRules lists all names."""
    if name == CURRENT.name:
        return CURRENT
    every = every_rule_set()
    if name not in every:
        raise UnknownRules(f"No rule set {name!r}. Use one of: {', '.join(every)}.")
    return every[name]
