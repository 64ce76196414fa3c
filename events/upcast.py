"""Reads events of old versions: `upcast_v1_v2` functions, one a type and step, applied until the newest is reached."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

Fields: TypeAlias = dict[str, object]
"""An event's fields before they are a typed event."""

Upcast: TypeAlias = Callable[[Fields], Fields]
"""From the fields of one version to those of the next; pure."""

Upcasters: TypeAlias = Mapping[tuple[str, int], Upcast]
"""By (type name, version it reads)."""

UPCASTERS: Upcasters = {}
"""No type has a second version yet. The first will be `("RunRequested", 1): upcast_v1_v2`, or whichever comes first."""


def upcast(name: str, version: int, fields: Fields, upcasters: Upcasters = UPCASTERS) -> Fields:
    """The fields of the newest version of an event written as `version`."""
    while (step := upcasters.get((name, version))) is not None:
        fields, version = step(fields), version + 1
    return fields
