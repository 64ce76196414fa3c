"""`/api/record`: where the record stands, and the marks of all of it or of a stretch of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from stenotest.every_event import record_of_every_event

from steno.events import types
from steno.projections.answers import incidents as marks

if TYPE_CHECKING:
    from pathlib import Path

    import httpx
    from conftest import Serve


def test_marks_are_told_of_a_stretch_both_ends_included(reader: httpx.Client) -> None:
    """Marks outside the stretch are left out, and everything else of the answer is unchanged."""
    whole = reader.get("/api/record").json()
    assert not whole["thinned"]
    times = sorted({mark["at"] for mark in whole["marks"]})
    low, high = times[len(times) // 3], times[2 * len(times) // 3]
    part = reader.get("/api/record", params={"since": low, "until": high}).json()
    assert part["marks"] == [mark for mark in whole["marks"] if low <= mark["at"] <= high]
    assert {**part, "marks": [], "lag": None} == {**whole, "marks": [], "lag": None}
    moment = reader.get("/api/record", params={"since": low, "until": low}).json()["marks"]
    assert moment
    assert {mark["at"] for mark in moment} == {low}


def test_a_shorter_stretch_has_what_a_longer_one_had_no_room_for(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Now, and at a moment before, of which no later mark is told."""
    whole = client.get("/api/record").json()
    monkeypatch.setattr(marks, "MARKS", 12)
    few = client.get("/api/record").json()
    assert few["thinned"]
    assert len(few["marks"]) <= 12
    mark = next(mark for mark in whole["marks"] if mark not in few["marks"])
    near = client.get("/api/record", params={"since": mark["at"], "until": mark["at"]}).json()
    assert mark in near["marks"]
    then = client.get(
        "/api/record", params={"since": mark["at"], "until": mark["at"], "at": mark["position"] - 1}
    ).json()
    assert mark not in then["marks"]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ({"since": "yesterday"}, "since"),
        ({"until": "17"}, "until"),
        ({"since": "2026-11-20T15:00:00Z", "until": "2026-11-20T14:59:59Z"}, "until"),
    ],
)
def test_a_stretch_that_is_none_is_refused(reader: httpx.Client, query: dict[str, str], field: str) -> None:
    """The answer names what is wrong."""
    answer = reader.get("/api/record", params=query)
    assert answer.status_code == 400
    assert answer.json()["field"] == field


def test_an_event_of_every_type_is_answered_as_json(served: Serve, tmp_path: Path) -> None:
    """A law over all types, with all fields and with none that can be left out: in a page and alone."""
    path = tmp_path / "every.db"
    record_of_every_event(path)
    client, seen, cursor = served(path).client, set[str](), None
    while cursor != "":
        page = client.get("/api/events", params={"limit": 200} | ({} if cursor is None else {"cursor": cursor}))
        assert page.status_code == 200
        for row in page.json()["events"]:
            assert client.get(f"/api/events/{row['position']}").json()["data"] == row["data"]
            seen.add(row["type"])
        cursor = page.json()["next"] or ""
    assert seen == types.NAMES


def test_what_changed_is_of_a_range_and_of_a_user(reader: httpx.Client) -> None:
    """The range begins a day before its end; a later beginning than the end, and an unknown user, are refused."""
    whole = reader.get("/api/changes", params={"since": "2000-01-01T00:00:00Z"}).json()["changes"]
    users = {row["user"] for row in whole if row["kind"] == "run"}
    assert users
    for user in users:
        part = reader.get("/api/changes", params={"since": "2000-01-01T00:00:00Z", "user": user}).json()
        ended = [[row for row in rows if row["kind"] == "run"] for rows in (part["changes"], whole)]
        assert ended[0] == [row for row in ended[1] if row["user"] == user]
    for words, field in (({"since": "2099-01-01T00:00:00Z"}, "since"), ({"user": "nobody"}, "user")):
        answer = reader.get("/api/changes", params=words)
        assert (answer.status_code, answer.json()["field"]) == (400, field)
        assert reader.get("/api/incidents", params=words).status_code == 400
