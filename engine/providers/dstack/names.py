"""Names of runs and fleets: what dstack takes, and one of our own where the task has none."""

import re

from engine.errors import TaskInvalid

PATTERN = "^[a-z][a-z0-9-]{1,40}$"
"""dstack's rule for names of runs and fleets."""

_NAME = re.compile(PATTERN[1:-1])


def check_name(name: str) -> str:
    """The name, if dstack takes it.

    Raises:
        TaskInvalid: it does not.
    """
    if _NAME.fullmatch(name) is None:
        raise TaskInvalid(
            f"invalid name {name!r}: use 2 to 41 of a-z, 0-9 and '-', and start with a letter ({PATTERN})"
        )
    return name


def choose_name(run_id: str, stem: str | None = None) -> str:
    """A name nobody else will choose: the stem (`steno` if there is none) and 12 hexadecimal digits of the run id.

    The same run id gives the same name, so that a submission repeated after a crash meets itself.
    """
    digits = run_id.replace("-", "").lower()[-12:]
    words = re.sub("[^a-z0-9]+", "-", (stem or "").lower()).strip("-")
    words = words if words[:1].isalpha() else "steno"
    return f"{words[:28].rstrip('-')}-{digits}"


def names_for(name: str, run_id: str) -> tuple[str, ...]:
    """The names a run may be handed over under, in turn: its own and, where Steno chose that, its own with a number."""
    digits = choose_name(run_id).removeprefix("steno")
    if not name.endswith(digits):
        return (name,)
    stem = name.removesuffix(digits)[:26].rstrip("-")
    return (name, *(f"{stem}{digits}-{number}" for number in range(2, 10)))
