"""The rights of each role of a PostgreSQL database; docs/security.md has the table."""

from __future__ import annotations

import threading
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import errors
from stenotest.records import StandingClock, poll_of

from steno.events.clock import RandomIds
from steno.events.errors import RecordDamaged, RecordNotWritable
from steno.events.store import schema
from steno.events.store.record import Batch, Record
from steno.events.store.store import new_identity, store_at
from steno.events.types import SubmitIntended

if TYPE_CHECKING:
    from stenotest.postgres import MakeRole

    Connection = psycopg.Connection[Any]

SECRET = b'[{"id":"a","env":{"TOKEN":"secret"}}]'
VAULT = b'{"key":"%b","secrets":{}}'


def opened(url: str, *, write: bool = True, create: bool = False) -> Record:
    return Record.open(url, clock=StandingClock(), write=write, create=create)


def batch(stream: str = "run/1") -> Batch:
    return Batch(stream=stream, events=(SubmitIntended(run_id="1", provider="local", name="a"),))


def plain(url: str) -> Connection:
    """A connection past Steno."""
    return psycopg.connect(url, autocommit=True, options="-c search_path=steno")


@pytest.fixture
def url(postgres_url: str) -> str:
    """A record with two events, a vault and tokens."""
    with opened(postgres_url, create=True) as record:
        record.append_many([batch()])
        record.append_polls([poll_of(SECRET)])
        record.store.blob("tokens").replace(b'{"tokens":[]}')
    return postgres_url


def together(role: Connection, *texts: tuple[Any, ...]) -> None:
    """Statements in one transaction."""
    with role.transaction():
        for text in texts:
            role.execute(*text)


def end_of(url: str) -> tuple[int, bytes]:
    with plain(url) as owner:
        row = owner.execute("SELECT position, hash FROM head").fetchone()
    assert row is not None
    return row[0], bytes(row[1])


def row(position: int, **other: object) -> tuple[str, dict[str, object]]:
    """The INSERT of an event."""
    given: dict[str, object] = {
        "position": position, "stream_id": 1, "version": 2, "kind": 5, "observed_at": 0, "took": 0, "recorded_after": 0,
        "scope_id": None, "body_id": None, "data": b"{}", "hash": b"h" * 8, **other,
    }  # fmt: skip
    return f"INSERT INTO events ({', '.join(given)}) VALUES ({', '.join(f'%({name})s' for name in given)})", given


PART = "INSERT INTO parts (id, commitment, encoding, crc, data) VALUES (%s, 'c', 0, 0, '')"
STREAM = "INSERT INTO streams (id, name, version) VALUES (%s, 'run/9', %s)"
MOVE = "SELECT advance(%s, %s, %s, %s, %s::bigint[], %s::bigint[], %s::bigint[], ARRAY[NULL]::bigint[], '{}', '{}')"


def test_a_role_that_appends_may_only_insert_and_select(url: str, make_role: MakeRole) -> None:
    """It records, keeps the vault and takes leases, and may change nothing in place by itself."""
    _, theirs = make_role(appends=True)
    with opened(theirs) as record:
        record.append_many([batch(), batch("run/2")], durable=True)
        record.append_polls([poll_of(SECRET.replace(b"secret", b"another"))])
        with record.store.lease("local/here") or pytest.fail("it is free"):
            pass
        assert record.verify().ok
    with plain(theirs) as role:
        for table in ("head", "streams", "events", "parts", "meta", "blobs", "leases"):
            with pytest.raises(errors.InsufficientPrivilege):
                role.execute(f"DELETE FROM {table}")
        for table, column in (("head", "position"), ("streams", "version"), ("leases", "token"), ("blobs", "changes")):
            with pytest.raises(errors.InsufficientPrivilege):
                role.execute(f"UPDATE {table} SET {column} = 1")


