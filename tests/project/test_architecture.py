"""The page about the architecture names files that exist, and every folder of the product."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NAMED = re.compile(r"`((?:cli|engine|events|projections)/[\w/.]*)`")


def test_every_file_and_folder_it_names_exists():
    missing = [name for name in NAMED.findall(PAGE) if not (ROOT / name).exists()]
    assert not missing


def test_it_names_every_room():
    """The folders below the four packages, two levels deep at most."""
    rooms = {
        f"{path.parent.relative_to(ROOT)}/"
        for package in ("cli", "engine", "events", "projections")
        for path in (ROOT / package).glob("*/__init__.py")
    }
    assert rooms <= set(NAMED.findall(PAGE)), sorted(rooms - set(NAMED.findall(PAGE)))


def test_the_store_port_knows_no_database():
    """Only `events/store/sqlite/` speaks to SQLite, and `events/store/postgres/` to PostgreSQL."""
    words = re.compile(r"sqlite3|PRAGMA|BEGIN|sqlite_schema|psycopg\.|pg_|sqlalchemy\.dialects")
    assert not [path.name for path in (ROOT / "events/store").glob("*.py") if words.search(path.read_text())]
