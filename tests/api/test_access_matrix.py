"""Every route for every caller: one table of who may do what, held against the application's own routes."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest
from starlette.routing import Route, Router
from stenotest.frozen_time import Hands

from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.store.record import Record
from steno.projections.api.token_store import Issuer, Role
from steno.projections.dashboard.routes import PAGES

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from conftest import Serve, Served

READ, SUBMIT, ADMIN, OPEN = "read", "submit", "admin", "open"
TABLE: Final = {
    **dict.fromkeys(PAGES, OPEN),
    "/assets/{version}/{name:path}": OPEN,
    "/healthz": OPEN,
    "/readyz": OPEN,
    "/api/session": OPEN,
    "/api/tokens": ADMIN,
    "/api/tokens/{id}": ADMIN,
}
"""The role that GET and HEAD of a route need; any other route needs `read`."""
CHANGES: Final = {
    ("POST", "/api/runs"): SUBMIT,
    ("POST", "/api/runs/{id}/rerun"): SUBMIT,
    ("POST", "/api/runs/{id}/stop"): SUBMIT,
    ("POST", "/api/amd/submit"): SUBMIT,
    ("POST", "/api/vms/{id}/stop"): ADMIN,
    ("POST", "/api/levers"): ADMIN,
    ("DELETE", "/api/levers/{id}"): ADMIN,
    ("POST", "/api/budget/moves"): ADMIN,
    ("POST", "/api/tokens"): ADMIN,
    ("DELETE", "/api/tokens/{id}"): ADMIN,
    ("POST", "/api/session"): OPEN,
    ("DELETE", "/api/session"): OPEN,
}
"""The role that a change needs."""
METHODS: Final = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
COVERS: Final = {READ: {READ}, SUBMIT: {READ, SUBMIT}, ADMIN: {READ, SUBMIT, ADMIN}}
UNKNOWN: Final = ("revoked", "expired", "unknown", "garbage", "cut", "basic", "bare", "none")


def needed(method: str, path: str) -> str:
    """The role that a request needs by the tables; a change that is not listed needs `admin`, of a run `submit`."""
    if method in {"GET", "HEAD", "OPTIONS"}:
        return TABLE.get(path, READ)
    if path in {"/api/session", "/healthz", "/readyz"}:
        return OPEN  # what else they are asked is 405
    return CHANGES.get((method, path)) or (SUBMIT if path.startswith(("/api/runs", "/api/amd/submit")) else ADMIN)


@pytest.fixture
def callers(hands: Hands, served: Serve, town: Path) -> tuple[Served, dict[str, dict[str, str]]]:
    """A service beyond loopback, and the headers of every kind of caller."""
    clock = SystemClock()
    with Record.open(town, write=True, shapes=READINGS.shape, clock=clock) as record:
        issuer = Issuer(record, clock, RandomIds())

        def made(role: str, name: str, expires_at: int | None = None) -> str:
            return issuer.create(role=Role(role), name=name, expires_at=expires_at, by="tester")[1]

        tokens = {role: made(role, role) for role in COVERS}
        tokens["revoked"] = made(ADMIN, "revoked")
        issuer.revoke("revoked", by="tester")
        tokens["expired"] = made(ADMIN, "expired", clock.now() + SECOND // 100)
    tokens["unknown"] = "steno_0123456789ab_" + "A" * 43
    tokens["garbage"] = "%00 '\"<>"
    tokens["cut"] = tokens[ADMIN][:-1]
    headers = {name: {"Authorization": f"Bearer {text}"} for name, text in tokens.items()}
    headers |= {"basic": {"Authorization": f"Basic {tokens[ADMIN]}"}, "bare": {"Authorization": tokens[ADMIN]}}
    service = served(town, api__host="0.0.0.0", api__submit_rate="off", kernel__unsafe_local="true")
    for role in COVERS:
        answer = service.client.post("/api/session", json={"token": tokens[role]})
        name, _, rest = answer.headers["set-cookie"].partition("=")
        headers[f"{role} session"] = {"Cookie": f"{name}={rest.partition(';')[0]}"}
    service.client.cookies.clear()
    hands.later(0.02)  # one token expires
    return service, {**headers, "none": {}}


def routed(service: Served) -> set[tuple[str, str]]:
    """(method, path) of every route of the application."""
    app: Any = service.server._uvicorn.config.app
    while not isinstance(app, Router):
        app = app._app
    routes = (route for route in app.routes if isinstance(route, Route))
    return {(method, route.path) for route in routes for method in route.methods or ()}


def head_of(service: Served, method: str, path: str, headers: dict[str, str]) -> httpx.Response:
    """An answer; of a stream, its head."""
    content = {"content": b"{}"} if method not in {"GET", "HEAD", "OPTIONS"} else {}
    with service.client.stream(
        method, path, headers={"Content-Type": "application/json", **headers}, **content
    ) as answer:
        if "content-length" in answer.headers:
            answer.read()  # the next request goes on the same connection
        return answer


def test_every_change_has_its_entry(callers: tuple[Served, dict[str, dict[str, str]]]) -> None:
    """A new command fails here until the table says who may use it."""
    reads = {"GET", "HEAD", "OPTIONS"}
    assert {(method, path) for method, path in routed(callers[0]) if method not in reads} == set(CHANGES)


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"])
def test_each_caller_gets_what_its_role_allows(callers: tuple[Served, dict[str, dict[str, str]]], whole: bool) -> None:
    """401 for whoever is not known, 403 for a role that is too small, else neither; all methods, all routes.

    What a route does not have is asked by two kinds of caller, unless it is to be the whole table.
    """
    service, kinds = callers
    count = 0
    paths = {path for _, path in routed(service)}
    for path in sorted(paths, key=lambda path: path == "/api/session"):  # last: its DELETE ends the sessions
        at = re.sub(r"\{[^}]*\}", "1", path)
        for method in METHODS:
            role = needed(method, path)
            there = method in {"GET", "HEAD"} or (method, path) in CHANGES
            for kind, headers in kinds.items():
                if not (whole or there or kind in {"none", "read"}):
                    continue
                answer = head_of(service, method, at, headers)
                who = kind.removesuffix(" session")
                if role == OPEN:
                    # Logging in and asking who one is say themselves who is not known.
                    right = path == "/api/session" or answer.status_code not in {401, 403}
                elif who not in COVERS:
                    right = answer.status_code == 401
                else:
                    right = (
                        (answer.status_code == 403) if role not in COVERS[who] else answer.status_code not in {401, 403}
                    )
                assert right, (method, at, kind, answer.status_code)
                if answer.status_code == 403 and method != "OPTIONS":
                    assert answer.headers["www-authenticate"] == 'Bearer realm="steno", error="insufficient_scope"'
                count += 1
    assert count == len(paths) * len(METHODS) * len(kinds) or (not whole and count > 1000)
