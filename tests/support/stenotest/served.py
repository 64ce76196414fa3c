"""Services for tests in the test's own process: what one sees, and several records behind one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import httpx
import pytest

from cli.wiring.app import App
from cli.wiring.http_service import assembled, serving_site
from engine.providers.registry import load_settings
from events.clock import SECOND
from events.store.store import store_at
from projections.api.problems import Routes
from projections.site.site import Member, RecordSet

if TYPE_CHECKING:
    from events.clock import Clock
    from projections.api.server import Server

PATIENCE = 120
"""Seconds that anything may take here: a crowded machine takes long, and a test that fails may."""


def isolated(record: Path, **settings: str) -> App:
    """One call of Steno that sees these settings (`api__cors` is `api.cors`) and nothing of who runs the tests."""
    app = App()
    app.flags = {"record": str(record), "api.port": "0"}
    app.flags |= {name.replace("__", "."): value for name, value in settings.items()}
    nobody = record.parent / "nobody"
    app.settings = load_settings(flags=app.flags, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody)
    return app


@dataclass
class Served:
    """A service that runs in this process."""

    url: str
    client: httpx.Client
    """Asks it, without a token and without following redirects."""
    record: Path
    server: Server
    _end: Callable[[], None] = field(repr=False)

    def stop(self) -> None:
        """End it in order; a second time does nothing."""
        self._end()


class ServeSite(Protocol):
    """`served_site({"a": path, "b": path}, **settings)`: several records behind one service."""

    def __call__(self, records: Mapping[str, Path | str], **settings: str) -> Served: ...


@contextmanager
def _serving_sites() -> Iterator[ServeSite]:
    with ExitStack() as every:
        patch = every.enter_context(pytest.MonkeyPatch.context())
        patch.setattr("projections.models.reader_pool.PATIENCE", PATIENCE * SECOND)
        patch.setattr("projections.models.projector._TIMEOUT", PATIENCE)

        def serve(records: Mapping[str, Path | str], **settings: str) -> Served:
            first = next(Path(one) for one in records.values() if "://" not in str(one))
            app = isolated(first, **settings)
            stack = every.enter_context(ExitStack())
            server = stack.enter_context(serving_site(app, {name: store_at(one) for name, one in records.items()}))
            client = stack.enter_context(httpx.Client(base_url=server.url_here, timeout=PATIENCE, trust_env=False))
            return Served(url=server.url_here, client=client, record=first, server=server, _end=stack.close)

        yield serve


@pytest.fixture
def served_site() -> Iterator[ServeSite]:
    """The real server of several records; all have ended when the test has."""
    with _serving_sites() as serve:
        yield serve


@pytest.fixture(scope="module")
def served_site_on() -> Iterator[ServeSite]:
    """As `served_site`, for a whole file of tests."""
    with _serving_sites() as serve:
        yield serve


@contextmanager
def _unserved(records: Mapping[str, Path], clock: Clock) -> Iterator[RecordSet]:
    with ExitStack() as stack:
        members = []
        for name, path in records.items():
            app = isolated(path)
            app.clock = clock
            service = assembled(app, path)
            stack.push(service.closing)
            stack.callback(service.pool.close)
            members.append(Member(name=name, service=service, app=Routes([])))
        yield RecordSet(tuple(members))


@pytest.fixture(scope="session")
def unserved() -> Callable[[Mapping[str, Path], Clock], AbstractContextManager[RecordSet]]:
    """`unserved({"a": path}, clock)`: the services of records that have their read models, without a server."""
    return _unserved
