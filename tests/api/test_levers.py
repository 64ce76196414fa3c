"""The levers over HTTP: previewed, pulled, listed, released, by whoever may."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.decided_record import DecidedRecord

from steno.events.clock import RandomIds, SystemClock
from steno.projections.api.token_store import Issuer, Role
from steno.projections.client import Refused, StenoClient, levers, pull, release

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Serve
    from stenolab.browser import See

KEYS = {"lever_id", "action", "user", "gpu", "source", "state", "vm_id", "until", "why", "by", "at"}
REACH = {"runs", "machines", "spent_usd", "cost_usd_per_hour"}


@pytest.fixture
def site(tmp_path: Path) -> DecidedRecord:
    """A record with a run on a machine, and another run that waits."""
    made = DecidedRecord(tmp_path)
    made.request("train")
    made.round()
    made.start("train", "m1")
    made.wait(60)
    made.request("eval")
    return made


def test_a_lever_is_previewed_pulled_listed_and_released(served: Serve, site: DecidedRecord) -> None:
    """A preview records nothing; twice is once."""
    client = served(site.folder / "record.db").client
    wanted = {"action": "stop", "why": "the bill"}
    preview = client.post("/api/levers", json={**wanted, "preview": True})
    assert (preview.status_code, set(preview.json())) == (200, REACH)
    assert (preview.json()["runs"], preview.json()["machines"]) == (["train", "eval"], ["m1"])
    assert preview.json()["cost_usd_per_hour"] == "1.990000"
    assert client.get("/api/levers").json()["levers"] == []
    pause = {"action": "pause", "user": "ada", "why": "so", "for": "2h"}
    made = client.post("/api/levers", json={"action": "pause", "user": "ada", "why": "so"})
    assert (made.status_code, set(made.json())) == (201, KEYS | REACH)
    assert (made.json()["by"], made.json()["runs"]) == ("loopback", ["eval"])
    same = client.post("/api/levers", json={"action": "pause", "user": "ada", "why": "again"})
    assert same.json()["lever_id"] == made.json()["lever_id"]
    assert client.post("/api/levers", json=pause).json()["until"] is not None
    listed = client.get("/api/levers", params={"min_position": int(made.headers["steno-position"])}).json()["levers"]
    assert [lever["why"] for lever in listed] == ["so", "so"]
    path = f"/api/levers/{made.json()['lever_id']}"
    assert client.request("DELETE", path, json={"why": "over"}).status_code == 200
    assert client.delete(path).status_code == 404
    actions = [action["action"] for action in client.get("/api/audit").json()["actions"]][:3]
    assert actions == [
        "released a lever: pause runs of ada",
        "pulled a lever: pause runs of ada",
        "pulled a lever: pause runs of ada",
    ]


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"action": "dance", "why": "x"}, 422, "action"),
        ({"action": "pause"}, 422, "why"),
        ({"action": "pause", "why": "  "}, 422, "why"),
        ({"action": "keep", "why": "x", "vm_id": "m1"}, 422, None),
        ({"action": "keep", "why": "x", "vm_id": "m9", "for": "2h"}, 404, None),
        ({"action": "drain", "why": "x", "for": "soon"}, 422, "for"),
        ({"action": "drain", "why": "x", "user": "ada"}, 422, None),
        ({"action": "pause", "why": "x", "source": "moon"}, 404, None),
        ({"action": "stop", "why": "x", "state": "dancing"}, 422, None),
        ({"action": "stop", "why": "x", "state": "succeeded"}, 409, None),
    ],
)
def test_a_lever_that_cannot_be_pulled_is_a_problem(
    served: Serve, site: DecidedRecord, body: dict[str, str], status: int, field: str | None
) -> None:
    """And nothing is recorded, also of a stop that is about what is there only, and nothing is."""
    client = served(site.folder / "record.db").client
    answer = client.post("/api/levers", json=body)
    assert (answer.status_code, answer.json().get("field")) == (status, field), answer.text
    assert client.get("/api/levers").json()["levers"] == []
    assert site.record.version("levers") == 0


def test_a_run_held_back_for_a_time_says_when_it_may_start(served: Serve, site: DecidedRecord) -> None:
    """As a time like every other, in the explanation that the run's page reads."""
    client = served(site.folder / "record.db").client
    made = client.post("/api/levers", json={"action": "pause", "why": "so", "for": "2h"})
    behind = {"min_position": int(made.headers["steno-position"])}
    queued = client.get("/api/runs/eval/explain", params=behind).json()["queued"]
    assert (queued["why"], queued["estimated_start"]) == ("lever", made.json()["until"])


