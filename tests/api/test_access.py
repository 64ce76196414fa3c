"""Rights of callers: places, tokens, roles, pages of other sites."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from stenotest.frozen_time import Hands
from stenotest.records import StandingClock
from stenotest.service import RUN, bearer, problem, raw_answer, revoke, token

from steno.engine.errors import NotConfigured
from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.store.record import Record
from steno.events.store.store import store_at
from steno.projections.api.access.authentication import needed
from steno.projections.api.token_store import Issuer, Role, TokenStore
from steno.projections.api.tokens import Tokens

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served

pytestmark = pytest.mark.usefixtures("hands")


@pytest.fixture
def everywhere(served: Serve, town: Path) -> Served:
    """A service that listens beyond loopback; there is a token."""
    token(town, "read", name="first")
    return served(town, api__host="0.0.0.0")


# -- without a token


def test_on_loopback_nobody_needs_a_token(here: Served) -> None:
    """A program on this machine may do anything, and is recorded as `loopback`."""
    assert here.client.get("/api/session").json() == {"name": "loopback", "role": "admin", "via": "loopback"}
    made = here.client.post("/api/runs", json=RUN)
    assert made.status_code == 202, made.text
    with Record.open(here.record, shapes=READINGS.shape, clock=SystemClock()) as record:
        requests = [stored.data for stored in record.read(types=frozenset({"RunRequested"}))]
    mine = [
        request
        for request in requests
        if isinstance(request, types.RunRequested) and request.run_id == made.json()["run_id"]
    ]
    assert [request.submitter for request in mine] == ["loopback"]


def test_on_loopback_tokens_of_others_change_nothing_for_who_has_none(served: Serve, town: Path) -> None:
    """The first site's front end sends none, and stays beside a proxy whose visitors do."""
    token(town, "read")
    assert served(town).client.get("/api/session").json()["via"] == "loopback"


@pytest.mark.parametrize(
    "header", ["Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-IP", "Via"]
)
def test_what_came_through_a_proxy_needs_a_token(hands: Hands, here: Served, header: str) -> None:
    """The proxy is on this machine, who speaks through it may be anywhere."""
    refusal = problem(here.client.get("/api/runs", headers={header: "198.51.100.7"}), 401, "Authorization")
    assert "proxy" in str(refusal["detail"])
    with_token = {header: "198.51.100.7"} | bearer(token(here.record, "read"))
    hands.later(0.3)
    assert here.client.get("/api/runs", headers=with_token).status_code == 200


def test_a_proxy_that_says_nothing_needs_a_token(hands: Hands, here: Served) -> None:
    """nginx without settings sends HTTP/1.0 with `Connection: close`, and no header of its own."""
    lines = "GET /api/runs HTTP/1.0\r\nHost: 127.0.0.1:8642\r\nConnection: {}\r\n{}\r\n"
    refused = raw_answer(here, lines.format("close", "").encode())
    assert refused.startswith(b"HTTP/1.1 401")
    assert b"proxy" in refused
    with_token = f"Authorization: {bearer(token(here.record, 'read'))['Authorization']}\r\n"
    hands.later(0.3)
    assert raw_answer(here, lines.format("Close", with_token).encode()).startswith(b"HTTP/1.1 200")
    old_program = lines.replace("Connection: {}\r\n", "").format("")
    assert raw_answer(here, old_program.encode()).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "127.0.0.1:8642", "localhost", "LocalHost:1", "[::1]", "[::1]:8642", "a.localhost", "127.9.9.9"],
)
def test_the_names_of_this_machine_are_answered(here: Served, host: str) -> None:
    """Whatever port a tunnel gives them."""
    assert here.client.get("/api/runs", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "127.0.0.1.evil.example", "localhost.evil.example", "10.0.0.1", "[::2]", "127.0.0.1 x", "@",
        "0.0.0.0", "[::]", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::ffff:10.0.0.1]", "[127.0.0.1",
        "localhost:", "localhost:1:2", "localhost:123456", "evil.example@localhost", "localhost, evil.example",
        "localhost/", "evil.example#.localhost", "evil.example?.localhost", "xn--lcalhost-54a", "",
    ],
)  # fmt: skip
def test_a_name_that_was_pointed_here_is_not(here: Served, host: str) -> None:
    """DNS rebinding: a page elsewhere makes its own name mean 127.0.0.1 and asks as if it were at home."""
    problem(here.client.get("/api/runs", headers={"Host": host}), 421, "Host")
    problem(here.client.post("/api/runs", json=RUN, headers={"Host": host}), 421, "Host")


