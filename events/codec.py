"""How an event is declared, numbered and stored.

An event is stored as a MessagePack map, so that field names travel with it and it can be read for ever. Old versions
are read by `upcast_v1_v2` functions, one a type and step, until the newest is reached.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, dataclass_transform

import msgspec

from events.errors import RecordDamaged, RecordTooNew

KINDS: Final[dict[int, tuple[str, int]]] = {}
"""Type name and version by the number that a row keeps. A number is never reused."""
CODES: Final[dict[type, int]] = {}
"""The kind under which each event class is written: that of its newest version."""
POLLS: Final = frozenset({1, 2})
"""The kinds of polls, answered (1) and failed; their facts are in the columns of their rows."""

Fields: TypeAlias = dict[str, object]  # an event's fields before they are a typed event
Upcasters: TypeAlias = Mapping[tuple[str, int], Callable[[Fields], Fields]]
"""Pure functions from the fields of one version to those of the next, by (type name, version read)."""
UPCASTERS: Upcasters = {}
"""No type has a second version yet. The first will be `("RunRequested", 1): upcast_v1_v2`, or whichever comes first."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {}


class _Numbered(msgspec.StructMeta):
    """Registers each event class under its kind.

    Args:
        kind: the number of the newest version; 0 for a base class.
        older: the numbers of the versions before it, from 1.
    """

    def __new__(
        cls, name: str, bases: tuple[type, ...], own: dict[str, Any], kind: int = 0, **given: Any
    ) -> "_Numbered":
        made = super().__new__(cls, name, bases, own, frozen=True, kw_only=True, omit_defaults=True)
        if kind:
            KINDS.update({number: (name, version) for version, number in enumerate((*given.get("older", ()), kind), 1)})
            CODES[made] = kind
            _decoders[name] = msgspec.msgpack.Decoder(made)
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Fact(msgspec.Struct, metaclass=_Numbered, frozen=True):
    """A frozen structure; a field that has its default value is not written."""


def type_of(kind: int) -> tuple[str, int]:
    """Name and version of a row's kind.

    Raises:
        RecordTooNew: this version of Steno does not know that kind.
    """
    found = KINDS.get(kind)
    if found is None:
        raise RecordTooNew(f"The record holds events of kind {kind}, which this version does not know: update steno.")
    return found


def encode(event: Fact) -> bytes:
    """The bytes an event is stored as."""
    return _encoder.encode(event)


def decode(kind: int, data: bytes, upcasters: Upcasters = UPCASTERS) -> Any:
    """The typed event of a row, brought to the newest version of its type.

    Raises:
        RecordDamaged: the bytes are not an event of that kind.
        RecordTooNew: the kind is unknown.
    """
    name, version = type_of(kind)
    decoder = _decoders[name]
    try:
        if (name, version) not in upcasters:
            return decoder.decode(data)
        fields = upcast(name, version, msgspec.msgpack.decode(data, type=Fields), upcasters)
        return decoder.decode(msgspec.msgpack.encode(fields))
    except msgspec.MsgspecError as error:
        raise RecordDamaged(f"An event of type {name} cannot be read ({error}): run `steno verify`.") from error


def upcast(name: str, version: int, fields: Fields, upcasters: Upcasters = UPCASTERS) -> Fields:
    """The fields of the newest version of an event written as `version`."""
    while (step := upcasters.get((name, version))) is not None:
        fields, version = step(fields), version + 1
    return fields
