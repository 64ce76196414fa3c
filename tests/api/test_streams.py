"""The streams over HTTP: what a client is sent, where it begins, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest

from steno.engine.fold.fold import Fold
from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.projections.api.feed.framer import Framer

if TYPE_CHECKING:
    from conftest import Serve, Served

Message = tuple[int, dict[str, Any]]


def messages(lines: Iterator[str], count: int) -> list[Message]:
    """The next messages of a stream, as (id, data); comments and hints are left out."""
    messages: list[Message] = []
    at = None
    for line in lines:
        if line.startswith("id: "):
            at = int(line.removeprefix("id: ").partition("-")[0])
        elif line.startswith("data: "):
            assert at is not None
            messages.append((at, msgspec.json.decode(line.removeprefix("data: "))))
            if len(messages) == count:
                break
    return messages


def told(lines: Iterator[str]) -> list[str]:
    """All that a stream says up to its end, heartbeats apart."""
    return [line for line in lines if line not in ("", ": ")]


@contextmanager
def stream(here: Served, path: str = "/api/stream", **headers: str) -> Iterator[httpx.Response]:
    """An open stream."""
    with here.client.stream("GET", path, headers=headers) as response:
        yield response


def expected(path: Path, after: int = 0, about: str | None = None) -> list[Message]:
    """The messages for a client behind `after`."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape) as record:
        frames = Framer(record, Fold(READINGS), 0).advance(record.head().position)
    return [
        (frame.position, msgspec.json.decode(frame.data.split(b"\ndata: ")[1]))
        for frame in frames
        if frame.position > after and (about is None or about in frame.about)
    ]


def tell(path: Path, *numbers: int) -> None:
    """Something happens."""
    with Record.open(path, clock=SystemClock(), shapes=READINGS.shape, write=True) as record:
        for number in numbers:
            record.append_many([Batch("source/dstack", [types.RecorderStarted(source="dstack", software=str(number))])])


def head_of(path: Path) -> int:
    """Where a record ends."""
    with Record.open(path, clock=SystemClock()) as record:
        return record.head().position


def test_a_stream_says_how_to_come_back_and_is_kept_by_nobody(served: Serve, town: Path) -> None:
    """The hint comes first; no proxy may hold the answer back, and no cache keep it."""
    with stream(served(town)) as response:
        assert response.status_code == 200
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert response.headers["x-accel-buffering"] == "no"
        assert response.headers["cache-control"] == "no-store"
        assert next(response.iter_lines()) == "retry: 1000"


def test_head_tells_the_headers_and_ends(towned: Served) -> None:
    """As GET would have them."""
    answer = towned.client.head("/api/stream")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")


def test_from_the_beginning_every_position_comes_once(served: Serve, town: Path) -> None:
    """Made again from the record, page by page, then from the ring."""
    wanted = expected(town)
    with stream(served(town), "/api/stream?after=0") as response:
        assert messages(response.iter_lines(), len(wanted)) == wanted


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
def test_a_client_goes_on_behind_the_last_it_had(served: Serve, town: Path, share: float) -> None:
    """Wherever that was, also at a position that has no message of its own; `?after=` is for the first time only."""
    after = round(head_of(town) * share)
    wanted = expected(town, after)
    with stream(served(town), "/api/stream?after=0", **{"Last-Event-ID": str(after)}) as response:
        assert messages(response.iter_lines(), len(wanted)) == wanted


def test_without_a_word_it_begins_now(served: Serve, town: Path) -> None:
    """And what happens next comes at once."""
    here = served(town)
    with stream(here) as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 1000"
        before = head_of(town)
        tell(town, 1, 2, 3)
        got = messages(lines, 3)
        assert [position for position, _ in got] == [before + 1, before + 2, before + 3]
        assert got == expected(town, before)


def test_what_happens_while_a_client_catches_up_is_neither_lost_nor_doubled(served: Serve, town: Path) -> None:
    """Old pages end where the ring begins, whatever is added meanwhile."""
    here, first = served(town), head_of(town)
    last = first + 200  # one position each

    def write() -> None:
        for number in range(200):
            tell(town, number)
            time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with stream(here, "/api/stream?after=0") as response:
            lines = response.iter_lines()
            got: list[int] = []
            while not got or got[-1] < last:
                got += [position for position, _ in messages(lines, 1)]
    finally:
        writer.join()
    assert got == [position for position, _ in expected(town)]


