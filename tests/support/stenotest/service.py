"""Services for tests in the test's own process, and their callers: tokens, refusals, requests as raw bytes."""

import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from steno.cli.wiring.app import App
from steno.engine.providers.registry import READINGS, load_settings
from steno.events.clock import Clock, RandomIds, SystemClock
from steno.events.store.record import Record
from steno.projections.api.server import Server
from steno.projections.api.token_store import Issuer, Role
from stenotest.command_line import SERVICE
from stenotest.waiting import LIMIT_S


def isolated(record: Path | str, **settings: str | None) -> App:
    """A call of Steno that sees these settings (`api__cors` is `api.cors`; None: as if it were not set) and nothing
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


# -- callers

RUN = {"configuration": {"type": "task", "commands": ["true"]}}
"""The body of a submission."""


def token(record: Path | str, role: str = "admin", name: str | None = None, *, clock: Clock | None = None) -> str:
    """The text of a new token of that record."""
    clock = clock or SystemClock()
    with Record.open(record, write=True, shapes=READINGS.shape, clock=clock) as opened:
        return Issuer(opened, clock, RandomIds()).create(role=Role(role), name=name, expires_at=None, by="tester")[1]


def revoke(record: Path | str, word: str) -> None:
    """Revoke a token by its name."""
    with Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as opened:
        Issuer(opened, SystemClock(), RandomIds()).revoke(word, by="tester")


def bearer(text: str) -> dict[str, str]:
    """The header in which a token is sent."""
    return {"Authorization": f"Bearer {text}"}


def problem(answer: httpx.Response, status: int, field: str | None = None) -> dict[str, object]:
    """The RFC 9457 problem of a refusal."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    assert body["title"]
    assert body["detail"]
    assert body.get("field") == field
    return body


def raw_answer(service: Served, request: bytes) -> bytes:
    """The raw answer to raw bytes, once the service closed the connection."""
    with closing(socket.create_connection(("127.0.0.1", service.server.port), timeout=LIMIT_S)) as client:
        client.sendall(request)
        pieces = b""
        while piece := client.recv(65536):
            pieces += piece
    return pieces
