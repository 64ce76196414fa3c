"""verify: every changed byte that carries data is found, and named where it can be."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.records import START, MachineClock, StandingClock, poll_of, temporary_record

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SECOND
from steno.events.errors import StenoError
from steno.events.store.record import Batch, Head, Record
from steno.events.store.sqlite.opening import expected_schema, plain_sql

SHARED = HealthCheck.function_scoped_fixture
"""Every example writes the file of `tmp_path` again."""
TRIGGERS = {name: sql for name, (kind, _, sql) in expected_schema().items() if kind == "trigger"}
TABLES = ("events", "parts", "streams", "head", "meta", "alembic_version")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed record with polls that change, entries of a log, intents with ids, and more than one sealed stretch."""
    folder = tmp_path_factory.mktemp("original")
    with temporary_record(folder, shapes=READINGS.shape, clock=MachineClock()) as record:
        for number in range(90):
            moment = START + number * 5 * SECOND
            record.append_polls([poll_of(listing(number), at=moment)])
            if number % 3 == 0:
                entries = [{"id": f"e{entry}", "message": f"entry {entry}"} for entry in range(number // 3, -1, -1)][:5]
                record.append_polls([poll_of(msgspec.json.encode(entries), path="/api/events/list", at=moment)])
            intent = types.SubmitIntended(run_id=str(number), provider="dstack", name=f"name-{number}")
            record.append_many([Batch(f"run/{number % 5}", [intent])])
            record.append_many([Batch("run/x", [intent], ids=[f"{number + 1:032x}"])])
    assert {path.name for path in folder.iterdir()} <= {"record.db", "record.db.vault", "record.db.vault.lock"}
    return folder / "record.db"


def listing(number: int) -> bytes:
    runs = [
        {
            "id": f"{name}-of-a-run",
            "status": ("submitted", "running", "done")[number // 30],
            "cost": number / 100 if name == "a" else 0.5,
            "run_spec": {"run_name": name, "configuration": {"commands": [f"python {name}.py --with=arguments"] * 3}},
            "jobs": [],
        }
        for name in "ab"
    ]
    return msgspec.json.encode(runs)


def check(
    path: Path, expect: Head | None = None, after: Head | None = None
) -> tuple[list[tuple[int | None, str]], bool]:
    """(position, kind) of every damage; True where the record could not even be opened."""
    try:
        with Record.open(path, clock=StandingClock(), check=False) as record:
            verdict = record.verify(expect=expect, after=after)
    except StenoError:
        return [], True
    assert verdict.ok == (not verdict.damage)
    return [(damage.position, damage.kind) for damage in verdict.damage], False


def rows(path: Path) -> list[object]:
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        schema = [
            (*row[:4], plain_sql(row[4])) for row in connection.execute("SELECT * FROM sqlite_schema ORDER BY name")
        ]
        return [*(sorted(map(repr, connection.execute(f"SELECT * FROM {table}"))) for table in TABLES), schema]
    finally:
        connection.close()


@pytest.fixture
def edited(original: Path, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The record, opened by hand, without what protects it."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(original.read_bytes())
    connection = sqlite3.connect(copy, isolation_level=None)
    connection.execute("PRAGMA journal_mode = DELETE")
    for name in TRIGGERS:
        connection.execute(f"DROP TRIGGER {name}")
    yield connection
    connection.close()


def edited_copy(original: Path, copy: Path, sql: str, *given: object) -> Path:
    """A copy of a record in which one statement was executed by hand; its triggers are back."""
    if original != copy:
        copy.write_bytes(original.read_bytes())
    with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
        for name in TRIGGERS:
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(sql, given)
        for trigger in TRIGGERS.values():
            connection.execute(trigger)
    return copy


def verdict_of(connection: sqlite3.Connection) -> list[tuple[int | None, str]]:
    """The verdict once the triggers are back."""
    (path,) = [row[2] for row in connection.execute("PRAGMA database_list")]
    for sql in TRIGGERS.values():
        connection.execute(sql)
    connection.close()
    return check(Path(path))[0]


def test_an_untouched_record_is_whole(original: Path) -> None:
    """Also for somebody who saved an earlier head."""
    assert check(original) == ([], False)


@settings(suppress_health_check=[*settings.default.suppress_health_check, SHARED])
@given(data=st.data(), mask=st.integers(1, 255))
@pytest.mark.slow
def test_a_changed_byte_is_found_if_it_changes_anything(
    data: st.DataObject, mask: int, original: Path, tmp_path: Path
) -> None:
    """Any byte, any change: found, or no row of any table and nothing of the schema is different."""
    content = bytearray(original.read_bytes())
    offset = data.draw(st.integers(0, len(content) - 1))
    content[offset] ^= mask
    path = tmp_path / "flipped.db"
    path.write_bytes(content)
    for beside in ("-wal", "-shm"):
        if os.path.exists(f"{path}{beside}"):  # noqa: PTH110
            os.unlink(f"{path}{beside}")  # noqa: PTH108
    damage, refused = check(path)
    if not damage and not refused:
        assert rows(path) == rows(original)


def test_damage_behind_damage_is_found_too(edited: sqlite3.Connection) -> None:
    """After a break the chain is picked up again at the next whole hash."""
    edited.execute("UPDATE events SET took = took + 1 WHERE position IN (20, 130, 131, 260)")
    assert [position for position, kind in verdict_of(edited) if kind == "chain"] == [20, 130, 260]


def test_a_changed_part_is_named_by_the_first_event_that_uses_it(edited: sqlite3.Connection) -> None:
    """Bodies are shared: the first position that shows the damage is the one to look at."""
    (body,) = edited.execute("SELECT body_id FROM events WHERE position = 1").fetchone()
    edited.execute("UPDATE parts SET data = CAST(data AS BLOB) || x'00' WHERE id = ?", (body,))
    assert (1, "body") in verdict_of(edited)


def test_a_removed_part_is_missed(edited: sqlite3.Connection) -> None:
    """A missing body is damage like a changed body."""
    (body,) = edited.execute("SELECT body_id FROM events WHERE position = 3").fetchone()
    edited.execute("DELETE FROM parts WHERE id = ?", (body,))
    assert any(kind in {"body", "chain"} and position is not None for position, kind in verdict_of(edited))


@pytest.mark.parametrize("position", [1, 2, 99, 100, 101])
def test_a_removed_event_is_missed(position: int, edited: sqlite3.Connection) -> None:
    """Positions have no gaps."""
    edited.execute("DELETE FROM events WHERE position = ?", (position,))
    assert (position, "missing") in verdict_of(edited)


def test_a_cut_tail_is_missed(edited: sqlite3.Connection) -> None:
    """The head says how far the record went."""
    (last,) = edited.execute("SELECT position FROM head").fetchone()
    edited.execute("DELETE FROM events WHERE position > ?", (last - 3,))
    assert (last - 2, "missing") in verdict_of(edited)


def test_an_event_behind_the_head_is_no_event(edited: sqlite3.Connection) -> None:
    """Nobody can add one without the head."""
    (last,) = edited.execute("SELECT position FROM head").fetchone()
    edited.execute("INSERT INTO events SELECT position + 1, stream_id, version + 1, kind, NULL, observed_at, took, "
                   "recorded_after, scope_id, body_id, data, hash, clock FROM events "
                   "WHERE position = ?", (last,))  # fmt: skip
    assert (last + 1, "chain") in verdict_of(edited)


def test_a_tail_rewritten_with_its_head_is_found_against_a_saved_head(original: Path, tmp_path: Path) -> None:
    """The chain alone cannot know that it was longer; a head that was written down can."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(original.read_bytes())
    with Record.open(original, clock=StandingClock()) as record:
        saved = record.head()
        middle = record.verify(expect=saved)
    assert middle.ok
    with temporary_record(tmp_path, name="other.db") as record:
        record.append_many([Batch("run/1", [types.StopSucceeded(run_id="1", provider="local")])])
        shorter = record.head()
    assert check(tmp_path / "other.db", expect=saved) == ([(saved.position, "expect")], False)
    assert check(tmp_path / "other.db", expect=shorter) == ([], False)
    assert check(tmp_path / "other.db", expect=Head(position=0, hash=shorter.hash))[0] == [(0, "expect")]


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("INSERT INTO streams (name, version) VALUES ('run/z', 0)", "stream"),
        ("DELETE FROM head", "head"),
        ("INSERT INTO parts VALUES (9999, x'00', NULL, 0, 0, x'')", "body"),
        ("INSERT INTO meta VALUES ('more', x'')", "meta"),
        ("CREATE TABLE more (a)", "schema"),
        ("DROP INDEX events_stream", "schema"),
        ("CREATE TRIGGER more AFTER INSERT ON events BEGIN SELECT 1; END", "trigger"),
    ],
)
def test_what_is_beside_the_events_is_held_too(sql: str, kind: str, edited: sqlite3.Connection) -> None:
    """Streams, head, description and schema are part of the record; `test_every_column` edits what is there."""
    edited.execute(sql)
    assert kind in {damage for _, damage in verdict_of(edited)}


def test_a_changed_description_breaks_the_chain_from_its_start(edited: sqlite3.Connection) -> None:
    """The first hash holds who the record is and when it was made."""
    edited.execute("UPDATE meta SET value = CAST('1' AS BLOB) WHERE key = 'created_at'")
    assert (1, "chain") in verdict_of(edited)


def test_a_missing_trigger_is_named(original: Path, tmp_path: Path) -> None:
    """Without its triggers a record is no longer append-only."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(original.read_bytes())
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("DROP TRIGGER events_no_update")
    assert check(copy)[0] == [(None, "trigger")]


@pytest.mark.parametrize("sql", ["UPDATE events SET took = 1", "DELETE FROM parts", "UPDATE meta SET value = x''"])
def test_the_triggers_refuse_change(sql: str, original: Path, tmp_path: Path) -> None:
    """Whoever opens the file by hand must first take the triggers away."""
    copy = tmp_path / "copy.db"
    copy.write_bytes(original.read_bytes())
    with closing(sqlite3.connect(copy)) as connection, pytest.raises(sqlite3.IntegrityError, match="append-only"):
        connection.execute(sql)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE events SET observed_at = observed_at + 1 WHERE position = {}",
        "UPDATE events SET hash = zeroblob(8) WHERE position = {}",
        "DELETE FROM events WHERE position = {}",
        "UPDATE parts SET data = data || x'00' WHERE id = (SELECT body_id FROM events WHERE position = {})",
    ],
)
def test_after_a_saved_head_the_rest_is_checked_as_in_a_whole_check(damage: str, tmp_path: Path) -> None:
    """Whatever the head. What was damaged before it is not looked for, unless its own hash no longer follows."""
    heads, changed = [], 0
    with temporary_record(tmp_path, shapes=READINGS.shape) as record:
        for number in range(45):
            record.append_polls([poll_of(listing(number * 2), at=START + number * 5 * SECOND)])
            heads.append(record.head())
            if number == 30:
                changed = record.head().position
                while next(record.read(after=changed - 1, limit=1)).stream.startswith("run/"):
                    changed -= 1
    path = tmp_path / "record.db"
    assert [check(path, after=head) for head in heads] == [([], False)] * len(heads)
    edited_copy(path, path, damage.format(changed))
    whole, _ = check(path)
    assert whole
    for head in heads:
        seen, _ = check(path, after=head)
        if head.position < changed:
            assert (seen[0], set(seen) <= set(whole)) == (whole[0], True), head
        else:
            later = {(position, kind) for position, kind in seen if kind == "body" and position > head.position}
            assert set(seen) in ({*whole, (head.position, "expect")}, later), head


def test_after_a_saved_head_nothing_else_is_read(original: Path, tmp_path: Path) -> None:
    """A broken row to which no later event leads changes nothing: each night costs the last day only."""
    with Record.open(original, clock=StandingClock()) as record:
        head = record.head()
    copy = tmp_path / "copy.db"
    copy.write_bytes(original.read_bytes())
    with Record.open(copy, clock=StandingClock(), write=True, shapes=READINGS.shape) as record:
        record.append_polls([poll_of(listing(89), at=START + 500 * SECOND)])
    edited_copy(copy, copy, "UPDATE streams SET version = 99 WHERE name = 'run/3'")
    assert check(copy)[0]
    assert check(copy, after=head) == ([], False)


@pytest.mark.parametrize("given", ["expect", "after"])
def test_a_head_behind_an_event_that_cannot_be_read_is_not_confirmed(
    given: str, original: Path, tmp_path: Path
) -> None:
    """Its hash is walked to from the last whole one."""
    with Record.open(original, clock=StandingClock()) as record:
        head = record.head()
    assert head.position % 100 > 2
    sql = "UPDATE events SET stream_id = 99999 WHERE position = ?"
    copy = edited_copy(original, tmp_path / "copy.db", sql, head.position - 1)
    damage, refused = check(copy, **{given: head})
    assert not refused
    assert (head.position, "expect") in damage
    assert (head.position - 1, "chain") in damage
