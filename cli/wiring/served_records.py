"""The records that `steno serve` is given: a name for each, opened once before they are served."""

import re
from collections.abc import Sequence
from pathlib import PurePath
from typing import Final
from urllib.parse import urlsplit

import click

from cli.wiring.app import App
from engine.providers.readings import READINGS
from events.store.record import Record
from events.store.store import Store
from projections.site.places import NAME

_NAMED: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)=(.+)", re.DOTALL)
_STRANGE: Final = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST: Final = 30  # characters of a name that is made


def named_records(words: Sequence[str]) -> dict[str, str]:
    """Name → place, of `NAME=PLACE` or a place alone, whose name is its file's or its database's. Raises `UsageError`
    for a name that is given twice or too long.
    """
    found: dict[str, str] = {}
    given = [(match[1], match[2]) if (match := _NAMED.fullmatch(word)) else (None, word) for word in words]
    for name, place in given:
        if name is None:
            continue
        if NAME.fullmatch(name) is None:
            raise click.UsageError(f"The record's name {name[:60]!r} is too long: use at most 40 characters.")
        if name in found:
            raise click.UsageError(f"Two records are named {name}: give each a name of its own, as NAME=PLACE.")
        found[name] = place
    chosen = iter(_without_name([place for name, place in given if name is None], set(found)))
    return {name if name is not None else next(chosen): place for name, place in given}


def _without_name(places: Sequence[str], taken: set[str]) -> list[str]:
    """Names for places: the file's stem or the database's name, with a number where that is taken."""
    names: list[str] = []
    for place in places:
        stem = PurePath(urlsplit(place).path if "://" in place else place).stem
        made = _STRANGE.sub("-", stem).strip("-_")[:_LONGEST] or "record"
        name, number = made, 1
        while name in taken:
            number += 1
            name = f"{made}-{number}"
        taken.add(name)
        names.append(name)
    return names


def opened(app: App, places: dict[str, str]) -> dict[str, Store]:
    """The stores of existing records, each opened once as a writer, so that a wrong one fails before anything is
    served. Raises `UsageError` if two places are one record, and as opening a record does.
    """
    stores: dict[str, Store] = {}
    ids: dict[str, str] = {}
    for name, place in places.items():
        with Record.open(place, write=True, create=False, shapes=READINGS.shape, clock=app.clock) as record:
            if record.id in ids:
                raise click.UsageError(f"{ids[record.id]} and {name} are the same record: name it once.")
            ids[record.id], stores[name] = name, record.store
    return stores
