"""An empty database of the server's newest schema: `python -m stenolab.server.bake`, into DSTACK_SERVER_DIR.

Migrating one takes dstack five seconds; the lab does it once per environment and starts every server from a copy.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sqlite3
from typing import Any


def main() -> None:
    """Makes `data/sqlite.db`."""
    settings = importlib.import_module("dstack._internal.server.settings")
    database = settings.SERVER_DIR_PATH / "data" / "sqlite.db"
    database.parent.mkdir(parents=True, exist_ok=True)
    asyncio.run(_migrate(importlib.import_module("dstack._internal.server.db")))
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")  # one file to copy, a tenth of the size


async def _migrate(database: Any) -> None:
    await database.migrate()
    await database.get_db().engine.dispose()


if __name__ == "__main__":
    main()
