"""Requests for levers: of equal requests at once one is recorded."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from stenotest.decided_record import DecidedRecord

from steno.engine.errors import LeverNotFound
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.world import World
from steno.engine.submit.levers import Look, pull, refuse_form, release
from steno.events.clock import SystemClock
from steno.events.errors import UnreadableInput
from steno.events.levers import LeverPulled
from steno.events.store.record import Record


def test_of_equal_requests_at_once_one_is_recorded(tmp_path: Path) -> None:
    """All are told the same lever; of releases at once one finds it in force."""
    site = DecidedRecord(tmp_path)

    def looking(record: Record) -> Look:
        live = LiveWorld(READINGS, record)

        @contextmanager
        def look() -> Iterator[tuple[World, int]]:
            live.catch_up()
            yield live.state, 0

        return look

    def pulls(number: int) -> str:
        with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            wanted = LeverPulled(lever_id=f"l{number}", action="pause", why="so", by="ada")
            return pull(Journal(record), wanted, looking(record))[0].lever_id

    def releases(lever_id: str) -> bool:
        with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            try:
                release(Journal(record), lever_id, why="", by="bob", look=looking(record))
            except LeverNotFound:
                return False
            return True

    with ThreadPoolExecutor(4) as four:
        (lever_id,) = set(four.map(pulls, range(4)))
        assert sorted(four.map(releases, [lever_id] * 4)) == [False, False, False, True]
    names = [stored.type for stored in site.record.read()]
    assert (names.count("LeverPulled"), names.count("LeverReleased")) == (1, 1)


def test_a_lever_takes_a_model_and_no_number() -> None:
    """A pause of eight GPUs would hold back nothing, and a run asks for a range."""
    wanted = LeverPulled(lever_id="l", action="pause", why="x", by="ada", gpu="amd:mi300x:8")
    with pytest.raises(UnreadableInput, match="`gpu` is a model without a number: MI300X, not amd:mi300x:8"):
        refuse_form(wanted)
    refuse_form(msgspec.structs.replace(wanted, gpu="amd:mi300x"))
