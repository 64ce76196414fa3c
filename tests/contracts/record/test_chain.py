"""The chain by its definition, in plain words of hashlib, of every format that records have."""

import hashlib
import hmac
import struct
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select
from stenotest.memory_store import MemoryStore
from stenotest.records import MachineClock, StandingClock, poll_of

from steno.events.codec import type_of
from steno.events.shape.shape import BodyShape
from steno.events.store import schema
from steno.events.store.append import Batch
from steno.events.store.copying import copy
from steno.events.store.record import Record
from steno.events.store.store import FORMAT, Identity, new_identity, store_at
from steno.events.types import RecorderStopped

FORMATS = range(1, FORMAT + 1)


def shapes(path: str, req: bytes, /) -> BodyShape | None:
    return BodyShape(kind="run", items="[]", volatile=("cost",), cold=("spec",))


def sha(*pieces: bytes) -> bytes:
    return hashlib.sha256(b"".join(pieces)).digest()


def counted(piece: bytes) -> bytes:
    return len(piece).to_bytes(4, "big") + piece


def by_content(identity: Identity, part: bytes) -> bytes:
    return sha(hmac.digest(identity.key, sha(part), "sha256"), part)


def of_data(identity: Identity, position: int, data: bytes) -> bytes:
    if identity.format == 1:
        return by_content(identity, data)
    salts = hashlib.shake_256(b"steno data " + identity.key + f" {position // 64}".encode()).digest(1024)
    return sha(salts[position % 64 * 16 :][:16], data)


def head_of(record: Record) -> tuple[int, bytes]:
    """Position and hash that the rows of a record have by the definition."""
    session = record._session
    identity = session.identity
    names = dict(session.run(select(schema.streams.c.id, schema.streams.c.name)).fetchall())
    commitments = dict(session.run(select(schema.parts.c.id, schema.parts.c.commitment)).fetchall())
    about = f"steno record {identity.format} {identity.record_id} {identity.created_at}\n".encode()
    position, digest = 0, sha(about, sha(identity.key))
    for row in session.run(select(schema.events).order_by(schema.events.c.position)).fetchall():
        position, stream, version, kind, event_id, at, took, after, scope, body, data, _, clock = row
        own, (name, type_version) = (event_id or b"") + (clock or b""), type_of(kind)
        has = 1 + (scope is not None) * 2 + (body is not None) * 4 + len(clock or b"") * 8
        numbers = struct.pack(">QQqqqBB", position, version, at, took, at + after, has, len(own))
        subject = counted(names[stream].encode()) + counted(name.encode()) + type_version.to_bytes(4, "big")
        parts = [bytes(commitments[part]) for part in (scope, body) if part is not None]
        digest = sha(digest, numbers, own, subject, of_data(identity, position, bytes(data)), *parts)
    return position, digest


def of_format(number: int) -> Identity:
    return msgspec.structs.replace(new_identity(StandingClock()), format=number)


def follow(record: Record, done: list[tuple[str, list[str]]]) -> None:
    """Append what the steps say: many events, one event with an id, a poll."""
    for what, words in done:
        facts = [RecorderStopped(source="company", why=word) for word in words]
        if what == "poll":
            items = [{"id": word, "cost": index, "spec": {"of": word[:1]}} for index, word in enumerate(words)]
            record.append_polls([poll_of(msgspec.json.encode(items), path="/runs")])
        elif what == "once":
            record.append_many([Batch("company", facts, ids=[sha(word.encode())[:8].hex() for word in words])])
        else:
            record.append_many([Batch("company/" + words[0], facts)])


steps = st.lists(
    st.tuples(
        st.sampled_from(["events", "once", "poll"]), st.lists(st.text("abc", max_size=2), min_size=1, max_size=70)
    ),
    max_size=8,
)


@pytest.mark.parametrize("number", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_the_head_is_what_the_definition_says(number: int, done: list[tuple[str, list[str]]]) -> None:
    """The law holds for any record; and `verify` agrees."""
    store = MemoryStore()
    try:
        store.create(of_format(number))
        for clock in (StandingClock(), MachineClock()):
            with Record.open(store, clock=clock, write=True, shapes=shapes) as record:
                follow(record, done)
        with Record.open(store, clock=clock, shapes=shapes) as record:
            head = record.head()
            assert (head.position, bytes.fromhex(head.hash)) == head_of(record)
            assert record.verify().ok
    finally:
        store.close()


@pytest.mark.parametrize("number", FORMATS)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_record_of_any_format_goes_on_and_is_copied(
    number: int, kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It keeps its format, for ever."""
    url = f"{tmp_path}/record.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    store, clock = store_at(url), MachineClock()
    store.create(of_format(number))
    more = [("events", [f"{index}" for index in range(90)]), ("poll", ["a", "b"]), ("once", ["c"])]
    for _ in range(2):
        with Record.open(store, clock=clock, write=True, shapes=shapes) as record:
            follow(record, more)
    target = store_at(tmp_path / "copy.db")
    head = copy(store, target, clock=clock, progress=lambda *_: None)
    for where in (store, target):
        with Record.open(where, clock=clock, write=True, shapes=shapes) as record:
            assert record._session.identity.format == number
            assert record.head() == head
            follow(record, more)
            assert record.verify(expect=head).ok
