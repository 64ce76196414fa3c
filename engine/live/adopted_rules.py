"""Rules that a record adopts: the list, those in force at a position, and the adoption itself."""

from collections.abc import Iterator

from steno.engine.live.journal import Journal
from steno.engine.rules.rule_file import adopted_by, digest_of
from steno.engine.rules.sets import ADOPTED, CURRENT, RuleSet
from steno.events.errors import UnreadableInput
from steno.events.store.record import Record, Stored
from steno.events.types import RulesAdopted

STREAM = "rules"


def adoptions(record: Record, until: int | None = None) -> Iterator[tuple[Stored, RulesAdopted]]:
    """Every adoption up to a position, oldest first."""
    for stored in record.read(stream=STREAM, types=frozenset({RulesAdopted.__name__}), until=until):
        assert isinstance(stored.data, RulesAdopted)  # noqa: S101 - of its type
        yield stored, stored.data


def in_force(record: Record, position: int | None = None) -> RuleSet:
    """The rules that judge what follows a position, as the fold has them; None: the end of the record."""
    rules = CURRENT
    for _, event in adoptions(record, position):
        rules = adopted_by(event) or rules  # the fold keeps those before, too
    return rules


def adopt(record: "Record", rules: RuleSet, *, why: str, by: str) -> int | None:
    """Judge by these rules from now on; the event's position, None: they are in force already.

    Raises:
        UnreadableInput: they are rules of an older tool, which are for replays.
    """
    if rules is ADOPTED:
        return None
    if rules is not CURRENT and not rules.texts:
        raise UnreadableInput(f"{rules.name} are rules of an older tool, for replays: adopt `current` or a rule file")
    if in_force(record).texts == rules.texts:
        return None
    text, *extends = rules.texts or ("",)
    event = RulesAdopted(
        name=rules.name, text=text, extends=tuple(extends), hash=digest_of(rules.texts), why=why, by=by
    )
    return Journal(record).write(STREAM, event)