def test_a_role_that_appends_cannot_insert_outside_an_append(url: str, make_role: MakeRole) -> None:
    """Nor leave what it inserted there, nor get round the check by its time: the record stays unchanged."""
    _, theirs = make_role(appends=True)
    position, digest = end_of(url)
    far = 1 << 62
    with plain(theirs) as role:
        for text, given in (row(position + 1), (PART, (far,)), (STREAM, (far, 0))):
            with pytest.raises(psycopg.DatabaseError, match="append-only"):
                role.execute(text, given)
        with pytest.raises(errors.InsufficientPrivilege):
            role.execute(row(position + 1)[0].replace("INTO events", "INTO events_1"), row(position + 1)[1])
        claim = ("SELECT claim(%s, %s)", (position, digest))
        finish: tuple[Any, ...] = (MOVE, (position, digest, position, digest, [], [], []))
        for words, texts in (
            ("not finished", (claim, row(position + 1))),
            ("not finished", (claim, (PART, (far,)))),
            ("not finished", (claim,)),
            ("not finished", (("SELECT look_at_head(true)",), (STREAM, (far, 0)))),
            ("not finished", (("SET CONSTRAINTS ALL IMMEDIATE",), claim)),
            ("append-only", (claim, finish, row(position + 1))),
        ):
            with pytest.raises(psycopg.DatabaseError, match=words):
                together(role, *texts)
    assert end_of(url) == (position, digest)
    with opened(theirs) as record:
        assert record.append_many([batch()]) == (position + 1,)
        assert record.verify().ok


NEW = b"h" * 8 + b"r" * 24  # the hash of a row that `row` makes


NO_APPENDS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "the head without an event": ((), {"at": 1}),
    "the head back": ((), {"at": -1}),
    "another hash": ((), {"at": 0}),
    "a hash that is too short": ((row,), {"hash": b"h" * 8}),
    "a hash that the event has not": ((row,), {"hash": b"x" * 32}),
    "a position that is left out": ((lambda at: row(at + 1),), {}),
    "one event more": ((row, lambda at: row(at + 7, version=3)), {}),
    "a version that is left out": ((lambda at: row(at, version=3),), {"versions": [3]}),
    "another version for the stream": ((row,), {"versions": [9]}),
    "another stream's version": ((row,), {"moved": [2]}),
    "a stream that is not there": ((lambda at: row(at, stream_id=77, version=1),), {"moved": [77], "versions": [1]}),
    "a body that is not there": ((lambda at: row(at, body_id=1 << 40),), {}),
    "a scope that is not there": ((lambda at: row(at, scope_id=0),), {}),
    "an item that is not there": ((row,), {"items": [1 << 40]}),
    "the last id of all parts": ((row, lambda _: (PART, (1 << 62,))), {}),
    "the last id of all streams": ((row, lambda _: (STREAM, (1 << 62, 0))), {}),
    "a stream with a version before its events": ((row, lambda _: (STREAM, (3, 1 << 62))), {}),
    "a hash of another length in a row": ((lambda at: row(at, hash=b"h" * 9),), {}),
}
"""The inserts, and their difference to those of one event: position, hash, streams, versions, items."""


def test_a_role_that_appends_cannot_move_the_head_over_what_is_no_append(url: str, make_role: MakeRole) -> None:
    """Position, hash, versions, ids and references are checked; what fits goes through."""
    _, theirs = make_role(appends=True)
    position, digest = end_of(url)

    def append(inserts: tuple[Any, ...], end: tuple[int, bytes], moved: list[Any]) -> None:
        claim, move = ("SELECT claim(%s, %s)", (position, digest)), (MOVE, (position, digest, *end, *moved))
        with plain(theirs) as role:
            together(role, claim, *(insert(position + 1) for insert in inserts), move)

    for why, (inserts, other) in NO_APPENDS.items():
        streams = [other.get("moved", [1]), other.get("versions", [2]), other.get("items", [None])]
        with pytest.raises(psycopg.DatabaseError) as refused:
            append(inserts, (position + other.get("at", 1), other.get("hash", NEW)), streams if inserts else [[]] * 3)
        assert (refused.value.sqlstate, end_of(url)) == ("ST003", (position, digest)), why
    append((row,), (position + 1, NEW), [[1], [2], [None]])
    assert end_of(url) == (position + 1, NEW)


