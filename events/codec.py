"""Typed events to bytes and back: MessagePack maps, so that field names travel with the event and it can be read for
ever. Old versions are read by `upcast_v1_v2` functions, one a type and step, until the newest is reached.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from events import types
from events.errors import RecordDamaged
from events.kinds import type_of

Fields: TypeAlias = dict[str, object]
"""An event's fields before they are a typed event."""

Upcast: TypeAlias = Callable[[Fields], Fields]
"""From the fields of one version to those of the next; pure."""

Upcasters: TypeAlias = Mapping[tuple[str, int], Upcast]
"""By (type name, version it reads)."""

UPCASTERS: Upcasters = {}
"""No type has a second version yet. The first will be `("RunRequested", 1): upcast_v1_v2`, or whichever comes first."""

_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[str, msgspec.msgpack.Decoder[types.Event]]] = {
    name: msgspec.msgpack.Decoder(getattr(types, name)) for name in types.NAMES
}


def encode(event: types.Event) -> bytes:
    """The bytes an event is stored as."""
    return _encoder.encode(event)


def decode(kind: int, data: bytes, upcasters: Upcasters = UPCASTERS) -> types.Event:
    """The typed event of a row, brought to the newest version of its type.

    Raises:
        RecordDamaged: the bytes are no event of that kind.
        RecordTooNew: the kind is unknown.
    """
    name, version = type_of(kind)
    decoder = _decoders[name]
    try:
        if (name, version) not in upcasters:
            return decoder.decode(data)
        fields = upcast(name, version, msgspec.msgpack.decode(data, type=dict[str, object]), upcasters)
        return decoder.decode(msgspec.msgpack.encode(fields))
    except msgspec.MsgspecError as error:
        raise RecordDamaged(f"An event of type {name} cannot be read ({error}): run `steno verify`.") from error


def upcast(name: str, version: int, fields: Fields, upcasters: Upcasters = UPCASTERS) -> Fields:
    """The fields of the newest version of an event written as `version`."""
    while (step := upcasters.get((name, version))) is not None:
        fields, version = step(fields), version + 1
    return fields
