"""Names of runs: the form that every provider takes, and a name of our own where the task has none."""

import re

from engine.errors import TaskInvalid

PATTERN = "^[a-z][a-z0-9-]{1,40}$"
"""The strictest rule of a provider's: a name that fits can be submitted anywhere."""

_NAME = re.compile(PATTERN[1:-1])


def check_name(name: str) -> str:
    """The name, if it is valid.

    Raises:
        TaskInvalid: it is not.
    """
    if _NAME.fullmatch(name) is None:
        raise TaskInvalid(
            f"invalid name {name!r}: use 2 to 41 of a-z, 0-9 and '-', and start with a letter ({PATTERN})"
        )
    return name


def choose_name(run_id: str, stem: str | None = None) -> str:
    """A name nobody else chooses: the stem (`steno` if there is none) and 12 hexadecimal digits of the run id.

    The same run id gives the same name, so that a submission repeated after a crash finds the first one.
    """
    digits = run_id.replace("-", "").lower()[-12:]
    words = re.sub("[^a-z0-9]+", "-", (stem or "").lower()).strip("-")
    words = words if words[:1].isalpha() else "steno"
    return f"{words[:28].rstrip('-')}-{digits}"


def alternatives(name: str, run_id: str) -> tuple[str, ...]:
    """The names a run may be submitted under, in turn: its own and, where Steno chose that, its own with a number."""
    digits = choose_name(run_id).removeprefix("steno")
    if not name.endswith(digits):
        return (name,)
    stem = name.removesuffix(digits)[:26].rstrip("-")
    return (name, *(f"{stem}{digits}-{number}" for number in range(2, 10)))
