"""A project for the dashboard to show: its record, and how it goes on."""

from __future__ import annotations

import shutil
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from stenotest.big import polls
from stenotest.waiting import wait

from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.events.clock import SECOND, SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from steno.events.poll import Poll

HOURS = 2
_ROUNDS = (HOURS * 3600 - 300) // 5


def told(client: httpx.Client, path: str, **params: Any) -> Any:
    """The answer of a service that has just begun, once its read models are there."""
    wait(lambda: client.get(path, params=params).status_code != 503, "the read models")
    answer = client.get(path, params=params)
    assert answer.status_code == 200, answer.text
    return answer.json()


@cache
def _begun(folder: Path) -> tuple[Poll, ...]:
    """Makes the record of a busy project with read models and snapshot, once a process; the polls that follow it."""
    path = folder / "record.db"
    story = polls(SystemClock().now() - HOURS * 3600 * SECOND)
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        record.append_polls(tuple(islice(story, _ROUNDS * 2)))
        with caught_up(record):
            LiveWorld(READINGS, record, keep=True).catch_up()
            return tuple(islice(story, 200))


class Busy:
    """The record of a busy project: two hours of it, up to some minutes ago, and what comes then.

    The record is a copy, in `folder`, of the record that is made once in `begun`.
    """

    def __init__(self, folder: Path, begun: Path) -> None:
        self._later = iter(_begun(begun))
        shutil.copytree(begun, folder)
        self.path = folder / "record.db"

    def goes_on(self, rounds: int = 50) -> int:
        """So many more looks at it, all at once, 100 in all at most; the head afterwards."""
        with Record.open(self.path, write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            record.append_polls(tuple(islice(self._later, rounds * 2)))
            return record.head().position
