"""The HTTP server ends by itself: that is told in one line, the command ends in order, and the record is whole."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest
from stenotest.waiting import LIMIT_S, wait

from steno.engine.providers.registry import READINGS
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Record

if TYPE_CHECKING:
    from conftest import Process, Starts

BROKEN = "the HTTP server ended: RuntimeError: the loop is broken"
SILENT = "the HTTP server ended by itself, without a word"
HOW = [("raises", BROKEN), ("returns", SILENT)]
DRIVER = Path(__file__).with_name("crash_at.py")
BUG = 70


class Breakable:
    """Commands whose server fails when told to."""

    def __init__(self, started: Starts, folder: Path) -> None:
        self._started = started
        self._sign = folder / "now"

    def start(self, how: str, *words: object, **variables: str) -> Process:
        """The command, ready."""
        process = self._started(*words, program=(DRIVER, self._sign, how), **variables)
        assert process.url
        return process

    def breaks(self) -> None:
        """The server fails now."""
        self._sign.touch()


@pytest.fixture
def breakable(started: Starts, tmp_path: Path) -> Breakable:
    """Commands whose server can be made to fail."""
    return Breakable(started, tmp_path)


def asked(process: Process, name: str) -> str:
    """The id of a run that was asked for there."""
    body = {"name": name, "configuration": {"type": "task", "commands": ["echo hello"]}}
    answer = process.post("/api/runs", json=body)
    assert answer.status_code == 202, answer.text
    run_id: str = answer.json()["run_id"]
    return run_id


@pytest.mark.parametrize(("how", "why"), [HOW[0], pytest.param(*HOW[1], marks=pytest.mark.long)])
def test_up_ends_in_order_when_its_server_has_ended(
    how: str, why: str, breakable: Breakable, started: Starts, tmp_path: Path
) -> None:
    """A single line and exit 70; the record says why nobody looks and holds the request, and the next process continues
    it.
    """
    path = tmp_path / "r.db"
    process = breakable.start(how, "up", "--record", path)
    run_id = asked(process, "before")
    breakable.breaks()
    assert process.ended() == BUG
    assert process.err == [
        f"steno: bug in Steno: PartFailed: {why}; please report it (STENO_DEBUG=1 prints the traceback)"
    ]
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        assert record.verify().ok
        assert [stored.stream for stored in record.read(types={"RunRequested"})] == [f"run/{run_id}"]
        (stopped,) = record.read(types={"RecorderStopped"})
        assert isinstance(stopped.data, types.RecorderStopped)
        assert stopped.data.why == why
    after = started("up", "--record", path)

    def succeeded() -> bool:
        answer = after.get(f"/api/runs/{run_id}")
        return answer.status_code == 200 and answer.json()["state"] == "succeeded"

    wait(succeeded)


@pytest.mark.parametrize(("how", "why"), [pytest.param(*HOW[0], marks=pytest.mark.long), HOW[1]])
def test_serve_ends_when_its_server_has_ended(how: str, why: str, breakable: Breakable, town: Path) -> None:
    """A single line and exit 70, and streams end; the record is unchanged."""
    process = breakable.start(how, "serve", "--record", town)
    with (
        httpx.Client(timeout=LIMIT_S, trust_env=False) as client,
        client.stream("GET", f"{process.url}/api/stream") as answer,
    ):
        assert answer.status_code == 200
        pieces = answer.iter_raw()
        assert next(pieces)
        breakable.breaks()
        try:
            rest = b"".join(pieces)
        except httpx.TransportError:  # cut off, and not ended: a client comes back either way
            rest = b""
        assert not rest.strip()
    assert process.ended() == BUG
    assert process.err == [
        f"steno: bug in Steno: ServerFailed: {why}; please report it (STENO_DEBUG=1 prints the traceback)"
    ]
    with Record.open(town, shapes=READINGS.shape, clock=SystemClock()) as record:
        assert record.verify().ok


@pytest.mark.parametrize("command", ["up", "serve"])
def test_the_place_of_the_mistake_can_be_seen(command: str, breakable: Breakable, town: Path) -> None:
    """As the line says: with STENO_DEBUG=1, down to what failed."""
    process = breakable.start("raises", command, "--record", town, STENO_DEBUG="1")
    breakable.breaks()
    assert process.ended() == BUG
    assert any("in on_tick" in line for line in process.err)
    assert process.err[-1].startswith("steno: bug in Steno: ")


def test_a_server_that_fails_before_it_began_is_told_too(breakable: Breakable, started: Starts, tmp_path: Path) -> None:
    """Nothing is served, and no line says that it serves."""
    breakable.breaks()
    process = started("up", "--record", tmp_path / "r.db", program=(DRIVER, tmp_path / "now", "raises"))
    assert process.ended() == BUG
    assert [line for line in process.err if BROKEN in line] == process.err != []