def test_a_request_has_one_host(here: Served) -> None:
    """Two would let one be checked and the other be meant."""
    assert raw_answer(
        here, b"GET /api/runs HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    ).startswith(b"HTTP/1.1 400")
    assert raw_answer(here, b"GET /api/runs HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.1 400")


def test_on_a_shared_machine_loopback_can_ask_for_a_token_too(served: Serve, town: Path) -> None:
    """Every user of it reaches loopback. Without any token such a service does not start."""
    with pytest.raises(NotConfigured, match=r"api\.loopback is token"):
        served(town, api__loopback="token")
    text = token(town, "read")
    service = served(town, api__loopback="token")
    run = service.client.get("/api/runs?limit=1", headers=bearer(text)).json()["runs"][0]["run_id"]
    for path in ("/api/runs", f"/api/runs/{run}", "/api/stream", "/metrics", "/api/session"):
        problem(service.client.get(path), 401, "Authorization")
        assert service.client.get("/api/session", headers=bearer(text)).json()["role"] == "read"
    problem(service.client.post("/api/runs", json=RUN), 401, "Authorization")
    assert service.client.get("/healthz").status_code == 200
    assert service.client.get("/").status_code == 200


@pytest.mark.parametrize(
    "path", ["/api/runs", "/api/vms/x", "/api/stream", "/metrics", "/openapi.json", "/api", "/api/x"]
)
def test_all_others_ask_for_a_token_whether_they_exist_or_not(everywhere: Served, path: str) -> None:
    """401, with how to say who one is."""
    answer = everywhere.client.get(path)
    problem(answer, 401, "Authorization")
    assert answer.headers["www-authenticate"] == 'Bearer realm="steno"'


# -- tokens


def test_a_token_says_who_asks(hands: Hands, everywhere: Served) -> None:
    """By its name; what it asks for is recorded under that."""
    text = token(everywhere.record, "submit", name="site")
    hands.later(0.3)
    assert everywhere.client.get("/api/session", headers=bearer(text)).json() == {
        "name": "site",
        "role": "submit",
        "via": "token",
    }
    made = everywhere.client.post("/api/runs", json=RUN, headers=bearer(text))
    assert made.status_code == 202, made.text
    with Record.open(everywhere.record, shapes=READINGS.shape, clock=SystemClock()) as record:
        requests = [stored.data for stored in record.read(types=frozenset({"RunRequested"}))]
    assert [request.submitter for request in requests if isinstance(request, types.RunRequested)] == ["site"]


@pytest.mark.parametrize(
    "given",
    [
        "Bearer",
        "Bearer nonsense",
        "Bearer steno_000000000000_" + "x" * 43,
        "Basic dXNlcjpwYXNz",
        "steno_000000000000_" + "x" * 43,
        "Bearer " + "x" * 5000,
    ],
)
def test_what_is_no_token_of_ours_is_refused_even_on_loopback(here: Served, given: str) -> None:
    """A caller that names itself must be right."""
    answer = here.client.get("/api/runs", headers={"Authorization": given})
    problem(answer, 401, "Authorization")
    assert answer.headers["www-authenticate"].startswith('Bearer realm="steno", error="invalid_')


def test_a_token_with_another_secret_is_none(hands: Hands, here: Served) -> None:
    """The id alone opens nothing."""
    text = token(here.record, "read")
    hands.later(0.3)
    for wrong in (text[:-1] + ("A" if text[-1] != "A" else "B"), text + "A", text.upper(), text[:-1]):
        problem(here.client.get("/api/runs", headers=bearer(wrong)), 401, "Authorization")


def test_a_revoked_token_is_refused_within_a_second(hands: Hands, here: Served) -> None:
    """By a server that runs."""
    text = token(here.record, "read", name="a-site")
    hands.later(0.3)
    assert here.client.get("/api/runs", headers=bearer(text)).status_code == 200
    revoke(here.record, "a-site")
    hands.later(1)
    problem(here.client.get("/api/runs", headers=bearer(text)), 401, "Authorization")


def test_a_stream_ends_when_its_token_is_revoked(hands: Hands, here: Served) -> None:
    """Nothing is told any more, and the stream ends in good form."""
    text = token(here.record, "read", name="a-listener")
    hands.later(0.3)
    with here.client.stream("GET", "/api/stream", headers=bearer(text)) as answer:
        assert answer.status_code == 200
        pieces = answer.iter_raw()
        next(pieces)
        revoke(here.record, "a-listener")
        hands.later(1)
        token(here.record, "read", name="hidden")  # something to tell
        assert b"hidden" not in b"".join(pieces)


def test_a_token_ends_when_it_is_said_to(town: Path) -> None:
    """To the microsecond, by the clock that is handed in."""
    clock = StandingClock(SystemClock().now())
    with Record.open(town, write=True, shapes=READINGS.shape, clock=clock) as record:
        text = Issuer(record, clock, RandomIds()).create(
            role=Role.READ, name=None, expires_at=clock.now() + SECOND, by="tester"
        )[1]
    tokens = Tokens(store_at(town), clock)
    assert tokens.bearer(text) is not None
    assert tokens.usable() == 1
    clock.sleep(SECOND - 1)
    assert tokens.bearer(text) is not None
    clock.sleep(1)
    assert tokens.bearer(text) is None
    assert tokens.usable() == 0


def test_the_file_has_hashes_only_and_is_its_owners_alone(town: Path) -> None:
    """And the record has neither the token nor its hash."""
    text = token(town, "admin", name="site")
    path = town.with_name("record.db.tokens")
    assert path.stat().st_mode & 0o777 == path.with_name(f"{path.name}.lock").stat().st_mode & 0o777 == 0o600
    assert text.split("_", 2)[2] not in path.read_text()  # a secret may have underscores
    digest = TokenStore(store_at(town)).read().tokens[0].hash
    assert digest is not None
    with Record.open(town, shapes=READINGS.shape, clock=SystemClock()) as record:
        last = next(iter(record.read(after=record.head().position - 1)))
    assert last.stream == f"token/{text.split('_')[1]}"
    assert last.data == types.TokenCreated(
        token_id=text.split("_")[1], name="site", role="admin", expires_at=None, by="tester"
    )
    for file in town.parent.glob("record.db*"):
        if file != path and file.is_file():
            assert bytes.fromhex(digest) not in file.read_bytes()


def test_tokens_made_at_the_same_moment_are_all_there(town: Path) -> None:
    """The file is written whole, under a lock."""
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.append(token(town, "read"))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tokens = Tokens(store_at(town), SystemClock())
    assert len(made) == 8
    assert all(tokens.bearer(text) is not None for text in made)


@pytest.mark.parametrize("damage", ["{", "[]", '{"version": 2}', '{"tokens": [{"id": 1}]}'])
def test_a_file_that_cannot_be_read_lets_nobody_in(hands: Hands, here: Served, damage: str) -> None:
    """Not even who needed no token: it may have said something else. Put right, all is as before."""
    text = token(here.record, "read")
    path = here.record.with_name("record.db.tokens")
    whole = path.read_bytes()
    try:
        path.write_text(damage)
        hands.later(0.3)
        problem(here.client.get("/api/runs"), 503)
        problem(here.client.get("/api/runs", headers=bearer(text)), 503)
        assert here.client.get("/healthz").status_code == 200
    finally:
        path.write_bytes(whole)
    hands.later(0.3)
    assert here.client.get("/api/runs", headers=bearer(text)).status_code == 200


# -- roles


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("GET", "/api/runs", "read"),
        ("HEAD", "/api/runs", "read"),
        ("GET", "/metrics", "read"),
        ("POST", "/api/runs", "submit"),
        ("POST", "/api/runs/x/stop", "submit"),
        ("POST", "/api/amd/submit", "submit"),
        ("POST", "/api/vms/x/stop", "admin"),
        ("DELETE", "/api/runs/x", "submit"),
        ("POST", "/api/anything-new", "admin"),
        ("DELETE", "/api/anything-new", "admin"),
        ("POST", "/", "admin"),
        ("GET", "/", None),
        ("GET", "/runs/x", None),
        ("GET", "/assets/x.js", None),
        ("POST", "/api/session", None),
        ("GET", "/apix", None),
    ],
)
def test_each_request_needs_one_role(method: str, path: str, role: str | None) -> None:
    """A new change needs the highest role until somebody says otherwise."""
    assert needed(method, path) == role
