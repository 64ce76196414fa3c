"""Pages of other sites, and the headers by which every answer holds a browser back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.service import RUN, bearer, problem, raw_answer, token
from stenotest.waiting import wait

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve, Served


# -- pages of other sites


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "http://localhost:bad"},
    ],
)
def test_a_page_of_another_site_changes_nothing(here: Served, headers: dict[str, str]) -> None:
    """Its visitor is on this machine and needs no token; so the page is looked at."""
    field = "Origin" if "Origin" in headers else "Sec-Fetch-Site"
    problem(here.client.post("/api/runs", json=RUN, headers=headers), 403, field)
    problem(here.client.post("/api/session", json={"token": "x"}, headers=headers), 403, field)
    problem(here.client.delete("/api/session", headers=headers), 403, field)


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"},
        {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Sec-Fetch-Dest": "empty"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_a_page_of_another_site_opens_nothing_with_its_visitors_rights(here: Served, headers: dict[str, str]) -> None:
    """It could read no answer, but hold streams open and time answers."""
    run = here.client.get("/api/runs?limit=1").json()["runs"][0]["run_id"]
    field = "Origin" if "Origin" in headers else "Sec-Fetch-Site"
    for path in ("/api/runs", f"/api/runs/{run}", "/api/stream", f"/api/runs/{run}/stream", "/metrics"):
        problem(here.client.get(path, headers=headers), 403, field)


def test_a_link_on_a_page_of_another_site_can_be_followed(here: Served) -> None:
    """From a chat, say: the browser shows the answer to its user alone. The dashboard's own files tell nothing."""
    site = {"Sec-Fetch-Site": "cross-site"}
    followed = site | {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    for path in ("/", "/runs", "/api/runs"):
        assert here.client.get(path, headers=followed).status_code == 200
    assert here.client.get("/runs", headers=site).status_code == 200


def test_a_page_that_has_a_token_of_its_own_is_asked_for_nothing_else(here: Served) -> None:
    """A token that it sends is its own right, not its visitor's; without api.cors it still reads no answer."""
    headers = bearer(token(here.record, "read")) | {"Sec-Fetch-Site": "cross-site"}
    wait(lambda: here.client.get("/api/runs", headers=headers).status_code != 401, "the token to be known")
    answer = here.client.get("/api/runs", headers=headers)
    assert answer.status_code == 200
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_our_own_page_does(here: Served) -> None:
    """As a browser says it, with and without its newer word."""
    host = here.url.removeprefix("http://")
    for headers in ({"Origin": here.url}, {"Sec-Fetch-Site": "same-origin", "Origin": f"https://{host}"}):
        assert here.client.post("/api/runs", json=RUN, headers=headers).status_code == 202


def test_no_page_of_another_site_reads_an_answer(here: Served) -> None:
    """CORS is off: no header lets it, and a preflight is refused."""
    answer = here.client.get("/api/runs", headers={"Origin": "https://front.example"})
    assert not [name for name in answer.headers if name.startswith("access-control")]
    asking = {"Origin": "https://front.example", "Access-Control-Request-Method": "POST"}
    preflight = here.client.options("/api/runs", headers=asking)
    problem(preflight, 403, "Origin")
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def test_a_listed_page_may(served: Serve, town: Path) -> None:
    """`api.cors`: it asks first, then sends; errors are told to it too; no cookie goes with it."""
    here = served(town, api__cors="https://front.example, http://localhost:3000")
    origin = {"Origin": "https://front.example"}
    preflight = here.client.options("/api/runs", headers=origin | {"Access-Control-Request-Method": "POST"})
    assert preflight.status_code == 204
    assert preflight.headers["access-control-allow-origin"] == "https://front.example"
    assert "Idempotency-Key" in preflight.headers["access-control-allow-headers"]
    made = here.client.post("/api/runs", json=RUN, headers=origin)
    assert made.status_code == 202
    assert made.headers["access-control-allow-origin"] == "https://front.example"
    refused = here.client.get("/api/runs/none", headers=origin)
    assert refused.status_code == 404
    assert refused.headers["access-control-allow-origin"] == "https://front.example"
    assert refused.headers["vary"] == "Origin"
    assert "access-control-allow-credentials" not in made.headers
    other = here.client.post("/api/runs", json=RUN, headers={"Origin": "https://front.example.evil"})
    problem(other, 403, "Origin")
    assert "access-control-allow-origin" not in other.headers


# -- headers


@pytest.mark.parametrize(
    "request_line", ["GET /api/runs", "GET /api/runs/none", "POST /api/vms/x/stop", "GET /nowhere", "BREW /pot"]
)
def test_every_answer_carries_the_headers_that_hold_a_browser_back(here: Served, request_line: str) -> None:
    """Errors too, and what never became a request."""
    head = raw_answer(here, f"{request_line} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
    head = head.partition(b"\r\n\r\n")[0].lower()
    for name in (
        b"content-security-policy: default-src 'self'; img-src 'self' data:; style-src 'self'; script-src 'self'; ",
        b"x-content-type-options: nosniff",
        b"x-frame-options: deny",
        b"referrer-policy: no-referrer",
        b"cross-origin-opener-policy: same-origin",
        b"cross-origin-resource-policy: same-origin",
    ):
        assert name in head
    assert b"server:" not in head
    assert b"unsafe" not in head