def test_a_false_event_is_found_by_verify(url: str, make_role: MakeRole) -> None:
    """A role that appends may append nonsense: `verify` names it, and readers say what to do."""
    _, theirs = make_role(appends=True)
    position, digest = end_of(url)
    with plain(theirs) as role:
        finish = (MOVE, (position, digest, position + 1, NEW, [1], [2], [None]))
        together(role, ("SELECT claim(%s, %s)", (position, digest)), row(position + 1), finish)
    with opened(url, write=False) as record:
        assert {damage.position for damage in record.verify().damage} == {position + 1}
        with pytest.raises(RecordDamaged, match="verify"):
            list(record.read())


def test_a_role_that_appends_neither_reads_nor_replaces_the_tokens(url: str, make_role: MakeRole) -> None:
    """It would be an administrator of the service. It keeps the vault, and not with another key."""
    _, theirs = make_role(appends=True)
    store = store_at(theirs)
    tokens = store.blob("tokens")
    for use in (tokens.read, tokens.stamp, lambda: tokens.replace(b"{}"), tokens.locked().__enter__):
        with pytest.raises(RecordNotWritable, match="db grant"):
            use()
    with plain(theirs) as role:
        for text in ("SELECT * FROM tokens", "SELECT put_blob('tokens', '{}')", "SELECT put_tokens('tokens', '{}')"):
            with pytest.raises(errors.InsufficientPrivilege):
                role.execute(text)
        for content in (VAULT % (b"ab" * 32), b"{}", b"", b"garbage"):
            with pytest.raises(psycopg.DatabaseError):
                role.execute("SELECT put_blob('vault', %s)", (content,))
    with opened(theirs) as record:
        record.append_polls([poll_of(SECRET.replace(b"secret", b"another"))])
        record.vault.conceal(SECRET, "run/1")
        assert record.vault.owners() == ("run/1",)
    assert store_at(url).blob("tokens").read() == b'{"tokens":[]}'


def test_a_role_that_appends_takes_a_lease_for_a_minute_at_most(url: str, make_role: MakeRole) -> None:
    """Longer leases are refused when they are taken and when they are renewed."""
    _, theirs = make_role(appends=True)
    owner = RandomIds().new()
    take = "SELECT take_lease('local/here', %s::uuid, 1, 'host', %s::interval)"
    renew = "SELECT renew_lease('local/here', %s::uuid, 1, %s::interval)"
    with plain(theirs) as role:
        for length in ("100 years", "61 seconds", "-1 second", "infinity"):
            with pytest.raises(psycopg.DatabaseError):
                role.execute(take, (owner, length))
        assert role.execute(take, (owner, "6 seconds")).fetchone() == (1,)
        with pytest.raises(psycopg.DatabaseError, match="a minute at most"):
            role.execute(renew, (owner, "100 years"))
        assert role.execute(renew, (owner, "0 seconds")).fetchone() == (True,)
    with store_at(theirs).lease("local/here") or pytest.fail("it is free"):
        pass


def test_a_role_that_appends_makes_no_room_that_is_not_needed(url: str, make_role: MakeRole) -> None:
    """Neither a million partitions nor small partitions."""
    _, theirs = make_role(appends=True)
    with plain(theirs) as role:
        for words in ("1 << 62", "20000000", "10, 1"):
            with pytest.raises(psycopg.DatabaseError, match="not needed yet"):
                role.execute(f"SELECT make_room({words})")
        role.execute("SELECT make_room(2)")
    with plain(url) as owner:
        assert owner.execute("SELECT count(*) FROM ranges").fetchone() == (1,)