@pytest.mark.parametrize("word", ["run_id", "provider_id", "name"])
def test_the_stream_of_a_run_has_what_concerns_it_and_its_machine(served: Serve, town: Path, word: str) -> None:
    """By run id, by the provider's id, and by name."""
    here = served(town)
    run = next(run_ for run_ in here.client.get("/api/runs").json()["runs"] if run_["vm_id"] is not None)
    wanted = expected(town, about=f"run/{run['run_id']}")
    with stream(here, f"/api/runs/{run[word]}/stream?after=0") as response:
        got = messages(response.iter_lines(), len(wanted))
    assert got == wanted
    assert {message["stream"].split("/")[0] for _, message in got} >= {"run", "vm"}
    assert {message["run"]["run_id"] for _, message in got if "run" in message} == {run["run_id"]}


def test_the_stream_of_nobody_is_404(towned: Served) -> None:
    """As a problem."""
    answer = towned.client.get("/api/runs/nobody/stream")
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


@pytest.mark.parametrize("last", ["-1", "1.5", "x", "٣", "9" * 400, "0x10", "1 2", "3-abc", "3-ABCDEF00", "-00000000"])
def test_a_last_event_that_never_was_is_refused(towned: Served, last: str) -> None:
    """The problem names the header, on every stream."""
    run = towned.client.get("/api/runs?limit=1").json()["runs"][0]["run_id"]
    for path in ("/api/stream", f"/api/runs/{run}/stream"):
        answer = towned.client.get(path, headers=[(b"Last-Event-ID", last.encode())])
        assert (answer.status_code, answer.json()["field"]) == (400, "Last-Event-ID")


@pytest.mark.parametrize("last", ["99999999", "9" * 18, "3-00000000", "99999999-00000000"])
def test_an_event_that_the_record_does_not_have_is_gone(towned: Served, last: str) -> None:
    """Whichever way it is named; the client learns from where on it has to read again."""
    client, path = towned.client, Path(towned.record)
    for answer in (
        client.get("/api/stream", headers={"Last-Event-ID": last}),
        client.get("/api/stream", params={"after": last}),
    ):
        common = min(head_of(path), int(last.partition("-")[0]) - 1)
        assert (answer.status_code, answer.json()["type"], answer.json()["last_common_position"]) == (
            410,
            "stream-epoch",
            common,
        )


@pytest.mark.parametrize(("query", "field"), [("after=x", "after"), ("since=1", "since"), ("at=1", "at")])
def test_a_wrong_parameter_is_refused(towned: Served, query: str, field: str) -> None:
    """As everywhere, an unknown parameter too."""
    answer = towned.client.get(f"/api/stream?{query}")
    assert (answer.status_code, answer.json()["field"]) == (400, field)


def test_the_head_itself_is_a_place_to_go_on_from(served: Serve, town: Path) -> None:
    """Though the service may not have folded it yet."""
    here = served(town)
    tell(town, 7)
    with stream(here, **{"Last-Event-ID": str(head_of(town))}) as response:
        assert response.status_code == 200


def test_a_quiet_stream_has_a_heartbeat(served: Serve, town: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A comment, which no client shows; here after a fifth of a second, not fifteen."""
    monkeypatch.setattr("steno.projections.api.feed.listener.HEARTBEAT", 0.2)
    with stream(served(town)) as response:
        lines = response.iter_lines()
        assert [next(lines) for _ in range(6)] == ["retry: 1000", "", ": ", "", ": ", ""]


def test_a_server_that_stops_ends_its_streams_in_good_form(served: Serve, town: Path) -> None:
    """The last chunk is there: the client knows that nothing was cut."""
    here = served(town)
    with stream(here) as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 1000"
        stopping = threading.Thread(target=here.server.stop)
        stopping.start()
        try:
            assert told(lines) == []  # a stream that is cut after the grace is an error of httpx
        finally:
            stopping.join()


def test_a_record_that_was_replaced_is_told(served: Serve, town: Path, empty_record: Path) -> None:
    """Its streams end, a new one is refused with the reason, and the server lives on."""
    here = served(town)
    with stream(here) as response:
        lines = response.iter_lines()
        assert next(lines) == "retry: 1000"
        for end in ("", "-wal", "-shm"):
            Path(f"{town}{end}").unlink(missing_ok=True)
        empty_record.rename(town)
        assert told(lines) == []
    answer = here.client.get("/api/stream")
    assert answer.status_code == 503
    assert "replaced" in answer.json()["detail"]
    assert here.client.get("/healthz").status_code == 200
