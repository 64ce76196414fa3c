"""The properties that two histories of the same kind share, whenever and wherever they were made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

Paths = frozenset[tuple[str, str]]


def paths(answers: Iterable[Any]) -> Paths:
    """Every (path, kind of value) in these JSON answers; list items share the path `x[]`, kinds are JSON's."""
    return frozenset(path for answer in answers for path in _walk("", answer))


def filled(shape: Paths) -> Paths:
    """The paths that had a value: a field is null until its time has come."""
    return frozenset((path, kind) for path, kind in shape if kind != "null")


def _walk(path: str, value: Any) -> Iterator[tuple[str, str]]:
    match value:
        case dict():
            for key, inner in value.items():
                yield from _walk(f"{path}.{key}", inner)
        case list():
            for inner in value:
                yield from _walk(f"{path}[]", inner)
        case _:
            yield path, _kind(value)


def _kind(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case _:
            return "string"


def course(values: Iterable[Any]) -> tuple[Any, ...]:
    """The values in order, each run of equal values once: the course of a status."""
    steps: list[Any] = []
    for value in values:
        if not steps or steps[-1] != value:
            steps.append(value)
    return tuple(steps)


def agree(ours: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """True if two courses may be one course, seen by pollers of different speed: common steps come up in the same
    order.

    Each step counts where it comes up first: under load a worker of dstack writes a status back that it had read
    before, and a genuine course goes a step back and forth.
    """
    common = set(ours) & set(other)
    first, second = ([step for step in dict.fromkeys(course) if step in common] for course in (ours, other))
    return first == second
