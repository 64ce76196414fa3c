"""What is changed in the schema of a record: tables, columns, indexes, triggers, functions; compared with
`migrations/postgres/schema.txt`, or `schema-REVISION.txt` of an older one, which a test holds equal to what the
migrations make.
"""

from collections.abc import Iterator
from typing import Any, Final

import psycopg

from events.store.postgres.connection import Connection
from events.store.schema import REVISIONS, migrations_folder

Line = tuple[str, str, str]  # relation, kind, text

_DESCRIBE: Final = r"""
WITH own AS (
    SELECT c.oid, c.relname::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
     WHERE n.nspname = 'steno' AND c.relkind IN ('r', 'p', 'v', 'm'))
SELECT own.name, 'column', a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
       || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
  FROM own JOIN pg_attribute a ON a.attrelid = own.oid AND a.attnum > 0 AND NOT a.attisdropped
UNION ALL
SELECT own.name, 'index', CASE WHEN i.indisunique THEN 'UNIQUE ' ELSE '' END
       || regexp_replace(pg_get_indexdef(i.indexrelid), '^.* USING ', '')
       || CASE WHEN i.indisvalid THEN '' ELSE ' invalid' END
  FROM own JOIN pg_index i ON i.indrelid = own.oid
UNION ALL
SELECT own.name, 'trigger', regexp_replace(pg_get_triggerdef(t.oid), ' ON \S+ ', ' ') || ' ' || t.tgenabled::text
  FROM own JOIN pg_trigger t ON t.tgrelid = own.oid AND NOT t.tgisinternal
UNION ALL
SELECT 'function', 'function', p.proname || ' ' || md5(p.prosrc) || CASE WHEN p.prosecdef THEN ' definer' ELSE '' END
  FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'steno'
"""

_RANGES: Final = "SELECT name, format('FOR VALUES FROM (''%s'') TO (''%s'')', first, past) FROM ranges"
_ATTACHED: Final = (
    "SELECT c.oid::regclass::text, pg_get_expr(c.relpartbound, c.oid) "
    "FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'events'::regclass"
)


def damage(connection: Connection) -> Iterator[tuple[None, str, str]]:
    """(None, kind, detail) of each deviation from the schema of the record's revision."""
    try:
        found = describe(connection)
        ranges = {str(name): str(bound) for name, bound in connection.execute(_RANGES.encode()).fetchall()}
        version = "".join(str(one) for (one,) in connection.execute("SELECT version_num FROM alembic_version"))
        parts = {str(name): str(bound) for name, bound in connection.execute(_ATTACHED.encode()).fetchall()}
        is_open = connection.execute("SELECT FROM head h WHERE to_jsonb(h) ->> 'open' IS NOT NULL").fetchone()
    except psycopg.DatabaseError as error:
        yield None, "page", f"reading stopped: {error}"
        return
    if is_open is not None:  # rows could be inserted at any time
        yield None, "schema", "head: open is set, though nobody appends"
    for name, bound in sorted(ranges.items() ^ parts.items()):
        which = "as the table ranges has it" if ranges.get(name) == bound else "as it is attached"
        yield None, "schema", f"partition {name} {bound}, {which}, is not so in the other"
    expected: dict[str, set[tuple[str, str]]] = {}
    for relation, kind, text in known(version):
        expected.setdefault(relation, set()).add((kind, text))
    template = expected.pop("events_1")
    expected |= dict.fromkeys(parts, template)
    actual: dict[str, set[tuple[str, str]]] = {}
    for relation, kind, text in found:
        actual.setdefault(relation, set()).add((kind, text))
    for relation in sorted(expected.keys() | actual.keys()):
        before, now = expected.get(relation, set()), actual.get(relation, set())
        for kind, text in sorted(before - now):
            yield None, "trigger" if kind == "trigger" else "schema", f"{relation}: {kind} {text} is missing or changed"
        for kind, text in sorted(now - before):
            yield None, "trigger" if kind == "trigger" else "schema", f"{relation}: {kind} {text} does not belong here"


def known(version: str) -> list[Line]:
    """What the migrations up to a revision make."""
    name = f"schema-{version}.txt" if version in REVISIONS[:-1] else "schema.txt"
    lines = (migrations_folder() / "postgres" / name).read_text().splitlines()
    return [(relation, kind, text) for relation, kind, text in (line.split("\t") for line in lines)]


def describe(connection: Connection) -> list[Line]:
    """Everything in the schema of a record, in a form that all versions of the server share."""
    rows: list[Any] = connection.execute(_DESCRIBE.encode()).fetchall()
    return sorted((str(relation), str(kind), str(text)) for relation, kind, text in rows)
