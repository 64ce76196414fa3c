"""The PostgreSQL store: one record in the schema `steno` of a database."""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import Connection as Migrated
from sqlalchemy import create_engine
from sqlalchemy.exc import DBAPIError
from sqlalchemy.pool import NullPool

from steno.events.clock import SECOND, Clock, boot_time
from steno.events.errors import NotARecord, RecordLocked, RecordNotFound
from steno.events.store.postgres.connection import PATIENT, Connection, connect, shown, translated
from steno.events.store.postgres.lease import Link, PostgresBlob, PostgresLease, holders, shared_clock, take_lease
from steno.events.store.postgres.session import PostgresSession
from steno.events.store.rows import expect_head
from steno.events.store.schema import migrate
from steno.events.store.store import (
    REVISIONS,
    Holder,
    Identity,
    Store,
    StoreStatus,
    described,
    expect_nobody_acts,
    new_identity,
    read_identity,
)

_TABLES: Final = frozenset({"alembic_version", "meta", "head", "events", "parts", "streams"})
_OTHERS: Final = (
    "SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND application_name = current_setting('application_name')"
)
_LEAVES: Final = 2 * SECOND  # in which the server still lists the connection of a process that ended
_CARRY_OVER: Final = (
    "INSERT INTO leases TABLE {0}.leases; INSERT INTO blobs SELECT * FROM {0}.blobs WHERE name = 'vault' {2}; "
    "INSERT INTO tokens SELECT * FROM {0}.{1} WHERE name = 'tokens' {2}"
)
_IN_PLACE: Final = "ON CONFLICT (name) DO UPDATE SET content = excluded.content, changes = excluded.changes"
_MAKER: Final = 0x5354454E  # the advisory lock that only one maker of a record holds


