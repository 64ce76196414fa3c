"""A signal that raises in the middle of a call to PostgreSQL: the session goes on, and nothing is lost or doubled."""

from contextlib import suppress
from itertools import count
from typing import Any

import psycopg
import pytest

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.store.record import Batch, Record


class Interrupted(BaseException):
    """As what a signal raises in a recorder: no Exception."""


class Alarm:
    """Raises in the wait for the server's answer, the `at`-th from now on, once the question was sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = 0
        waits = psycopg.Connection.wait

        def wait(connection: Any, steps: Any, *given: Any, **named: Any) -> Any:
            self.at -= 1
            if self.at != 0:
                return waits(connection, steps, *given, **named)
            with suppress(StopIteration):
                next(steps)
            raise Interrupted

        monkeypatch.setattr(psycopg.Connection, "wait", wait)


def append(record: Record, why: str, fillers: int = 0) -> int:
    facts = [types.RecorderStopped(source="a/b", why=word) for word in (*["filler"] * fillers, why)]
    return record.append_many([Batch("source/a/b", facts)], durable=True)[-1]


@pytest.mark.filterwarnings("ignore:.*_exit_gen")  # the driver's pipeline complains when its connection was dropped
@pytest.mark.parametrize("fillers", [0, 40], ids=["single rows", "COPY"])
def test_a_session_goes_on_after_an_interruption_at_any_wait_of_an_append(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch, fillers: int
) -> None:
    """SIGTERM reached a recorder that then recorded its end: it hung, or was a bug in Steno."""
    alarm, interrupted, kept = Alarm(monkeypatch), 0, []
    with Record.open(postgres_url, write=True, create=True, clock=SystemClock()) as record:
        append(record, "first")
        for turn in count(1):
            alarm.at = turn
            try:
                append(record, f"perhaps {turn}", fillers)
            except Interrupted:
                interrupted = turn
            ended, alarm.at = alarm.at > 0, 0
            at = append(record, f"surely {turn}")
            kept.append(f"surely {turn}")
            assert record.event(at).why == f"surely {turn}"
            assert record.head().position == at
            if ended:  # the append has no more waits
                break
    assert interrupted >= 3
    with Record.open(postgres_url, clock=SystemClock()) as record:
        assert record.verify().ok
        whys = [stored.data.why for stored in record.read()]
    assert [why for why in whys if why.startswith("surely")] == kept
    assert max(whys.count(f"perhaps {turn}") for turn in range(1, turn + 1)) == 1
