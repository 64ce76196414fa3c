"""The merged stream of several records: each record's messages in order, none lost or doubled over a break."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stenolab.waiting import wait

from engine.fold.world import World
from engine.providers.readings import READINGS
from events import types
from events.clock import SystemClock
from events.store.append import Batch
from events.store.record import Record
from projections.api.feed.frames import Framer

if TYPE_CHECKING:
    from conftest import Recorded
    from stenotest.served import ServeSite

Message = tuple[str, dict[str, Any]]


def messages(lines: Iterator[str]) -> Iterator[Message]:
    """The messages of a stream, as (id, data); comments and hints are left out."""
    at = ""
    for line in lines:
        if line.startswith("id: "):
            at = line.removeprefix("id: ")
        elif line.startswith("data: "):
            yield at, msgspec.json.decode(line.removeprefix("data: "))


def expected(path: Path) -> list[int]:
    """The positions of a record that are told."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
        return [one.position for one in Framer(record, World(READINGS), 0).advance(record.head().position)]


def tell(path: Path, *numbers: int) -> None:
    """Something happens."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape, write=True) as record:
        for number in numbers:
            record.append_many([Batch("source/dstack", [types.RecorderStarted(source="dstack", software=str(number))])])


@pytest.fixture(scope="module")
def both(recorded: Recorded, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Two records."""
    folder = tmp_path_factory.mktemp("streams")
    return {"lab": recorded(folder / "lab.db", "success"), "farm": recorded(folder / "farm.db", "failure")}


@pytest.fixture(scope="module")
def client(served_site_on: ServeSite, both: dict[str, Path]) -> httpx.Client:
    """A client of both."""
    found = served_site_on(both).client
    wait(lambda: found.get("/readyz").status_code == 200, seconds=120, what="it is ready", pause=0.05)
    return found


@settings(max_examples=8)
@given(cuts=st.lists(st.integers(1, 25), min_size=1, max_size=4))
def test_a_stream_resumed_anywhere_loses_and_doubles_nothing(
    client: httpx.Client, both: dict[str, Path], cuts: list[int]
) -> None:
    """Of each record exactly what its own stream tells, in its order, over any breaks; an id is what a client has."""
    wanted = {name: expected(path) for name, path in both.items()}
    count = sum(map(len, wanted.values()))
    found: dict[str, list[int]] = {name: [] for name in both}
    after = "lab:0,farm:0"
    while (left := count - sum(map(len, found.values()))) > 0:
        most = min(left, cuts.pop() if cuts else left)
        with client.stream("GET", "/api/stream", headers={"Last-Event-ID": after}) as response:
            assert response.status_code == 200
            for nth, (after, data) in enumerate(messages(response.iter_lines()), 1):
                found[data["record"]].append(data["position"])
                has = dict(one.split(":") for one in after.split(","))
                assert has[data["record"]] == str(data["position"])
                if nth == most:
                    break
    assert found == wanted


def test_what_happens_in_either_record_is_told(client: httpx.Client, both: dict[str, Path]) -> None:
    """From now on, without a position given; the ids are of both."""
    told: list[Message] = []
    began = threading.Event()

    def listen() -> None:
        with client.stream("GET", "/api/stream") as response:
            began.set()
            for message in messages(response.iter_lines()):
                told.append(message)
                if len(told) == 4:
                    return

    thread = threading.Thread(target=listen)
    thread.start()
    assert began.wait(120)
    for name in ("farm", "lab", "farm", "lab"):
        tell(both[name], 1)
    thread.join(120)
    assert sorted(data["record"] for _, data in told) == ["farm", "farm", "lab", "lab"]
    last = dict(one.split(":") for one in told[-1][0].split(","))
    assert last == {name: str(expected(path)[-1]) for name, path in both.items()}


def test_with_a_record_the_stream_is_its_own(client: httpx.Client, both: dict[str, Path]) -> None:
    """Its ids are that record's positions."""
    with client.stream("GET", "/api/stream", params={"record": "farm", "after": 0}) as response:
        assert response.headers["steno-record"] == "farm"
        assert next(messages(response.iter_lines()))[0] == str(expected(both["farm"])[0])


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"headers": {"Last-Event-ID": "12"}}, "this service has several"),
        ({"headers": {"Last-Event-ID": "lab:12"}}, "another set of records (lab)"),
        ({"params": {"after": "lab:1,bern:2"}}, "another set of records"),
        ({"params": {"after": "lab:1,farm:x"}}, "is not a position"),
        ({"params": {"after": "lab:1,farm:99999999"}}, "record farm ends at position"),
    ],
)
def test_a_place_that_is_not_of_these_records_is_refused(client: httpx.Client, asked: Any, said: str) -> None:
    """With what is wrong, before a stream begins."""
    answer = client.get("/api/stream", **asked)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


def test_the_others_are_told_of_while_one_record_is_away(
    served_site: ServeSite, recorded: Recorded, tmp_path: Path
) -> None:
    """Its position stays in the ids, so that nothing of it is lost."""
    here, away = recorded(tmp_path / "here.db", "success"), recorded(tmp_path / "away.db", "failure")
    client = served_site({"here": here, "away": away}).client
    wait(lambda: client.get("/readyz").status_code == 200, seconds=120, what="it is ready", pause=0.05)
    away.rename(tmp_path / "gone.db")

    def reasons() -> str:
        return str(client.get("/readyz").json()["reasons"])

    wait(lambda: "restart" in reasons(), seconds=120, what="it is missed", pause=0.05)
    head = expected(here)[-1]
    with client.stream("GET", "/api/stream", params={"after": f"here:{head},away:7"}) as response:
        tell(here, 1)
        after, data = next(messages(response.iter_lines()))
    assert data["record"] == "here"
    assert after == f"here:{data['position']},away:7"
    position = client.get("/api/record").json()["position"]
    assert "away" not in position
    assert client.get("/api/runs", params={"at": position}).json()["position"] == position
    with client.stream("GET", "/api/stream", params={"after": position}) as response:
        tell(here, 2)
        assert next(messages(response.iter_lines()))[1]["record"] == "here"
