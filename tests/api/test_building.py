"""While the read models of a long record are built for the first time: every answer has the progress."""

from __future__ import annotations

import logging
import re
import signal
import threading
from typing import TYPE_CHECKING

import httpx
import pytest
from stenotest.records import read_models_file
from stenotest.waiting import LIMIT_S, wait

from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models import projection_writer as keeper
from steno.projections.read_models import projector as live
from steno.projections.read_models import reader_pool as pool
from steno.projections.read_models.projector import build
from steno.projections.read_models.read_models import ReadModels

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from conftest import Serve, Served, Starts
    from stenolab.browser import See

    from steno.projections.read_models.projection_writer import Progress


@pytest.fixture
def unread(town: Path) -> Path:
    """A record that nobody has read models of."""
    for file in town.parent.glob(f"{read_models_file(town).name}*"):
        file.unlink()
    return town


class Held:
    """A build that stands still after its first step, until it may go on."""

    def __init__(self) -> None:
        self._free = threading.Event()
        self._there = threading.Event()

    def build(self, record: Record, path: Path, progress: Progress) -> int:
        """As `steno.projections.read_models.projector.build`."""

        def step(done: int, total: int) -> None:
            progress(done, total)
            self._there.set()
            self._free.wait(LIMIT_S)
            progress(done, total)

        return build(record, path, step)

    def reached(self) -> None:
        """Wait until it stands still."""
        assert self._there.wait(LIMIT_S)

    def go_on(self) -> None:
        """Let it go on."""
        self._free.set()


@pytest.fixture
def held(served: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[Held]:
    """The services of this test build slowly, and report it as for a long record; they go on before they end."""
    made = Held()
    monkeypatch.setattr(keeper, "_CHUNK", 64)
    monkeypatch.setattr(live, "_LONG", 0)
    monkeypatch.setattr(pool, "_SOON", 0)
    monkeypatch.setattr(live, "build", made.build)
    yield made
    made.go_on()


def answered(here: Served, path: str = "/api/runs") -> Callable[[], bool]:
    """True once there is an answer."""
    return lambda: here.client.get(path).status_code == 200


def told(answer: httpx.Response) -> dict[str, int | None]:
    """How far it is, by a problem that is one in every respect."""
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem = answer.json()
    assert problem["title"] == "Service Unavailable"
    assert problem["detail"].startswith("The read models are being built: ")
    progress: dict[str, int | None] = problem["progress"]
    return progress


def test_a_read_is_told_how_far_it_is_and_when_to_come_again(served: Serve, unread: Path, held: Held) -> None:
    """Now and at a moment past; once they are there it is answered."""
    here = served(unread)
    held.reached()
    head = here.client.get("/readyz").json()["head"]
    for path in ("/api/runs", "/api/overview", f"/api/runs?at={head - 1}"):
        answer = here.client.get(path)
        assert told(answer) == {"done": 64, "total": head}
        assert f" {100 * 64 // head} %, 64 of {head:,} events. Ask again" in answer.json()["detail"]
    held.go_on()
    wait(answered(here))
    assert answered(here, f"/api/runs?at={head - 1}")()


def test_readiness_tells_it(served: Serve, unread: Path, held: Held) -> None:
    """As a reason and as figures; afterwards neither."""
    here = served(unread)
    held.reached()
    answer = here.client.get("/readyz")
    body = answer.json()
    assert (answer.status_code, body["status"]) == (503, "not_ready")
    assert body["building"] == {"done": 64, "total": body["head"]}
    assert any(reason.startswith("the read models are being built: ") for reason in body["reasons"])
    held.go_on()
    wait(answered(here, "/readyz"))
    assert here.client.get("/readyz").json()["building"] is None


def test_the_log_tells_it_step_by_step(
    served: Serve, unread: Path, held: Held, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever starts a service sees why nothing is shown yet: at most a line for each tenth, and one at the end."""
    caplog.set_level(logging.INFO, logger=live.__name__)
    here = served(unread)
    held.reached()
    held.go_on()
    wait(answered(here, "/readyz"))
    lines = [record.getMessage() for record in caplog.records if record.name == live.__name__]
    assert lines[0].startswith("building the read models: 0 %, 0 of ")
    assert lines[-1] == "the read models are built"
    steps = [int(line.split(": ")[1].split(" %")[0]) // 10 for line in lines[:-1]]
    assert steps == sorted(set(steps))
    assert len(steps) > 2


def test_while_another_process_builds_them_that_is_told(served: Serve, unread: Path, held: Held) -> None:
    """The progress of another process is unknown."""
    held.go_on()
    with ReadModels(unread).building():
        here = served(unread)
        wait(lambda: here.client.get("/readyz").json()["building"] is not None)
        answer = here.client.get("/api/runs")
        assert told(answer)["done"] is None
        assert "another process reads the " in answer.json()["detail"]
    wait(answered(here))


def test_an_end_meanwhile_leaves_nothing_half_built(unread: Path, held: Held) -> None:
    """The next build starts again."""
    projector = live.Projector(unread, clock=SystemClock())
    projector.start()
    held.reached()
    ending = threading.Thread(target=projector.stop)
    ending.start()
    wait(projector._stopping.is_set)
    held.go_on()
    ending.join(LIMIT_S)
    assert not ending.is_alive()
    assert projector.building is None
    assert not read_models_file(unread).exists()
    assert not [path for path in unread.parent.iterdir() if re.search(r"\.[0-9a-f]{8}(-wal|-shm)?$", path.name)]


def test_up_records_meanwhile(started: Starts, unread: Path) -> None:
    """Nobody is blind because pages are not there yet; and what is recorded has the history before it."""
    with ReadModels(unread).building():
        process = started("up", "--record", unread)
        wait(lambda: any(" recording " in line for line in process.out))
        wait(lambda: httpx.get(f"{process.url}/readyz", timeout=LIMIT_S).json()["building"] is not None)
        assert not read_models_file(unread).exists()
    wait(lambda: httpx.get(f"{process.url}/api/runs", timeout=LIMIT_S).status_code == 200)
    process.signal(signal.SIGTERM)
    assert process.ended(60) == 0
    assert process.err == []
    assert not [line for line in process.out if " succeeded" in line or " failed" in line]  # told when it happened


@pytest.mark.parametrize(
    "path", ["/", pytest.param("/runs", marks=pytest.mark.long), pytest.param("/record", marks=pytest.mark.long)]
)
def test_the_dashboard_shows_how_far_it_is_and_then_the_page(
    path: str, served: Serve, unread: Path, held: Held, see: See
) -> None:
    """Over whatever page was asked for, without an alarm and without anybody's reloading it."""
    here = served(unread)
    held.reached()
    seen = see(here.url)
    seen.page.goto(here.url + path)
    seen.until("document.querySelector('.building progress')")
    head = here.client.get("/readyz").json()["head"]
    text = seen.page.locator(".building").inner_text()
    assert f"Building the read models: {100 * 64 // head} %" in text
    assert f"64 of {head:,} events read." in text
    assert seen.page.locator("#page .problem").count() == 0
    held.go_on()
    seen.until("!document.querySelector('.building')")
    seen.settled()
    assert seen.page.locator("#page .problem").count() == 0
    assert all("503" in complaint for complaint in seen.complaints)  # the browser reports every failed answer
    assert seen.elsewhere() == []