def test_a_role_that_keeps_the_tokens_does_so(url: str, make_role: MakeRole) -> None:
    """And all that a role that appends does."""
    _, theirs = make_role(appends=True, keeps_tokens=True)
    with opened(theirs) as record:
        tokens = record.store.blob("tokens")
        with tokens.locked() as held, tokens.try_locked() as other:
            assert other is None
            assert held.read() == b'{"tokens":[]}'
            held.replace(b'{"tokens":[1]}')
        assert tokens.read() == b'{"tokens":[1]}'
        assert record.append_many([batch()]) == (end_of(url)[0],)


LOCKS = ("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", "SHARE UPDATE EXCLUSIVE", "SHARE", "SHARE ROW EXCLUSIVE",
         "EXCLUSIVE", "ACCESS EXCLUSIVE")  # fmt: skip


def test_no_lock_that_a_reader_can_take_gates_a_write(url: str, make_role: MakeRole) -> None:
    """It takes all it gets: each lock of each table, each row, and the advisory locks that there ever were. Others
    append, keep the vault and the tokens, take leases and make partitions.
    """
    _, reads = make_role(appends=False)
    _, theirs = make_role(appends=True, keeps_tokens=True)
    with closing(plain(reads)) as reader, closing(plain(reads)) as session:
        for word in ("blob", "make_room"):
            session.execute("SELECT pg_advisory_lock(hashtext('steno ' || %s))", (word,))
        for name in ("vault", "tokens", "snapshot"):
            session.execute("SELECT pg_advisory_lock(hashtext('steno blob'), hashtext(%s))", (name,))
        tables = reader.execute("SELECT relname FROM pg_class WHERE relnamespace = 'steno'::regnamespace "
                                "AND relkind IN ('r', 'p')").fetchall()  # fmt: skip
        reader.execute("BEGIN")
        taken = set()
        for (table,) in tables:
            for text in (*(f"LOCK TABLE {table} IN {mode} MODE" for mode in LOCKS),
                         *(f"SELECT FROM {table} FOR {how}" for how in ("UPDATE", "SHARE", "KEY SHARE"))):  # fmt: skip
                with suppress(errors.InsufficientPrivilege), reader.transaction():
                    reader.execute(text)
                    taken.add(text)
        assert "LOCK TABLE events IN ACCESS SHARE MODE" in taken
        with opened(theirs) as record:
            record.append_many([batch()])
            record.append_polls([poll_of(SECRET.replace(b"secret", b"another"))])
            record.vault.conceal(SECRET, "run/1")
            with record.store.blob("tokens").locked() as tokens:
                tokens.replace(b"{}")
            with record.store.blob("snapshot").try_locked() as snapshot:
                assert snapshot is not None
            with record.store.lease("local/here") or pytest.fail("it is free"):
                pass
        with plain(url) as owner:
            owner.execute("SELECT make_room(10000001)")
            assert not owner.execute("SELECT proname FROM pg_proc WHERE pronamespace = 'steno'::regnamespace "
                                     "AND prosrc ~ 'advisory'").fetchall()  # fmt: skip
        store_at(url).upgrade()
        reader.execute("ROLLBACK")


def test_a_lock_that_is_not_freed_is_given_up_after_five_seconds(url: str, make_role: MakeRole) -> None:
    """Whatever the session has set: a process that appends can hold it. Appends without a secret go on."""
    _, theirs = make_role(appends=True)
    with closing(plain(theirs)) as other, closing(plain(theirs)) as patient:
        other.execute("BEGIN; SELECT hold_blob('vault', true)")
        patient.execute("SET lock_timeout = 0")
        with pytest.raises(errors.LockNotAvailable):
            patient.execute("SELECT hold_blob('vault', true)")
        with opened(theirs) as record:
            record.append_many([batch()])
            other.execute("ROLLBACK")
            record.vault.conceal(SECRET, "run/1")


