"""Holders of sources, on both databases: who holds which, and how recorders share them."""

import json
import platform
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from stenotest.command_line import Background, Steno, refused
from stenotest.waiting import wait

from steno.events.clock import SECOND, SystemClock
from steno.events.errors import RecordNotFound
from steno.events.store.record import Record
from steno.events.store.store import Holder, store_at

SOURCE = f"local/{platform.node()}"


@pytest.fixture(params=["sqlite", "postgres"])
def record(request: pytest.FixtureRequest, environment: dict[str, str]) -> str:
    """The kind of database that every command of the test uses."""
    if request.param == "postgres":
        environment["STENO_RECORD"] = request.getfixturevalue("postgres_url")
    return str(request.param)


def lease(steno: Steno) -> dict[str, object] | None:
    """The object of the source's lease."""
    done = steno("workers", "--json")
    if done.returncode == 4:
        return None
    return next((lease for lease in json.loads(done.stdout)["leases"] if lease["lease"] == SOURCE), None)


def test_it_says_who_holds_a_source_and_who_held_it(steno: Steno, background: Background, record: str) -> None:
    """Process, host and token; after the holder ends the source is free, and the next holder has the next token."""
    controller = background("record")
    wait(lambda: (lease(steno) or {}).get("held"))
    held = lease(steno) or {}
    assert (held["process"], held["host"], held["token"]) == (controller.pid, platform.node(), 1)
    assert str(held["since"]).startswith("20")
    left = held["seconds_left"]
    assert left is None if record == "sqlite" else 0 < left < 10
    page = steno("workers").stdout
    assert f"{SOURCE}  held" in page
    assert str(controller.pid) in page
    wait(lambda: steno("polls").stdout)
    controller.send_signal(signal.SIGTERM)
    controller.wait()
    held = lease(steno) or {}
    assert (held["held"], held["process"]) == (False, controller.pid)
    assert f"nobody acts on {SOURCE}; `steno up --source {SOURCE}` takes over" in steno("workers").stderr
    second = background("record")
    wait(lambda: (lease(steno) or {}).get("held"))
    again = lease(steno) or {}
    assert (again["process"], again["token"]) == (second.pid, 2)
    assert again["worker"] != held["worker"]
    second.send_signal(signal.SIGKILL)
    second.wait()
    wait(lambda: not (lease(steno) or {"held": True})["held"])


def test_it_names_no_source_that_never_answered(steno: Steno, record: str) -> None:
    """A misspelled project, of which somebody held the lease once, is nobody's and nobody's to take over."""
    words = ("submit", "--provider", "dstack", "--image", "x", "--", "true")
    nowhere = {"STENO_DSTACK_URL": "http://127.0.0.1:9", "DSTACK_TOKEN": "x", "STENO_BUDGET": "off"}
    assert steno(*words, **nowhere, STENO_PROJECT="mian").returncode == 3
    done = steno("workers")
    assert (done.stdout, "mian" in done.stderr) == ("", False)
    assert json.loads(steno("workers", "--json").stdout) == {"leases": []}


def test_without_a_record_it_is_one_line(steno: Steno, record: str) -> None:
    """Exit 4, as every command that reads."""
    done = steno("workers")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 1)


SOURCES = tuple(f"dstack/p{number}" for number in range(6))
NAMED = tuple(word for source in SOURCES for word in ("--source", source))
NOBODY = {"STENO_DSTACK_URL": "http://127.0.0.1:1", "STENO_DSTACK_TOKEN": "none"}
"""A server that is down: its failed polls are recorded all the same."""
TAKE_OVER_S = 10.0


@pytest.fixture
def holders(environment: dict[str, str], postgres_url: str) -> Callable[[], dict[str, Holder]]:
    """`holders()`: the holder of each source that is held."""
    environment |= {"STENO_RECORD": postgres_url, **NOBODY}
    store = store_at(postgres_url)

    def held() -> dict[str, Holder]:
        try:
            return {lease.name: lease for lease in store.leases() if lease.held and lease.name in SOURCES}
        except RecordNotFound:
            return {}

    return held


def shares(held: dict[str, Holder]) -> list[int]:
    """How many sources each process holds, the most first."""
    return sorted(Counter(holder.process for holder in held.values()).values(), reverse=True)


def ends_soon(url: str, process: int) -> None:
    """Its leases, by the clock of the database: who looks every half second follows in time."""
    left = [lease.seconds_left or 0 for lease in store_at(url).leases() if lease.process == process]
    assert max(left) < TAKE_OVER_S - 1


def processes(held: dict[str, Holder]) -> set[int]:
    return {holder.process for holder in held.values()}


@pytest.mark.ci
@pytest.mark.slow
def test_sources_are_shared_evenly_and_taken_over_within_ten_seconds(
    steno: Steno,
    background: Background,
    postgres_url: str,
    holders: Callable[[], dict[str, Holder]],
) -> None:
    """The first takes all; the second and third get their shares; the first is killed; the second sleeps through its
    leases, and what it does when it wakes has no effect.
    """
    first = background("record", *NAMED)
    wait(lambda: shares(holders()) == [6])
    second = background("record", *NAMED)
    wait(lambda: shares(holders()) == [3, 3])
    third = background("record", *NAMED)
    wait(lambda: shares(holders()) == [2, 2, 2])
    assert processes(holders()) == {first.pid, second.pid, third.pid}

    first.send_signal(signal.SIGKILL)
    ends_soon(postgres_url, first.pid)
    wait(lambda: first.pid not in processes(holders()) and shares(holders()) == [3, 3])
    before = holders()
    second.send_signal(signal.SIGSTOP)
    asleep = SystemClock().now() + SECOND
    ends_soon(postgres_url, second.pid)
    wait(lambda: shares(holders()) == [6])
    after = holders()
    assert all(after[name].token > holder.token for name, holder in before.items() if holder.process == second.pid)
    third.send_signal(signal.SIGSTOP)  # so that nobody but the sleeper can append, but for what is on its way
    stopped = SystemClock().now()
    with Record.open(postgres_url, clock=SystemClock()) as record:
        head = record.head().position
        second.send_signal(signal.SIGCONT)
        wait(lambda: second.pid in processes(holders()) and record.head().position > head)
        held = [holder.since or 0 for holder in holders().values() if holder.process == second.pid]
        for stored in record.read(after=head):  # not under its former leases
            assert stored.recorded_at >= min(held) or asleep < stored.recorded_at <= stopped, stored
    third.send_signal(signal.SIGCONT)
    wait(lambda: shares(holders()) == [3, 3])
    second.terminate()
    assert second.wait() == 0
    wait(lambda: shares(holders()) == [6])
    assert steno("verify").returncode == 0


def test_a_source_that_is_named_wrongly_is_one_line(steno: Steno) -> None:
    """Exit 2, with what to do."""
    assert "nosuch" in refused(steno("record", "--source", "nosuch/a"), 2)
    assert "leave --provider" in refused(steno("record", "--provider", "dstack", "--source", "dstack/a"), 2)


def test_one_recorder_of_a_local_source_runs_what_is_asked_for(
    steno: Steno, background: Background, home: Path
) -> None:
    """On SQLite too, beside a source that does not answer: neither waits for the other."""
    controller = background("record", "--source", "local", "--source", "dstack/away", **NOBODY)
    wait(lambda: "local/" in steno("workers").stdout)
    done = steno("submit", "--wait", "--provider", "local", "--", "echo", "it ran")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "it ran"), done.stderr
    controller.terminate()
    assert controller.wait() == 0
    assert "RecorderStopped" in steno("events").stdout
