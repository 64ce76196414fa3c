"""Typed events to bytes and back: MessagePack maps, so that field names travel with the event and it can be read for
ever.
"""

from typing import Final

import msgspec

from events import types
from events.errors import RecordDamaged
from events.kinds import type_of
from events.upcast import UPCASTERS, Upcasters, upcast

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
