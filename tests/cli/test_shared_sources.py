"""Several recorders share the sources of one record in PostgreSQL: evenly, and whoever dies or sleeps is followed."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from stenotest.command_line import refused

from events.clock import SECOND, SystemClock
from events.errors import RecordNotFound
from events.store.record import Record
from events.store.store import store_at

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from stenotest.command_line import Steno

    from events.store.holder import Holder

    Background = Callable[..., "subprocess.Popen[str]"]

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
            return {one.name: one for one in store.leases() if one.held and one.name in SOURCES}
        except RecordNotFound:
            return {}

    return held


def shares(held: dict[str, Holder]) -> list[int]:
    """How many sources each process holds, the most first."""
    return sorted(Counter(one.process for one in held.values()).values(), reverse=True)


def ends_soon(url: str, process: int) -> None:
    """Its leases, by the clock of the database: who looks every half second follows in time."""
    left = [one.seconds_left or 0 for one in store_at(url).leases() if one.process == process]
    assert max(left) < TAKE_OVER_S - 1


def processes(held: dict[str, Holder]) -> set[int]:
    return {one.process for one in held.values()}


@pytest.mark.slow
def test_sources_are_shared_evenly_and_taken_over_within_ten_seconds(
    steno: Steno,
    background: Background,
    until: Callable[..., None],
    postgres_url: str,
    holders: Callable[[], dict[str, Holder]],
) -> None:
    """One takes all; the second and third get their shares; the first is killed; the second sleeps through its leases,
    and what it does when it wakes has no effect.
    """
    first = background("record", *NAMED)
    until(lambda: shares(holders()) == [6])
    second = background("record", *NAMED)
    until(lambda: shares(holders()) == [3, 3])
    third = background("record", *NAMED)
    until(lambda: shares(holders()) == [2, 2, 2])
    assert processes(holders()) == {first.pid, second.pid, third.pid}

    first.send_signal(signal.SIGKILL)
    ends_soon(postgres_url, first.pid)
    until(lambda: first.pid not in processes(holders()) and shares(holders()) == [3, 3])
    before = holders()
    second.send_signal(signal.SIGSTOP)
    asleep = SystemClock().now() + SECOND
    ends_soon(postgres_url, second.pid)
    until(lambda: shares(holders()) == [6])
    after = holders()
    assert all(after[name].token > one.token for name, one in before.items() if one.process == second.pid)
    third.send_signal(signal.SIGSTOP)  # so that nobody but the sleeper can append, but for what is on its way
    stopped = SystemClock().now()
    with Record.open(postgres_url, clock=SystemClock()) as record:
        head = record.head().position
        second.send_signal(signal.SIGCONT)
        until(lambda: second.pid in processes(holders()) and record.head().position > head)
        held = [one.since or 0 for one in holders().values() if one.process == second.pid]
        for stored in record.read(after=head):  # not under its former leases
            assert stored.recorded_at >= min(held) or asleep < stored.recorded_at <= stopped, stored
    third.send_signal(signal.SIGCONT)
    until(lambda: shares(holders()) == [3, 3])
    second.terminate()
    assert second.wait() == 0
    until(lambda: shares(holders()) == [6])
    assert steno("verify").returncode == 0


def test_a_source_that_is_named_wrongly_is_one_line(steno: Steno) -> None:
    """Exit 2, with what to do."""
    assert "nosuch" in refused(steno("record", "--source", "nosuch/a"), 2)
    assert "leave --provider" in refused(steno("record", "--provider", "dstack", "--source", "dstack/a"), 2)


def test_one_recorder_of_a_local_source_runs_what_is_asked_for(
    steno: Steno, background: Background, until: Callable[..., None], home: Path
) -> None:
    """On SQLite too, beside a source that does not answer: neither waits for the other."""
    recorder = background("record", "--source", "local", "--source", "dstack/away", **NOBODY)
    until(lambda: "local/" in steno("workers").stdout)
    done = steno("submit", "--wait", "--provider", "local", "--", "echo", "it ran")
    assert (done.returncode, done.stdout.splitlines()[0]) == (0, "it ran"), done.stderr
    recorder.terminate()
    assert recorder.wait() == 0
    assert "RecorderStopped" in steno("events").stdout
