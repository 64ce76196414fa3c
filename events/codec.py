"""How an event is declared, numbered and stored: a MessagePack map, so field names travel with it."""

from typing import Any, Final, dataclass_transform

import msgspec

from steno.events.errors import RecordDamaged, RecordTooNew

KINDS: Final[dict[int, tuple[str, int]]] = {}  # kind of a row → type name and version; never reused
CODES: Final[dict[type, int]] = {}  # event class → its kind
POLLS: Final = frozenset({1, 2})  # answered (1) and failed (2); their facts are in row columns

_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {}


class _Numbered(msgspec.StructMeta):
    """Registers each event class under its `kind` (0: a base class), in version 1: no type has a second one yet."""

    def __new__(cls, name: str, bases: tuple[type, ...], own: dict[str, Any], kind: int = 0, **_: Any) -> "_Numbered":
        made = super().__new__(cls, name, bases, own, frozen=True, kw_only=True, omit_defaults=True)
        if kind:
            KINDS[kind] = (name, 1)
            CODES[made] = kind
            _decoders[name] = msgspec.msgpack.Decoder(made)
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Fact(msgspec.Struct, metaclass=_Numbered, frozen=True):
    """A frozen structure; default values are not written."""


def type_of(kind: int) -> tuple[str, int]:
    """Name and version of a row's kind. Raises RecordTooNew for an unknown kind."""
    known = KINDS.get(kind)
    if known is None:
        raise RecordTooNew(f"The record holds events of kind {kind}, which this version does not know: update steno.")
    return known


def encode(event: Fact) -> bytes:
    return _encoder.encode(event)


def decode(kind: int, data: bytes) -> Any:
    """The typed event of a row. Raises RecordDamaged if the bytes are not an event of that kind, RecordTooNew if the
    kind is unknown.
    """
    name, _ = type_of(kind)
    try:
        return _decoders[name].decode(data)
    except msgspec.MsgspecError as error:
        raise RecordDamaged(f"An event of type {name} cannot be read ({error}): run `steno verify`.") from error
