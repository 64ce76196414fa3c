"""How an event is declared, numbered and stored: a MessagePack map, so field names travel with it.

`upcast_v1_v2` functions, one a type and step, bring old versions to the newest.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, dataclass_transform

import msgspec

from steno.events.errors import RecordDamaged, RecordTooNew

KINDS: Final[dict[int, tuple[str, int]]] = {}  # kind of a row → type name and version; never reused
CODES: Final[dict[type, int]] = {}  # event class → the kind of its newest version
POLLS: Final = frozenset({1, 2})  # answered (1) and failed (2); their facts are in row columns

Fields: TypeAlias = dict[str, object]  # an event's fields before they are a typed event
Upcasters: TypeAlias = Mapping[tuple[str, int], Callable[[Fields], Fields]]
"""Pure functions from the fields of one version to those of the next, by (type name, version read)."""
UPCASTERS: Upcasters = {}  # no type has a second version yet

_encoder: Final = msgspec.msgpack.Encoder()
_decoders: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {}


class _Numbered(msgspec.StructMeta):
    """Registers each event class under its `kind`, the number of its newest version (0: a base class). `older`: the
    numbers of the versions before it, from 1.
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
    """A frozen structure; default values are not written."""


def type_of(kind: int) -> tuple[str, int]:
    """Name and version of a row's kind. Raises RecordTooNew for an unknown kind."""
    known = KINDS.get(kind)
    if known is None:
        raise RecordTooNew(f"The record holds events of kind {kind}, which this version does not know: update steno.")
    return known


def encode(event: Fact) -> bytes:
    return _encoder.encode(event)


def decode(kind: int, data: bytes, upcasters: Upcasters = UPCASTERS) -> Any:
    """The typed event of a row, in its newest version.

    Raises RecordDamaged if the bytes are not an event of that kind, RecordTooNew if the kind is unknown.
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
    """The newest version's fields of an event written as `version`."""
    while (step := upcasters.get((name, version))) is not None:
        fields, version = step(fields), version + 1
    return fields
