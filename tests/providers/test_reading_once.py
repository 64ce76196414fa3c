"""An item of an answer is read into facts once, when it is appended; the fold uses these facts."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from stenotest.dstack_history import START, job, run_item, submission

from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.store.record import Record


def dstack_run(run_id: str, status: str) -> dict:
    return run_item(run_id, status, job(submission(status)))


def local_run(run_id: str, status: str) -> dict:
    texts = {"id": run_id, "name": run_id, "host": "h", "user": "u", "mark": None, "status": status, "folder": "/"}
    limits = {"max_duration": None, "grace": None, "ignored": [], "machine": None}
    return {**texts, **limits, "submitted_at": START, "cost": 5, "command": ["true"], "task": {}}


KINDS = {
    "dstack": (dstack_run, "/api/runs/list", {"project_name": "h", "limit": 100}),
    "local": (local_run, "/local/runs", {"host": "h", "limit": 1_000_000}),
}


def answer(provider: str, at: int, *items: dict) -> Poll:
    _, path, request = KINDS[provider]
    return Poll(
        source=f"{provider}/h",
        path=path,
        req=msgspec.json.encode(request),
        started_at=START + at * SECOND,
        observed_at=START + at * SECOND + 1,
        status=200,
        body=msgspec.json.encode(items),
        answered=True,
    )


@pytest.fixture
def record(tmp_path: Path) -> Record:
    with Record.open(
        tmp_path / "record.db", clock=SystemClock(), write=True, create=True, shapes=READINGS.shape
    ) as opened:
        yield opened


@pytest.mark.parametrize("provider", KINDS)
def test_a_changed_item_is_read_once(provider: str, record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the changed one of two, and without its whole answer."""
    make, path, request = KINDS[provider]
    reading = READINGS.asked(path, msgspec.json.encode(request))[1]
    read: list[str] = []

    def counted(item: bytes, scope: object, given: Callable = reading.runs) -> object:
        read.append(msgspec.json.decode(item)["id"])
        return given(item, scope)

    monkeypatch.setattr(reading, "runs", counted)
    live = LiveWorld(READINGS, record)
    live.catch_up()
    for at, status in enumerate(("running", "terminating" if provider == "dstack" else "stopping")):
        items = make("a", "running"), make("b", status)
        poll = answer(provider, at, *items)
        record.append_polls([poll], stream_of=live.stream_of(provider, poll))
        live.catch_up()
    first, second = (item["id"] for item in items)
    assert read == [first, second, second]
    assert sorted(run.state for run in live.state.runs.all()) == ["finishing", "running"]


def test_facts_of_an_append_that_failed_are_forgotten(record: Record) -> None:
    """The next append can use the id of its part for another item."""
    live = LiveWorld(READINGS, record)
    live.catch_up()

    def failing(kind: str, provider_id: str, item: int) -> str:
        live.stream_of("dstack", lost)(kind, provider_id, item)
        raise RuntimeError("a defect")

    lost, kept = answer("dstack", 0, dstack_run("a", "running")), answer("dstack", 1, dstack_run("b", "pending"))
    with pytest.raises(RuntimeError, match="a defect"):
        record.append_polls([lost], stream_of=failing)
    record.append_polls([kept], stream_of=live.stream_of("dstack", kept))
    live.catch_up()
    (run,) = live.state.runs.all()
    assert (run.name, run.state) == ("b", "queued")