def test_a_role_that_reads_sees_no_secrets_and_calls_no_function(url: str, make_role: MakeRole) -> None:
    """Neither vault, tokens nor leases; it appends nothing."""
    _, reads = make_role(appends=False)
    with opened(reads, write=False) as record:
        assert record.verify().ok
        with pytest.raises(RecordNotWritable, match="db grant"):
            record.store.blob("vault").read()
    with opened(reads) as record, pytest.raises(RecordNotWritable, match="db grant"):
        record.append_many([batch()])
    with plain(reads) as role:
        for table in ("blobs", "tokens", "leases"):
            with pytest.raises(errors.InsufficientPrivilege):
                role.execute(f"SELECT * FROM {table}")
        callable_by_it = (
            "SELECT proname FROM pg_proc WHERE pronamespace = 'steno'::regnamespace "
            "AND prorettype <> 'trigger'::regtype AND has_function_privilege(oid, 'EXECUTE')"
        )
        assert role.execute(callable_by_it).fetchall() == []


def test_who_may_only_connect_sees_nothing(url: str, make_role: MakeRole) -> None:
    """The schema is closed to PUBLIC."""
    _, stranger = make_role()
    with psycopg.connect(stranger, autocommit=True) as role:
        for text in ("SELECT * FROM steno.events", "SELECT * FROM steno.blobs", "SELECT steno.look_at_head(true)"):
            with pytest.raises(errors.InsufficientPrivilege):
                role.execute(text)
    with pytest.raises(RecordNotWritable, match="db grant"):
        opened(stranger, write=False)


def test_the_owner_changes_nothing_that_is_recorded(url: str) -> None:
    """Triggers refuse it to the owner too, in a partition as well, and a row beyond the head."""
    position, _ = end_of(url)
    with plain(url) as owner:
        for table in ("events", "events_1", "parts", "meta"):
            for verb in (f"UPDATE {table} SET {'value' if table == 'meta' else 'data'} = ''", f"DELETE FROM {table}"):
                with pytest.raises(psycopg.DatabaseError, match="append-only"):
                    owner.execute(verb)
        for table in ("events", "events_1", "parts", "meta", "streams", "head"):
            with pytest.raises(psycopg.DatabaseError, match="append-only"):
                owner.execute(f"TRUNCATE {table}")
        with pytest.raises(psycopg.DatabaseError, match="append-only"):
            owner.execute(*row(position + 1))


def test_roles_of_an_older_record_keep_what_they_may(
    postgres_url: str, make_role: MakeRole, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All but the tokens, which their owner grants once more; what was kept is there."""
    with monkeypatch.context() as older:
        older.setattr("steno.events.store.postgres.store.migrate", lambda database: schema.migrate(database, "0001"))
        store_at(postgres_url).create(new_identity(StandingClock()))
    (name, theirs), (reader, reads) = make_role(), make_role()
    with plain(postgres_url) as owner:
        owner.execute("SELECT admit(%s, true), admit(%s, false)", (name, reader))
        for blob, content in (("tokens", b'{"tokens":[]}'), ("vault", VAULT % (b"cd" * 32))):
            owner.execute("SELECT put_blob(%s, %s)", (blob, content))
    store_at(postgres_url).upgrade()
    store = store_at(theirs)
    with opened(theirs) as record:
        record.append_many([batch()])
        record.vault.conceal(SECRET, "run/1")
        assert record.verify().ok
    assert (store.blob("vault").read() or b"").startswith(b'{"key":"cdcd')
    with pytest.raises(RecordNotWritable, match="db grant"):
        store.blob("tokens").read()
    store_at(postgres_url).admit(name, appends=True, keeps_tokens=True)
    assert store.blob("tokens").read() == b'{"tokens":[]}'
    with opened(reads, write=False) as record:
        assert record.head().position == 1


def test_writers_that_wait_for_a_lock_get_it_in_turn(url: str, make_role: MakeRole) -> None:
    """Many processes with secrets at once: every secret is kept."""
    _, theirs = make_role(appends=True)
    names = [f"run/{number}" for number in range(8)]

    def keep(name: str) -> None:
        with opened(theirs) as record:
            record.vault.conceal(SECRET.replace(b"secret", name.encode()), name)

    threads = [threading.Thread(target=keep, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with opened(theirs) as record:
        assert sorted(record.vault.owners()) == names