def test_only_an_administrator_pulls_levers(served: Serve, site: DecidedRecord) -> None:
    """403 in one sentence; everybody who may read sees them."""
    issuer = Issuer(site.record, SystemClock(), RandomIds())
    token = issuer.create(role=Role.SUBMIT, name="sub", expires_at=None, by="tester")[1]
    client = served(site.folder / "record.db").client
    headers = {"Authorization": f"Bearer {token}"}
    refused = client.post("/api/levers", json={"action": "stop", "why": "x"}, headers=headers)
    assert refused.status_code == 403
    assert "admin" in refused.json()["detail"]
    assert client.get("/api/levers", headers=headers).json()["levers"] == []


def test_the_client_pulls_and_releases(served: Serve, site: DecidedRecord) -> None:
    """As a program does it."""
    with StenoClient(served(site.folder / "record.db").url) as client:
        preview = client.ask(pull("pause", "so", preview=True))
        assert preview["runs"] == ["eval"]
        made = client.ask(pull("keep", "a crash", vm_id="m1", length="2h"))
        assert [lever["action"] for lever in client.ask(levers())["levers"]] == ["keep"]
        assert client.ask(release(made["lever_id"]))["lever_id"] == made["lever_id"]
        with pytest.raises(Refused, match="in force"):
            client.ask(release(made["lever_id"]))


def test_a_run_that_is_asked_to_stop_says_so_until_it_has_ended(served: Serve, site: DecidedRecord) -> None:
    """Also while no process carries it out."""
    client = served(site.folder / "record.db").client
    before = client.get("/api/runs/eval/explain").json()["why"]
    position = client.post("/api/runs/eval/stop", json={}).json()["position"]
    after = client.get("/api/runs/eval/explain", params={"min_position": position}).json()["why"]
    assert after == f"{before} Its stop was requested, and it has not ended yet."


SCOPE = ("Of the user", "Of the GPU", "Of the source")
LEVERS = {"Pause": SCOPE, "Drain": ("Of the source",), "Stop": SCOPE}
VALUES = {"Of the user": "tester", "Of the GPU": "MI300X", "Of the source": "dstack"}


def test_the_service_takes_whatever_a_window_of_a_lever_asks_for(served: Serve, site: DecidedRecord, see: See) -> None:
    """Each field of each; what was pulled stands on the page at once, and a machine is kept from its page."""
    from playwright.sync_api import expect

    here = served(site.folder / "record.db")
    seen = see(here.url)
    for verb, fields in LEVERS.items():
        page = seen.go("/")
        page.get_by_role("button", name=f"{verb}…").click()
        sheet = page.get_by_role("dialog", name=verb)
        expect(sheet.locator(".fields input")).to_have_count(len(fields))
        for field in fields:
            sheet.get_by_label(field).fill(VALUES[field])
        if verb != "Stop":
            sheet.get_by_label("For how long").fill("2h")
        sheet.get_by_label("Why").fill("so")
        sheet.locator("button[type=submit]").click()
        page.get_by_text(f"{verb}: {'user' if 'Of the user' in fields else 'source'} ").first.wait_for()
        seen.until("document.querySelector('.sheet') === null")
    assert [lever["action"] for lever in here.client.get("/api/levers").json()["levers"]] == ["pause", "drain", "stop"]
    page.get_by_role("region", name="Levers in force").get_by_text("Stop: user tester, GPU MI300X").first.wait_for()
    vm = here.client.get("/api/vms").json()["vms"][0]
    page = seen.go(f"/machines/{vm['vm_id']}")
    page.get_by_role("button", name="Keep…").click()
    sheet = page.get_by_role("dialog", name="Keep m1")
    sheet.get_by_label("For how long").fill("")
    sheet.get_by_text("Write for how long.").wait_for()
    sheet.get_by_label("For how long").fill("2h")
    sheet.get_by_label("Why").fill("a crash")
    sheet.get_by_role("button", name="Keep it").click()
    page.get_by_role("button", name="Release Keep: machine m1").wait_for()
    assert seen.complaints == []


def test_a_machine_is_offered_to_be_kept_only_while_it_is_there(served: Serve, site: DecidedRecord, see: See) -> None:
    """On the page of its run."""
    here = served(site.folder / "record.db")
    seen = see(here.url)
    page = seen.go("/runs/train")
    page.get_by_role("button", name="Keep machine…").wait_for(timeout=20_000)
    site.gone("m1")
    site.poll()
    page.get_by_role("button", name="Keep machine…").wait_for(state="detached", timeout=10_000)
