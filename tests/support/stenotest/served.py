"""Services for tests in the test's own process, and what such a service sees."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import httpx

from cli.wiring.app import App
from engine.providers.registry import load_settings
from stenotest.command_line import SERVICE

if TYPE_CHECKING:
    from projections.api.server import Server

PATIENCE = 120
"""Seconds that anything may take here: a crowded machine takes long, and a test that fails may."""


def isolated(record: Path | str, **settings: str | None) -> App:
    """One call of Steno that sees these settings (`api__cors` is `api.cors`; None: as if it were not set) and nothing
    of who runs the tests.
    """
    app = App()
    app.flags = {"record": str(record), **SERVICE}
    app.flags |= {name.replace("__", "."): value for name, value in settings.items()}
    nobody = (record.parent if isinstance(record, Path) else Path("/")) / "nobody"
    app.settings = load_settings(flags=app.flags, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody)
    return app


@dataclass
class Served:
    """A service that runs in this process."""

    url: str
    client: httpx.Client
    """Asks it, without a token and without following redirects."""
    record: Path | str
    server: Server
    _end: Callable[[], None] = field(repr=False)

    def stop(self) -> None:
        """End it in order; a second time does nothing."""
        self._end()
