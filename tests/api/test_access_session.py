"""A browser logs in with a token, and a cookie that no script can read stands for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import httpx
import pytest
from stenotest.frozen_time import Hands
from stenotest.records import StandingClock
from stenotest.service import revoke, token
from stenotest.waiting import LIMIT_S

from steno.events.clock import SECOND, SystemClock
from steno.events.store.store import store_at
from steno.projections.api.access.routes import LOGINS
from steno.projections.api.tokens import SESSION, Tokens

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served


@pytest.fixture
def service(served: Serve, town: Path) -> Served:
    """A service that asks everybody for a token; `browser` has a role of submit."""
    token(town, "read", "first")
    return served(town, api__host="0.0.0.0")


@pytest.fixture(scope="module")
def shared(served_on: Serve, towns: Path) -> Served:
    """As `service`, for tests in which every login is refused."""
    token(towns, "read", "first")
    return served_on(towns, api__host="0.0.0.0")


def log_in(hands: Hands, service: Served, role: str = "submit") -> httpx.Cookies:
    """The cookie of a browser that logged in."""
    text = token(service.record, role, f"{role}-{time.monotonic_ns()}")
    hands.later(0.3)
    answer = service.client.post("/api/session", json={"token": text})
    assert answer.status_code == 200, answer.text
    service.client.cookies.clear()
    return answer.cookies


def test_a_cookie_stands_for_the_token(hands: Hands, service: Served) -> None:
    """HttpOnly, SameSite=Strict, for the whole site, half a day at most, and without the token in it."""
    text = token(service.record, "submit", "browser")
    hands.later(0.3)
    answer = service.client.post("/api/session", json={"token": text})
    assert answer.json() == {"name": "browser", "role": "submit", "via": "token"}
    [cookie] = answer.headers.get_list("set-cookie")
    name, _, rest = cookie.partition("=")
    assert name.startswith("steno_")
    attributes = {part.strip().lower() for part in rest.split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/", f"max-age={SESSION // SECOND}"} <= attributes
    assert "secure" not in attributes
    assert text.split("_", 2)[2] not in cookie
    assert service.client.get("/api/session").json() == {"name": "browser", "role": "submit", "via": "session"}
    assert service.client.get("/api/runs").status_code == 200


def test_behind_tls_the_cookie_goes_nowhere_else(hands: Hands, service: Served) -> None:
    """The proxy says so."""
    text = token(service.record, "read", "browser")
    hands.later(0.3)
    answer = service.client.post("/api/session", json={"token": text}, headers={"X-Forwarded-Proto": "https"})
    assert "secure" in answer.headers["set-cookie"].lower()


def test_the_session_has_the_role_of_its_token(hands: Hands, service: Served) -> None:
    """No more."""
    cookies = log_in(hands, service, "read")
    with httpx.Client(base_url=service.url, cookies=cookies, timeout=LIMIT_S, trust_env=False) as browser:
        assert browser.get("/api/runs").status_code == 200
        assert browser.post("/api/runs", json={}).status_code == 403


def test_logging_out_ends_the_session_and_not_only_the_cookie(hands: Hands, service: Served) -> None:
    """A copy of the cookie is worth nothing either."""
    cookies = log_in(hands, service)
    with (
        httpx.Client(base_url=service.url, cookies=cookies, timeout=LIMIT_S, trust_env=False) as browser,
        httpx.Client(base_url=service.url, cookies=cookies, timeout=LIMIT_S, trust_env=False) as thief,
    ):
        answer = browser.delete("/api/session")
        assert answer.status_code == 204
        assert "max-age=0" in answer.headers["set-cookie"].lower()
        assert thief.get("/api/runs").status_code == 401
    assert service.client.delete("/api/session").status_code == 204


def test_a_session_outlives_a_restart_and_is_known_to_every_process(
    hands: Hands, service: Served, served: Serve
) -> None:
    """Browsers come back by themselves and must not ask again."""
    cookies = log_in(hands, service)
    service.stop()
    other = served(service.record, api__host="0.0.0.0")
    with httpx.Client(base_url=other.url, cookies=cookies, timeout=LIMIT_S, trust_env=False) as browser:
        assert browser.get("/api/session").json()["via"] == "session"
        browser.delete("/api/session")
    third = served(service.record, api__host="0.0.0.0")
    with httpx.Client(base_url=third.url, cookies=cookies, timeout=LIMIT_S, trust_env=False) as browser:
        assert browser.get("/api/session").status_code == 401


def test_a_session_ends_with_its_token(hands: Hands, service: Served) -> None:
    """Within a second."""
    text = token(service.record, "read", "browser")
    hands.later(0.3)
    service.client.post("/api/session", json={"token": text})
    assert service.client.get("/api/runs").status_code == 200
    revoke(service.record, "browser")
    hands.later(1)
    assert service.client.get("/api/runs").status_code == 401


def test_a_session_ends_by_itself(town: Path) -> None:
    """After half a day, or when its token does."""
    clock = StandingClock(SystemClock().now())
    tokens = Tokens(store_at(town), clock)
    who = tokens.bearer(token(town, "read", "browser", clock=clock))
    assert who is not None
    cookie, seconds = tokens.opened(who)
    assert seconds == SESSION // SECOND
    clock.sleep(SESSION - 1)
    assert tokens.session(cookie) is not None
    clock.sleep(1)
    assert tokens.session(cookie) is None


def test_a_cookie_that_was_changed_is_none(town: Path) -> None:
    """Each part is sealed: whose, until when, which."""
    clock = StandingClock(SystemClock().now())
    tokens = Tokens(store_at(town), clock)
    other = token(town, "admin", "other", clock=clock).split("_")[1]
    who = tokens.bearer(token(town, "read", "browser", clock=clock))
    assert who is not None
    cookie, _ = tokens.opened(who)
    whose, until, number, seal = cookie.split(".")
    for wrong in (
        f"{other}.{until}.{number}.{seal}",
        f"{whose}.{int(until) + 1}.{number}.{seal}",
        f"{whose}.{until}.{number}0.{seal}",
        f"{whose}.{until}.{number}.{'0' * 64}",
        f"{whose}.{until}.{number}",
        f"{whose}.{until}.{number}.",
        f"{whose}.{until}.{number}.{seal}.x",
        f"{whose}.{'9' * 30}.{number}.{seal}",
        f"{whose}.x.{number}.{seal}",
        f"{whose}.{until}.{number}.é",
        "",
        "....",
    ):
        assert tokens.session(wrong) is None, wrong
    assert tokens.session(cookie) is not None


@pytest.mark.parametrize(
    "body", [b"", b"{}", b"[]", b"null", b'{"token": 1}', b'{"token": "x", "more": 1}', b'"steno_"', b"token=x", b"{"]
)
def test_what_is_no_login_is_told_so(shared: Served, body: bytes) -> None:
    """400, and the field."""
    answer = shared.client.post("/api/session", content=body)
    assert answer.status_code == 400, answer.text
    assert answer.json()["field"] == "token"


@pytest.mark.parametrize("text", ["", "x", "steno_000000000000_" + "x" * 43, "é" * 50])
def test_a_token_nobody_knows_opens_no_session(shared: Served, text: str) -> None:
    """401, and no cookie."""
    answer = shared.client.post("/api/session", json={"token": text})
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_two_services_of_one_machine_do_not_share_a_cookie(
    hands: Hands, served: Serve, town: Path, empty_record: Path
) -> None:
    """A browser sends the cookies of one port to all others: each record's has a name of its own."""
    names = []
    for record in (town, empty_record):
        token(record, "read", "first")
        names += list(log_in(hands, served(record, api__host="0.0.0.0")).keys())
    assert len(set(names)) == 2


def test_a_token_logs_in_so_often(hands: Hands, service: Served) -> None:
    """A closed session is kept in a file that is read again and again: one reader must not make it grow without end."""
    text, other = token(service.record, "read", "often"), token(service.record, "read", "once")
    hands.later(0.3)
    answers = [service.client.post("/api/session", json={"token": text}) for _ in range(LOGINS + 5)]
    assert {answer.status_code for answer in answers[:LOGINS]} == {200}
    assert answers[-1].status_code == 429
    assert int(answers[-1].headers["retry-after"]) > 0
    assert service.client.post("/api/session", json={"token": other}).status_code == 200
