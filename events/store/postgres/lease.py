"""The company of a record on PostgreSQL: blobs and leases, rows of its schema."""

import os
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import psycopg
from psycopg import errors

from steno.events.clock import SECOND, SKEW, Clock, SteadyClock, boot_time
from steno.events.store.postgres.connection import PATIENT, Connection, connect, end_stalled, is_lost, shown, translated
from steno.events.store.store import Holder, Lease, new_owner, since_of, worker_of

LEASE_LASTS: Final = 6.0  # seconds after which a silent holder has lost it; who takes over waits that long
_RENEWED: Final = 1.5  # seconds between renewals
_MARGIN: Final = 1.0  # seconds before the end from which the holder itself no longer trusts it
_SURE: Final = int((LEASE_LASTS - _MARGIN) * SECOND)


class Link:
    """A connection that many threads use in turn, made when it is needed and again when it broke."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._process = 0

    def ask(self, text: str, *given: object) -> tuple[Any, ...] | None:
        """The first row of a statement that may be run twice. Raises what `translated` says."""
        return next(iter(self.rows(text, *given)), None)

    def rows(self, text: str, *given: object) -> list[tuple[Any, ...]]:
        with self._lock, translated(self._url):
            if self._process != os.getpid():
                self._connection, self._process = None, os.getpid()
            for last in (False, True):
                try:
                    if self._connection is None or self._connection.closed:
                        self._connection = connect(self._url, write=True)
                    cursor = self._connection.execute(text.encode(), given, binary=True)
                    return cursor.fetchall() if cursor.description is not None else []
                except psycopg.Error as error:
                    again = not last and self._connection is not None and (is_lost(error) or self._freed(error))
                    if self._connection is not None and (again or isinstance(error, errors.ReadOnlySqlTransaction)):
                        self._connection.close()  # the next one may find the primary
                    if not again:
                        raise
                except BaseException:
                    # A signal raised in the middle of its answers: what it says next answers something else.
                    if self._connection is not None:
                        self._connection.close()
                    raise
        return []

    def _freed(self, error: psycopg.Error) -> bool:
        waited = isinstance(error, errors.LockNotAvailable)
        return waited and self._connection is not None and end_stalled(self._connection)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None and self._process == os.getpid():
                self._connection.close()
            self._connection = None

    def __del__(self) -> None:
        self.close()


class PostgresBlob:
    """`ask` gives the first row of a statement."""

    def __init__(self, url: str, ask: Callable[..., tuple[Any, ...] | None], name: str) -> None:
        self._url = url
        self._ask = ask
        self._name = name
        self._kind = name if name == "tokens" else "blob"  # the tokens have a table of their own, and rights
        self._row = f"FROM {self._kind.removesuffix('s')}s WHERE name = %s AND changes > 0"

    def __str__(self) -> str:
        return f"{self._name} of {shown(self._url)}"

    def stamp(self) -> object:
        row = self._ask(f"SELECT changes {self._row}", self._name)
        return None if row is None else row[0]

    def read(self) -> bytes | None:
        row = self._ask(f"SELECT content {self._row}", self._name)
        return None if row is None else bytes(row[0])

    def replace(self, content: bytes, *, durable: bool = True) -> None:  # noqa: ARG002 - the server decides for all
        self._ask(f"SELECT put_{self._kind}(%s, %s)", self._name, content)

    @contextmanager
    def locked(self) -> "Iterator[PostgresBlob]":
        with self._in_transaction() as (blob, ask):
            ask(f"SELECT hold_{self._kind}(%s, true)", self._name)
            yield blob

    @contextmanager
    def try_locked(self) -> "Iterator[PostgresBlob | None]":
        with self._in_transaction() as (blob, ask):
            row = ask(f"SELECT hold_{self._kind}(%s, false)", self._name)
            yield blob if row is not None and row[0] else None

    @contextmanager
    def _in_transaction(self) -> "Iterator[tuple[PostgresBlob, Callable[..., tuple[Any, ...] | None]]]":
        """A transaction, which the server ends if this process is cut off or stands still."""
        # A connection of its own: a block in another thread of this process waits too.
        with translated(self._url):
            own = connect(self._url, write=True)

        def ask(text: str, *given: object) -> tuple[Any, ...] | None:
            with translated(self._url):
                cursor = own.execute(text.encode(), given, binary=True)
                return cursor.fetchone() if cursor.description is not None else None

        with closing(own):
            ask("BEGIN")
            ask(PATIENT)
            yield PostgresBlob(self._url, ask, self._name), ask
            ask("COMMIT")


class PostgresLease(Lease):
    """A row of `leases`, renewed by a thread of its own until it is released, lost, or this process ends.

    - The server gives the row to one process, if it is free or expired by the server's clock, with a larger token.
    - The holder renews it and trusts it until `_MARGIN` before its end, counted by boot time from before the request:
      it stops before another process can start. `valid` is checked before each round and each call to a provider.
    - An append is fenced: it names the tokens of its leases, and the server refuses it (`LeaseLost`) once another
      process took one of them. The next holder finds an intent without an outcome, and looks before it calls.
    """

    def __init__(self, url: str, name: str, owner: uuid.UUID, token: int, taken: int) -> None:
        super().__init__()
        self.name = name
        self._owner = owner
        self.token = token
        self._link = Link(url)
        self._sure_until = taken + _SURE
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._keep, name=f"lease {name}", daemon=True)
        self._thread.start()
        self.callback(self._free)

    @property
    def valid(self) -> bool:
        return not self._over.is_set() and boot_time() < self._sure_until

    def _keep(self) -> None:
        while not self._over.wait(_RENEWED):
            before = boot_time()
            try:
                kept = self._renew(LEASE_LASTS)
            except Exception:  # noqa: BLE001, S112 - the server is away: it is asked again, and `valid` says how it stands
                continue
            if not kept:
                self._over.set()
            self._sure_until = before + _SURE

    def _renew(self, seconds: float) -> bool:
        text = "SELECT renew_lease(%s, %s, %s::bigint, make_interval(secs => %s::float8))"
        row = self._link.ask(text, self.name, self._owner, self.token, seconds)
        return row is not None and bool(row[0])

    def _free(self) -> None:
        lost = self._over.is_set()
        self._over.set()
        self._thread.join()
        try:
            if not lost:
                self._renew(0)
        except Exception:  # noqa: BLE001, S110 - it expires by itself
            pass
        self._link.close()


def take_lease(url: str, link: Link, name: str) -> PostgresLease | None:
    before, owner = boot_time(), new_owner()
    text = "SELECT take_lease(%s, %s, %s::bigint, %s, make_interval(secs => %s::float8))"
    row = link.ask(text, name, owner, os.getpid(), socket.gethostname(), LEASE_LASTS)
    return None if row is None or row[0] is None else PostgresLease(url, name, owner, int(row[0]), before)


def holders(link: Link) -> list[Holder]:
    rows = link.rows(
        "SELECT name, process, host, owner, token, extract(epoch FROM expires - clock_timestamp())::float8 "
        "FROM leases ORDER BY name"
    )
    return [
        Holder(
            name=name,
            process=process,
            host=host,
            worker=worker_of(owner),
            token=token,
            since=since_of(owner),
            seconds_left=left,
        )
        for name, process, host, owner, token, left in rows
    ]


def shared_clock(link: Link, own: Clock) -> Clock:
    """The server's time, counted on by boot time; `own` if both clocks are equal."""
    began = own.now()
    row = link.ask("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    ended = own.now()
    if row is None or began - SKEW <= row[0] <= ended + SKEW:
        return own
    return SteadyClock(own.own if isinstance(own, SteadyClock) else own, int(row[0]) - (began + ended) // 2)
