"""A record that is replaced under its service: 503 until a restart, nothing accepted; its streams know afterwards."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import psycopg
import pytest
from stenotest.waiting import wait

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.copying import copy, restore
from steno.events.store.record import Batch, Record
from steno.events.store.store import store_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from conftest import Serve, Served


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.long)])
def place(request: pytest.FixtureRequest, town: Path) -> Path | str:
    """A record with runs and machines, on each store."""
    if request.param == "sqlite":
        return town
    url: str = request.getfixturevalue("postgres_url")
    copied(town, url)
    return url


def copied(source: str | Path, target: str | Path) -> None:
    copy(store_at(source), store_at(target), clock=SystemClock(), progress=lambda *_: None)


def tell(place: Path | str, *numbers: int) -> None:
    """Something happens."""
    with Record.open(place, clock=SystemClock(), write=True) as record:
        for number in numbers:
            fact = types.RecorderStarted(source="dstack", software=str(number))
            record.append_many([Batch("source/dstack", [fact])])


def put(backup: Path, place: Path | str) -> None:
    """The restore of an administrator by hand: another file at the name, the dump's tables in the schema."""
    if isinstance(place, Path):
        for ending in ("-wal", "-shm"):
            Path(f"{place}{ending}").unlink(missing_ok=True)
        shutil.copy(backup, f"{backup}.new")
        Path(f"{backup}.new").rename(place)
        return
    with psycopg.connect(place, autocommit=True) as database:
        database.execute("DROP SCHEMA steno CASCADE")
    copied(backup, place)


def head_of(place: Path | str) -> int:
    with Record.open(place, clock=SystemClock()) as record:
        return record.head().position


def refused(here: Served) -> httpx.Response:
    """The first answer of a read that is none."""
    return wait(lambda: answer if (answer := here.client.get("/api/runs")).status_code != 200 else None)


@pytest.mark.parametrize("goes_on", [False, True])
def test_a_record_restored_under_its_service_is_served_no_more(
    served: Serve, place: Path | str, tmp_path: Path, goes_on: bool
) -> None:
    """Nothing of the lost world is answered, nothing is accepted into the other record, and no thread dies of it."""
    backup = tmp_path / "backup.db"
    copied(place, backup)
    tell(place, 1, 2, 3)
    here = served(place)
    assert here.client.get("/api/runs", params={"min_position": head_of(place)}).status_code == 200
    put(backup, place)
    if goes_on:
        tell(place, *range(9))
    answer = refused(here)
    assert (answer.status_code, "replaced" in answer.json()["detail"]) == (503, True), answer.text
    run = {"configuration": {"type": "task", "commands": ["true"]}}
    for answer in (here.client.post("/api/runs", json=run), here.client.get("/api/stream"), here.client.get("/readyz")):
        assert answer.status_code == 503, answer.text
    assert here.client.get("/healthz").status_code == 200
    with Record.open(place, clock=SystemClock()) as record:
        assert not [stored for stored in record.read(after=head_of(backup)) if stored.type == "RunRequested"]


def leave(place: Path | str) -> None:
    """End the connections of a service that ran in this process, as the end of its process would."""
    if not isinstance(place, Path):
        with psycopg.connect(place, autocommit=True) as database:
            database.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )


def ids(lines: Iterator[str]) -> Iterator[str]:
    return (line.removeprefix("id: ") for line in lines if line.startswith("id: "))


def test_the_id_of_a_lost_event_says_from_where_to_read_again(served: Serve, place: Path | str, tmp_path: Path) -> None:
    """Behind the end of the restored record, and once that has gone on beyond it; what both have goes on as ever."""
    backup = tmp_path / "backup.db"
    tell(place, 0)
    copied(place, backup)
    tell(place, 1, 2, 3)
    common = head_of(backup)
    here = served(place)
    with here.client.stream("GET", "/api/stream", params={"after": common - 1}) as response:
        sent = ids(response.iter_lines())
        shared, *_, lost = (next(sent) for _ in range(4))
    assert (shared.split("-")[0], lost.split("-")[0]) == (str(common), str(common + 3))
    here.stop()
    leave(place)
    restore(store_at(backup), store_at(place), clock=SystemClock(), progress=lambda *_: None)
    for more in ((), range(9)):
        tell(place, *more)
        here = served(place)
        answer = here.client.get("/api/stream", headers={"Last-Event-ID": lost})
        assert answer.status_code == 410, answer.text
        assert (answer.json()["type"], answer.json()["last_common_position"]) == ("stream-epoch", common)
        for known in (shared, str(common)):
            with here.client.stream("GET", "/api/stream", headers={"Last-Event-ID": known}) as response:
                assert next(ids(response.iter_lines())).split("-")[0] == str(common + 1)
        here.stop()
