"""Law: verify in pieces finds what one walk finds, in the same order, of whatever was damaged."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.inline_pool import InlinePool
from stenotest.records import START, StandingClock, poll_of

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SECOND
from steno.events.errors import StenoError
from steno.events.store.record import Batch, Head, Record
from steno.events.store.sqlite.opening import expected_schema
from steno.events.store.store import store_at
from steno.events.store.verify_pieces import ApartVerifier

if TYPE_CHECKING:
    pass

pytestmark = pytest.mark.slow

POLLS = 300
TRIGGERS = {name: sql for name, (kind, _, sql) in expected_schema().items() if kind == "trigger"}
SHARED = [*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture]
"""Every example empties the folder of `tmp_path` first."""


def listing(number: int) -> bytes:
    runs = [
        {"id": f"{name}-of-a-run", "status": ("submitted", "running", "done")[number // 100], "cost": number // 7,
         "run_spec": {"run_name": name, "configuration": {"commands": [f"python {name}.py --with=arguments"] * 3}}}
        for name in "ab"
    ]  # fmt: skip
    return msgspec.json.encode(runs)


def fill(where: str | Path) -> None:
    """Polls of two sources that change, and events of our own, some with ids."""
    with Record.open(where, clock=StandingClock(), write=True, create=True, shapes=READINGS.shape) as record:
        for first in range(0, POLLS, 50):
            for source in ("dstack/a", "dstack/b"):
                record.append_polls(
                    [
                        poll_of(listing(number), at=START + number * SECOND, source=source)
                        for number in range(first, first + 50)
                    ]
                )
            intent = types.SubmitIntended(run_id=str(first), provider="dstack", name=f"name-{first}")
            record.append_many([Batch(f"run/{first}", [intent], ids=[f"{first + 1:032x}"])])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a closed record."""
    folder = tmp_path_factory.mktemp("plain")
    fill(folder / "record.db")
    return folder


def compare(where: str | Path, size: int, expect: Head | None = None) -> bool:
    """Both ways find the same; whether that is nothing. What cannot be opened is not verified."""
    try:
        opened = Record.open(where, clock=StandingClock(), check=False)
    except StenoError:
        return False
    with opened as record:
        whole = record.verify(expect=expect)
        assert record.verify(expect=expect, pool=InlinePool(size)) == whole
    return whole.ok


def proven(where: str | Path) -> bool:
    """True if the pieces alone prove it whole."""
    store = store_at(where)
    with closing(store.open(write=False, create=False, check=False, clock=StandingClock())) as session:
        return ApartVerifier(session, None, None).apart(store.url, InlinePool(3), None) is not None


edits = st.one_of(
    st.tuples(
        st.sampled_from((
            "UPDATE OR IGNORE events SET version = version + 1 WHERE position = {}",
            "UPDATE events SET took = took + 1 WHERE position = {}",
            "UPDATE events SET stream_id = 1 WHERE position = {}",
            "UPDATE events SET body_id = 3 WHERE position = {}",
            "UPDATE events SET scope_id = 99999 WHERE position = {}",
            "UPDATE events SET hash = substr(hash, 1, 7) || x'00' WHERE position = {}",
            "UPDATE events SET hash = x'00' WHERE position = {}",
            "UPDATE events SET kind = 77 WHERE position = {}",
            "UPDATE events SET data = 'text' WHERE position = {}",
            "DELETE FROM events WHERE position = {}",
            "DELETE FROM events WHERE position > {}",
        )),
        st.one_of(st.integers(1, 2 * POLLS + 60), st.sampled_from((99, 100, 101, 200, 330, 331, 440, 600))),
    ),
    st.tuples(
        st.sampled_from((
            "UPDATE parts SET data = CAST(data AS BLOB) || x'00' WHERE id = {}",
            "UPDATE parts SET commitment = x'{:064x}' WHERE id = {}",
            "UPDATE parts SET crc = crc + 1 WHERE id = {}",
            "UPDATE parts SET base_id = id WHERE id = {}",
            "DELETE FROM parts WHERE id = {}",
            "INSERT OR IGNORE INTO parts VALUES (-{}, x'00', NULL, 0, 0, x'')",
            "INSERT OR IGNORE INTO parts VALUES (9{}, x'00', NULL, 0, 0, x'')",
        )),
        st.integers(1, 80),
    ),
    st.tuples(
        st.sampled_from((
            "UPDATE streams SET version = version + 1 WHERE id = {}",
            "UPDATE streams SET item_id = 1 WHERE id = {}",
            "UPDATE head SET position = position - {}",
            "UPDATE head SET hash = x'0{}'",
            "DELETE FROM head",
            "UPDATE meta SET value = CAST('1' AS BLOB) WHERE key = 'created_at'",
            "UPDATE alembic_version SET version_num = '000{}'",
            "CREATE TABLE more_{} (a)",
        )),
        st.integers(1, 5),
    ),
)  # fmt: skip


def damage(path: Path, edits_made: list[tuple[str, int]]) -> None:
    """Edit the file by hand, without what protects it."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        for name in TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")
        for sql, number in edits_made:
            with suppress(sqlite3.Error):  # an index refuses it, or the table is there
                connection.execute(sql.format(number, number))
        for sql in TRIGGERS.values():
            connection.execute(sql)


def copied(original: Path, to: Path) -> Path:
    """The record's file in a copy of its folder."""
    shutil.rmtree(to, ignore_errors=True)
    shutil.copytree(original, to)
    return to / "record.db"


def test_a_whole_record_is_proven_by_its_pieces(plain: Path) -> None:
    """With any number of pieces; a head that it does not have is missed."""
    where = plain / "record.db"
    assert proven(where)
    for size in (1, 2, 5, 40):
        assert compare(where, size)
    with Record.open(where, clock=StandingClock()) as record:
        head = record.head()
    assert compare(where, 3, head)
    assert not compare(where, 3, Head(position=head.position - 1, hash=head.hash))


@settings(max_examples=settings.default.max_examples // 2, suppress_health_check=SHARED)
@given(changes=st.lists(edits, min_size=1, max_size=3), size=st.integers(1, 9))
def test_what_was_edited_is_found_alike(changes: list[tuple[str, int]], size: int, plain: Path, tmp_path: Path) -> None:
    """Rows of any table, in any place: also where pieces meet."""
    path = copied(plain, tmp_path / "copy")
    damage(path, changes)
    compare(path, size)


@settings(max_examples=8, suppress_health_check=SHARED)
@given(data=st.data(), mask=st.integers(1, 255))
def test_a_flipped_byte_is_found_alike(data: st.DataObject, mask: int, plain: Path, tmp_path: Path) -> None:
    """If the database can be opened then."""
    path = copied(plain, tmp_path / "copy")
    content = bytearray(path.read_bytes())
    content[data.draw(st.integers(4096, len(content) - 1))] ^= mask
    path.write_bytes(content)
    compare(path, 4)


def test_a_record_on_postgresql_is_checked_alike(postgres_url: str) -> None:
    """Whole, and with one damage after the other."""
    fill(postgres_url)
    assert proven(postgres_url)
    assert compare(postgres_url, 3)
    for sql in (
        "UPDATE events SET took = took + 1 WHERE position = 150",
        "UPDATE parts SET data = data || '\\x00' WHERE id = 9",
        "UPDATE streams SET version = version + 1 WHERE id = 2",
        "DELETE FROM events WHERE position = 300",
    ):
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            connection.execute("SET search_path = steno")
            connection.execute("SET session_replication_role = replica")
            connection.execute(sql)
        assert not compare(postgres_url, 3)
