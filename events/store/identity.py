"""What a record says of itself: made once, read and checked by every store."""

import secrets
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from events.clock import Clock
from events.errors import RecordDamaged, RecordTooNew, RecordTooOld
from events.store.schema import FORMAT, REVISION, REVISIONS
from events.store.store import Identity

DESCRIPTION: Final = frozenset({"format", "record_id", "key", "created_at"})


def new_identity(clock: Clock) -> Identity:
    return Identity(format=FORMAT, record_id=str(uuid.uuid4()), key=secrets.token_bytes(32), created_at=clock.now())


def described(identity: Identity) -> list[tuple[str, bytes]]:
    """The rows of `meta`."""
    own = ((key, getattr(identity, key)) for key in sorted(DESCRIPTION))
    return [(key, value if key == "key" else str(value).encode()) for key, value in own]


def read_identity(
    revisions: Sequence[str], found: Mapping[str, bytes], where: str, *, write: bool, check: bool, sealed: bool
) -> Identity:
    """The identity in the rows of `alembic_version` and `meta`.

    `write` requires this version's schema, else an older one will do. `check` requires it to be whole; verify reads
    what it can and names the damage. `sealed`: some events are in files, which no version since schema 0004 reads.
    Raises RecordDamaged, RecordTooNew or RecordTooOld.
    """
    schema = revisions[0] if len(revisions) == 1 else ""
    identity = Identity(
        format=_whole_number(found.get("format")),
        record_id=found.get("record_id", b"").decode("utf-8", "replace"),
        key=found.get("key", b""),
        created_at=_whole_number(found.get("created_at")),
    )
    if schema > REVISION or (check and identity.format > FORMAT):
        raise RecordTooNew(f"The record {where} was written by a newer version (schema {schema}): update steno.")
    if sealed:
        raise RecordTooOld(
            f"Old events of the record {where} are in sealed files, which this version does not read: run "
            f"`steno db copy {where} NEW` with the version that sealed them, then use NEW."
        )
    if check and (found.keys() < DESCRIPTION or min(identity.format, identity.created_at) < 0):
        raise RecordDamaged(f"The record {where} has lost its own description: restore it from a copy.")
    if check and (schema not in REVISIONS or identity.format < 1):
        raise RecordDamaged(f"The record {where} does not say its schema: restore it from a copy.")
    if write and schema != REVISION:
        raise RecordTooOld(
            f"The record {where} has schema {schema}, this version writes {REVISION}: "
            f"run `steno db upgrade --record {where}`."
        )
    return msgspec.structs.replace(identity, schema=schema)


def _whole_number(text: bytes | None) -> int:
    return int(text) if text is not None and text.isdigit() and len(text) < 20 else -1