class PostgresStore:
    """A record in a database, its company in tables beside it; files and read models in folders of this machine."""

    def __init__(self, place: str) -> None:
        self._url = place
        self._link = Link(place)
        self._there = False  # a record was found

    @property
    def url(self) -> str:
        return self._url

    def __str__(self) -> str:
        return shown(self._url)

    def open(self, *, write: bool, create: bool, check: bool, clock: Clock) -> PostgresSession:
        with ExitStack() as opened:
            opened.enter_context(translated(self._url))
            connection = connect(self._url, write=write)
            opened.callback(connection.close)
            if write and create and not self._found(connection):
                self.create(new_identity(clock))
            identity = self._identity(connection, write=write, check=check)
            session = PostgresSession(self._url, connection, identity, write=write)
            if check:
                expect_head(session, self)
            opened.pop_all()
        return session

    def create(self, identity: Identity) -> None:
        with self._migrating() as (database, connection):
            if self._found(connection):
                return
            connection.execute("CREATE SCHEMA IF NOT EXISTS steno")
            migrate(database)
            for row in described(identity):
                connection.execute("INSERT INTO meta (key, value) VALUES (%s, %s)", row)
            connection.execute("INSERT INTO head (id, position, hash) VALUES (1, 0, %s)", (identity.genesis(),))

    def upgrade(self) -> None:
        for revision in REVISIONS:
            with self._migrating() as (database, connection):
                self._identity(connection, write=False, check=True)
                if self._revisions(connection)[0] < revision:
                    expect_nobody_acts(self, holders(self._link))
                    migrate(database, revision)

    def replace(self, fill: Callable[[Store], object]) -> str | None:
        kept = f"steno_replaced_{os.urandom(4).hex()}"
        with translated(self._url), connect(self._url, write=True) as connection:
            if not self._found(connection):
                fill(self)
                return None
            expect_nobody_acts(self, holders(self._link))
            self._link.close()
            end = boot_time() + _LEAVES
            while connection.execute(_OTHERS).fetchone() is not None:
                if boot_time() > end:
                    raise RecordLocked(f"A process has the record {self} open: stop it first.")
                time.sleep(0.05)
            connection.execute(f"ALTER SCHEMA steno RENAME TO {kept}".encode())
            try:
                fill(self)
                apart = connection.execute("SELECT to_regclass(%s)", (f"{kept}.tokens",)).fetchone() != (None,)
                tokens = "tokens" if apart else "blobs"
                connection.execute(_CARRY_OVER.format(kept, tokens, _IN_PLACE).encode())
            except BaseException:
                connection.execute(f"DROP SCHEMA IF EXISTS steno CASCADE; ALTER SCHEMA {kept} RENAME TO steno".encode())
                raise
        return kept

    def admit(self, role: str, *, appends: bool, keeps_tokens: bool = False) -> None:
        with translated(self._url), connect(self._url, write=True) as connection:
            self._identity(connection, write=True, check=True)
            connection.execute("SELECT admit(%s, %s, %s)", (role, appends, keeps_tokens))

    def status(self) -> StoreStatus:
        with translated(self._url), connect(self._url, write=False) as connection:
            self._identity(connection, write=False, check=False)
            row = connection.execute(
                "SELECT current_setting('server_version'), pg_database_size(current_database()), "
                "(SELECT count(*) FROM ranges), "
                "(SELECT coalesce(extract(epoch FROM max(now() - xact_start)), 0)::bigint"
                " FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid())"
            ).fetchone()
            schema = "".join(self._revisions(connection))
        version, size, partitions, oldest = row or ("?", 0, 0, 0)
        return StoreStatus(
            database=f"PostgreSQL {version}",
            schema=schema,
            bytes=size,
            partitions=partitions,
            oldest_transaction_seconds=oldest,
        )

    def is_writable(self) -> bool:
        return True

    def blob(self, name: str) -> PostgresBlob:
        return PostgresBlob(self._url, self._link.ask, name)

    def lease(self, name: str) -> PostgresLease | None:
        return take_lease(self._url, self._link, name)

    def leases(self) -> list[Holder]:
        if not self._there:  # else one line says that there is none
            with translated(self._url), connect(self._url, write=False) as connection:
                self._identity(connection, write=False, check=False)
            self._there = True
        return holders(self._link)

    def clock(self, own: Clock) -> Clock:
        return shared_clock(self._link, own)

    def folder(self, name: str) -> Path:
        from platformdirs import user_data_path

        return user_data_path("steno") / "records" / self._record_id() / name

    def place(self, name: str) -> str:
        from platformdirs import user_cache_path

        folder = user_cache_path("steno") / "records" / self._record_id()
        folder.mkdir(parents=True, exist_ok=True)
        return f"sqlite:///{folder / name}"

    def _record_id(self) -> str:
        row = self._link.ask("SELECT value FROM meta WHERE key = 'record_id'")
        if row is None:
            raise RecordNotFound(f"There is no record in {self}.")
        return bytes(row[0]).decode()

    def _found(self, connection: Connection) -> bool:
        """True if there is a record. Raises NotARecord if the schema is another's."""
        rows = connection.execute(
            "SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = 'steno' AND c.relkind IN ('r', 'p', 'v', 'm')"
        ).fetchall()
        names = {str(name) for (name,) in rows}
        if names and not names >= _TABLES:
            raise NotARecord(f"The schema steno of {self} is not a Steno record.")
        return bool(names)

    def _identity(self, connection: Connection, *, write: bool, check: bool) -> Identity:
        if not self._found(connection):
            raise RecordNotFound(f"There is no record in {self}: `steno record` or `steno import` makes one.")
        rows = connection.execute("SELECT key, value FROM steno.meta").fetchall()  # without rights 42501, not 42P01
        description = {str(key): bytes(value) for key, value in rows}
        revisions = self._revisions(connection)
        sealed = revisions == ["0003"] and self._is_sealed(connection)
        return read_identity(revisions, description, str(self), write=write, check=check, sealed=sealed)

    def _is_sealed(self, connection: Connection) -> bool:
        there = connection.execute("SELECT 1 WHERE to_regclass('sealed') IS NOT NULL").fetchone()
        return there is not None and connection.execute("SELECT 1 FROM sealed LIMIT 1").fetchone() is not None

    def _revisions(self, connection: Connection) -> list[str]:
        return [str(number) for (number,) in connection.execute("SELECT version_num FROM alembic_version").fetchall()]

    @contextmanager
    def _migrating(self) -> Iterator[tuple[Migrated, Connection]]:
        """A transaction of the only migrator, for Alembic and for the driver."""
        with translated(self._url):
            connection = connect(self._url, write=True)
            connection.autocommit = False
            made = create_engine("postgresql+psycopg://", creator=lambda: connection, poolclass=NullPool)
            try:
                with made.begin() as database:
                    connection.execute(PATIENT)
                    if self._found(connection):  # a lock that no reader can take
                        connection.execute("LOCK TABLE alembic_version IN SHARE ROW EXCLUSIVE MODE")
                    else:
                        connection.execute("SELECT pg_advisory_xact_lock(%s)", (_MAKER,))
                    yield database, connection
            except DBAPIError as error:
                raise error.orig if isinstance(error.orig, psycopg.Error) else error from None
            finally:
                connection.close()


STORE: Final = PostgresStore
