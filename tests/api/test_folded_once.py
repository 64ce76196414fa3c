"""In `steno up` an event is folded once: for recorder, controller, read models, streams and metrics together."""

import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from stenotest.command_line import SERVICE

from cli.wiring.app import App
from cli.wiring.http_service import serving
from cli.wiring.recorder import watching
from engine.fold.record_fold import RecordFold
from engine.fold.world import World
from engine.live.live_world import LiveWorld
from engine.providers.readings import READINGS
from engine.providers.registry import load_settings
from engine.recorder.interval import Pace
from events.clock import SECOND
from events.store.record import Record

DEADLINE = 300


def until(done: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


@pytest.mark.slow
def test_up_folds_each_event_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is submitted over HTTP, read from the read models, heard on the stream and counted in the metrics."""
    folded, folds = Counter[int](), set[int]()
    apply, apply_event, run = World.apply, World.apply_event, RecordFold.run

    def polled(self: World, tick: Any) -> Any:
        folded[tick.position] += 1
        return apply(self, tick)

    def happened(self: World, position: int, at: int, event: Any) -> Any:
        folded[position] += 1
        return apply_event(self, position, at, event)

    def ran(self: RecordFold, *given: Any, **named_: Any) -> None:
        folds.add(id(self))
        run(self, *given, **named_)

    app = App()
    app.flags = {"record": str(tmp_path / "record.db"), **SERVICE}
    nobody = tmp_path / "nobody"
    app.settings = load_settings(flags=app.flags, environ={}, cwd=nobody, home=nobody, config=nobody, data=nobody)
    live = LiveWorld(READINGS, keep=True)
    path = tmp_path / "record.db"
    with (
        Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=app.clock) as record,
        closing(app.provider("local", record.store)) as provider,
        serving(app, record.store, live) as server,
        watching(app, record, provider, live=live, pace=Pace(fast=SECOND // 20, slow=SECOND)) as recorder,
        httpx.Client(base_url=server.url_here, timeout=DEADLINE, trust_env=False) as client,
    ):
        recorder.watch()
        recorder.catch_up()
        begun = record.head().position
        assert begun  # read models at 0 are begun by a fold of their own
        until(lambda: client.get("/api/runs", params={"min_position": begun}).status_code == 200)
        monkeypatch.setattr(World, "apply", polled)
        monkeypatch.setattr(World, "apply_event", happened)
        monkeypatch.setattr(RecordFold, "run", ran)
        task = {"type": "task", "name": "one", "commands": ["true"]}
        accepted = client.post("/api/runs", json={"configuration": task}, headers={"Idempotency-Key": "one"})
        run_id = accepted.json()["run_id"]

        def ended() -> bool:
            recorder.watch()
            answer = client.get(f"/api/runs/{run_id}")
            return answer.status_code == 200 and answer.json()["state"] == "succeeded"

        until(ended)
        head = live.position
        until(lambda: client.get("/api/runs", params={"min_position": head}).status_code == 200)
        newest = max(one.position for one in record.read(stream=f"run/{run_id}"))  # the ring has it
        with client.stream("GET", "/api/stream", params={"after": newest - 1}) as response:
            assert next(line for line in response.iter_lines() if line.startswith("data: "))
        assert "steno_poll_duration_seconds" in client.get("/metrics").text
    assert head > begun
    assert folded
    assert {position: count for position, count in folded.items() if count > 1} == {}
    assert len(folds) == 1
