"""The problems that are shipped: each a definition and a solution of it that works."""

from functools import cache
from pathlib import Path

import msgspec

from engine.kernel.definition import Definition

_FOLDER = Path(__file__).parent / "problems"


class KernelProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One of them."""

    problem: str
    title: str
    problem_def: Definition
    example: str
    """A solution for float32."""


@cache
def problems() -> tuple[KernelProblem, ...]:
    """All of them, by name."""
    return tuple(_read(path) for path in sorted(_FOLDER.iterdir()) if (path / "problem.json").is_file())


def names() -> tuple[str, ...]:
    """What they are called."""
    return tuple(one.problem for one in problems())


def definition_of(name: str) -> Definition | None:
    """The definition of that name; None: none is shipped."""
    return next((one.problem_def for one in problems() if one.problem == name), None)


def reference_of(definition: Definition) -> str:
    """The Python source of what is right, its own or that of the shipped problem it names.

    Raises:
        LookupError: no such problem is shipped.
    """
    found: Definition | None = definition
    if definition.reference.python is None:
        found = definition_of(definition.reference.problem or "")
    if found is None or found.reference.python is None:
        raise LookupError(definition.reference.problem)
    return found.reference.python


def _read(folder: Path) -> KernelProblem:
    given = msgspec.json.decode((folder / "problem.json").read_bytes(), type=dict[str, object])
    reference = {"python": (folder / "reference.txt").read_text("utf-8")}
    definition = msgspec.convert({**given, "reference": reference}, Definition)
    example = (folder / "solution.hip").read_text("utf-8")
    return KernelProblem(problem=folder.name, title=definition.title, problem_def=definition, example=example)
