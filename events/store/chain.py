"""The hash chain, which shows every changed, missing or inserted byte.

`hash = SHA256(previous ‖ header ‖ c1 ‖ … ‖ cn)`, one commitment `ci = SHA256(salt_i ‖ part_i)` for each part of the
event. A part commits to the commitments of its parts, so a part can be hidden behind its commitment and the chain still
verifies. Nobody without the record's key can guess what is hidden, as the salts come from it:

- of a part that events share: `HMAC(key, SHA256(part))`, so that equal parts have equal commitments;
- of an event's own data: 16 bytes by its position, one SHAKE-256 for 64 positions. Format 1 made it as for a shared
  part, which took three hashes more an event (ADR 7).
"""

import hashlib
import hmac
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from steno.events.codec import type_of
from steno.events.store.store import Identity

MARK_BYTES: Final = 8  # a row keeps this much of its hash, to locate damage; chain and head use all 32

SEAL_EVERY: Final = 100  # these rows keep the whole hash: the walk resumes there after damage

_SALTS: Final = 64  # that are made at once
_SALT_BYTES: Final = 16

_CLOCK_LENGTH: Final = 3  # the bits of `has` above those of the parts: of a header without a clock they are 0
_HEADER: Final = struct.Struct(">QQqqqBB")
_sha256: Final = hashlib.sha256
_COUNT: Final = struct.Struct(">I")


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The newest position and the hash of the whole chain up to it."""

    position: int  # 0 for an empty record
    hash: str  # 64 hex digits


class Commit(NamedTuple):
    """The commitments of one record's parts."""

    shared: Callable[[bytes], bytes]  # of a part's bytes
    data: Callable[[int, bytes], bytes]  # of the data of the event at a position


def committer(identity: Identity) -> Commit:
    shared = _by_content(identity.key)
    if identity.format == 1:
        return Commit(shared, lambda _position, data: shared(data))
    return Commit(shared, _by_position(identity.key))


def salt_of(identity: Identity, part: bytes, position: int | None = None) -> bytes:
    """The salt that opens one commitment and no other: of a part that events share, or of the data at a position."""
    if position is None or identity.format == 1:
        return hmac.digest(identity.key, _sha256(part).digest(), "sha256")
    salts = hashlib.shake_256(b"steno data %b %d" % (identity.key, position // _SALTS)).digest(_SALTS * _SALT_BYTES)
    return salts[position % _SALTS * _SALT_BYTES :][:_SALT_BYTES]


def _by_position(key: bytes) -> Callable[[int, bytes], bytes]:
    sha = _sha256
    block, salts = -1, b""

    def commit(position: int, data: bytes) -> bytes:
        nonlocal block, salts
        if position // _SALTS != block:
            block = position // _SALTS
            salts = hashlib.shake_256(b"steno data %b %d" % (key, block)).digest(_SALTS * _SALT_BYTES)
        at = position % _SALTS * _SALT_BYTES
        return sha(salts[at : at + _SALT_BYTES] + data).digest()

    return commit


def _by_content(key: bytes) -> Callable[[bytes], bytes]:
    sha = _sha256
    padded = key.ljust(64, b"\0")
    # HMAC by hand: keyed states made once are twice as fast as hmac.digest on 32 bytes.
    inner = sha(bytes(byte ^ 0x36 for byte in padded))
    outer = sha(bytes(byte ^ 0x5C for byte in padded))

    def commit(part: bytes) -> bytes:
        first = inner.copy()
        first.update(sha(part).digest())
        salt = outer.copy()
        salt.update(first.digest())
        return sha(salt.digest() + part).digest()

    return commit


def canonical_part(text: bytes, children: tuple[bytes, ...]) -> bytes:
    """The bytes a part commits to: the number of its parts, their commitments, its own text."""
    return b"".join((_COUNT.pack(len(children)), *children, text))


def subject(stream: str, type_name: str, type_version: int) -> bytes:
    """The part that the headers of all events of one type on one stream share."""
    name, kind = stream.encode(), type_name.encode()
    return b"".join((_COUNT.pack(len(name)), name, _COUNT.pack(len(kind)), kind, _COUNT.pack(type_version)))


def chained(
    previous: bytes,
    position: int,
    version: int,
    observed_at: int,
    took: int,
    recorded_at: int,
    event_id: bytes | None,
    has: int,
    about: bytes,
    commitments: bytes,
    clock: bytes | None = None,
) -> bytes:
    """The hash of an event after `previous`. `has`: its parts (1 data, 2 scope, 4 body); `about`: its `subject`."""
    own = event_id or b""
    if clock is not None:
        own, has = own + clock, has | len(clock) << _CLOCK_LENGTH
    header = _HEADER.pack(position, version, observed_at, took, recorded_at, has, len(own))
    return _sha256(b"".join((previous, header, own, about, commitments))).digest()


def mark(position: int, digest: bytes) -> bytes:
    """The bytes of its hash that the row at `position` keeps."""
    return digest if position % SEAL_EVERY == 0 else digest[:MARK_BYTES]


def followed(previous: bytes, row: Sequence[Any], stream: str, commit: Commit, parts: Mapping[int, bytes]) -> bytes:
    """The hash of a row of `events` after `previous`; `parts`: their commitments.

    Raises LookupError, TypeError, ValueError or struct.error where the row cannot be one.
    """
    position, _, version, kind, event_id, moment, took, after, scope, body, data, _, clock = row
    if any(value is not None and not value for value in (event_id, clock)):
        raise ValueError("its id or clock is empty")  # to the hash it is as if there was none, to a reader it is one
    has = 1 | (0 if scope is None else 2) | (0 if body is None else 4)
    own = b"".join((commit.data(position, data), *[parts[part] for part in (scope, body) if part is not None]))
    about = subject(stream, *type_of(kind))
    return chained(previous, position, version, moment, took, moment + after, event_id, has, about, own, clock)
