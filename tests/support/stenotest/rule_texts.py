"""Rule files for tests: their texts, and the events that adopt them."""

from steno.engine.rules.rule_file import digest_of
from steno.events.types import RulesAdopted

HEAD = 'format = 1\nname = "{}"\ndate = 2026-11-29\nrationale = "Killed for memory, and spot."\n'
ROWS = """
[[row]]
name = "killed-for-memory"
when.over = true
when.deciding = { cause = ["none", "exit_nonzero"], exit_status = 137 }
then = { state = "failed", reason = "out_of_memory" }

[[row]]
name = "taken-away"
when.over = true
when.deciding = { cause = "interrupted" }
then = { state = "stopped", reason = "interrupted" }
"""


def rule_text(rows: str = ROWS, *, name: str = "site", extends: str | None = "current") -> str:
    """A rule file of these rows."""
    return HEAD.format(name) + (f'extends = "{extends}"\n' if extends else "") + rows


def adoption(*texts: str, name: str = "site") -> RulesAdopted:
    """The event that puts these texts in force; without texts, `current`."""
    text, *extends = texts or ("",)
    name = name if texts else "current"
    return RulesAdopted(name=name, text=text, extends=tuple(extends), hash=digest_of(texts), why="it was so", by="ada")


ADOPTIONS = (adoption(rule_text()), adoption("cut", name="cut"), adoption())
