"""Tokens, requests and notices over HTTP and on the page of administrators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import msgspec
import pytest
from stenotest.waiting import LIMIT_S

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.append import Batch
from steno.events.store.record import Record

if TYPE_CHECKING:
    from conftest import Serve
    from stenolab.browser import See

pytestmark = pytest.mark.slow


def told(record: Path) -> int:
    """Four notices: one accepted by mail and one by the webhook, one given up, one on its way; the last position."""
    with Record.open(record, write=True, shapes=READINGS.shape, clock=SystemClock()) as open_:
        for name in ("mail", "good", "bad", "waits"):
            kind: types.NoticeKind = "stuck" if name == "mail" else "run_end"
            route = "alice" if name == "mail" else ""
            body = msgspec.json.encode({"text": f"Steno: {name}\nof two lines, a&lt;b"})
            intent = types.NoticeIntended(notice_id=name, kind=kind, body=body, route=route)
            outcome = {
                "mail": types.NoticeDelivered(notice_id=name, status=0, attempt=1),
                "good": types.NoticeDelivered(notice_id=name, status=204, attempt=2),
                "bad": types.NoticeFailed(notice_id=name, error="HTTP 500", attempt=5, final=True),
                "waits": types.NoticeFailed(notice_id=name, error="no answer", attempt=1),
            }[name]
            open_.append_many([Batch(f"notice/{name}", [intent])])
            open_.append_many([Batch(f"notice/{name}", [outcome])])
        return open_.head().position


def test_tokens_are_made_listed_and_revoked_over_http(served: Serve, town: Path) -> None:
    """The text comes once and works; lists have no text; after its end it is refused. The record says who did it."""
    here = served(town, api__submit_rate="off")
    made = here.client.post("/api/tokens", json={"role": "submit", "name": "site", "expires": "30d"})
    assert (made.status_code, made.headers["cache-control"]) == (201, "no-store")
    text = made.json()["token"]
    bearer = {"Authorization": f"Bearer {text}"}
    assert here.client.get("/api/session", headers=bearer).json()["name"] == "site"
    assert here.client.get("/api/tokens", headers=bearer).status_code == 403
    listed = here.client.get("/api/tokens")
    assert text not in listed.text
    (token,) = listed.json()["tokens"]
    assert (token["name"], token["role"], token["by"], token["state"]) == ("site", "submit", "loopback", "valid")
    assert here.client.post("/api/tokens", json={"role": "read", "name": "site"}).status_code == 409
    refused = here.client.post("/api/tokens", json={"role": "read", "name": "loopback"})
    assert (refused.status_code, refused.json()["field"]) == (422, "name")

    submitted = here.client.post(
        "/api/runs", json={"configuration": {"type": "task", "commands": ["true"]}}, headers=bearer
    ).json()
    assert here.client.delete("/api/tokens/site").json()["state"] == "revoked"
    position = here.client.delete(f"/api/tokens/{token['token_id']}")
    assert position.json()["position"] is None, "it was revoked before"
    assert here.client.delete("/api/tokens/nobody").status_code == 404
    least = {"min_position": submitted["position"] + 1}
    actions = here.client.get("/api/audit", params=least).json()["actions"]
    assert [(row["who"], row["action"], row["name"]) for row in actions] == [
        ("loopback", "revoked the token", "site"),
        ("site", "submitted the run", submitted["name"]),
        ("loopback", "created the token", "site"),
    ]
    mine = here.client.get("/api/audit", params={"who": "site", "limit": 1} | least).json()
    assert [row["subject"] for row in mine["actions"]] == [f"run/{submitted['run_id']}"]
    page = here.client.get("/api/audit", params={"limit": 1} | least).json()
    rest = here.client.get("/api/audit", params={"cursor": page["next"]} | least).json()
    assert page["actions"] + rest["actions"] == actions
    assert here.client.get("/api/session", headers=bearer).status_code == 401
    assert text.encode() not in town.read_bytes()


def test_notices_say_whether_they_were_accepted(served: Serve, town: Path) -> None:
    """Newest first, now and in the past; of the webhook's address only the host."""
    head = told(town)
    here = served(town, alerts__webhook="https://hooks.example.org/services/secret", alerts__on="run_end")
    page = here.client.get("/api/notices", params={"min_position": head}).json()
    assert [(notice["notice_id"], notice["state"], notice["attempts"]) for notice in page["notices"]] == [
        ("waits", "pending", 1),
        ("bad", "failed", 5),
        ("good", "delivered", 2),
        ("mail", "delivered", 1),
    ]
    assert (page["webhook"], page["signed"]) == ("hooks.example.org", False)
    assert "secret" not in here.client.get("/api/notices").text
    before = {"at": page["notices"][1]["position"]}
    assert here.client.get("/api/notices", params=before).json()["notices"][0]["state"] == "pending"


def test_an_administrator_makes_and_revokes_tokens_on_the_page(served: Serve, town: Path, see: See) -> None:
    """The text is there once and is copied; the notices keep their lines; a name narrows who did what."""
    told(town)
    here = served(town)
    seen = see(here.url, permissions=["clipboard-read", "clipboard-write"])
    page = seen.go("/admin")
    assert page.locator("tbody tr").nth(1).inner_text().endswith("bad\nof two lines, a<b")
    assert "given up after 5 attempts" in page.locator("tbody tr").nth(1).inner_text()
    mail = page.locator("tbody tr").nth(3).inner_text()
    assert all(words in mail for words in ("stuck run", "accepted, route alice")), mail
    page.get_by_role("tab", name="Tokens").click()
    page.get_by_label("Name").fill("site")
    page.get_by_label("Role").select_option("submit")
    page.get_by_role("button", name="Create the token").click()
    text = page.locator(".secret").inner_text()
    page.get_by_role("button", name="Copy the token").click()
    page.get_by_text("Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == text
    answer = httpx.get(
        f"{here.url}/api/session", headers={"Authorization": f"Bearer {text}"}, timeout=LIMIT_S, trust_env=False
    )
    assert answer.json()["role"] == "submit"
    page.get_by_role("button", name="Done").click()
    assert text not in page.content()
    page.get_by_role("button", name="Revoke site").click()
    page.get_by_role("button", name="Revoke it").click()
    page.get_by_text("No valid tokens").wait_for()
    page.get_by_role("tab", name="Who did what").click()
    page.get_by_role("button", name="loopback").first.click()
    seen.until("location.search.includes('who=loopback')")
    seen.settled()
    rows = [row.split("\t")[2] for row in page.locator("tbody tr").all_inner_texts()]
    assert rows == ["revoked the token site", "created the token site"]
    assert seen.complaints == []
