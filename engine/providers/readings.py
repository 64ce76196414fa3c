"""The readings and the rule sets of the providers Steno brings."""

from typing import Final

from engine.providers.dstack import rules_2025
from engine.providers.dstack.reading import DstackReading
from engine.providers.local.reading import LocalReading
from engine.providers.reading import Readings
from engine.rules.sets import CURRENT, RuleSet
from events.errors import StenoError

READINGS: Final = Readings({"local": LocalReading(), "dstack": DstackReading()})
"""In the order in which they are asked whose a path is."""

RULE_SETS: Final[dict[str, RuleSet]] = {rules.name: rules for rules in (CURRENT, *rules_2025.RULE_SETS)}
"""By name: ours, then those that judge a provider's own words."""


class UnknownRules(StenoError):
    """There is no rule set of that name."""


def rules_named(name: str) -> RuleSet:
    """The rule set of that name.

    Raises:
        UnknownRules: there is none; the message lists those there are.
    """
    try:
        return RULE_SETS[name]
    except KeyError:
        raise UnknownRules(f"No rule set {name!r}. Use one of: {', '.join(RULE_SETS)}.") from None
