"""Moves of budget that people request at once: each is checked against those before it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from stenotest.decided_record import DecidedRecord

from steno.engine.errors import RefusedByPolicy
from steno.engine.live.journal import Journal
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import READINGS
from steno.engine.state.policy import OwnerLimit, Policy
from steno.engine.state.world import World
from steno.engine.submit.budget_moves import move_budget
from steno.events.budget_moves import BudgetMoved
from steno.events.clock import SystemClock
from steno.events.store.record import Record

POLICY = Policy(limits=tuple(OwnerLimit(owner=owner, budget=5) for owner in ("user/ada", "user/bob")))


def test_of_moves_at_once_all_that_fit_are_recorded(tmp_path: Path) -> None:
    """Ada has 5: of eight moves of 2 two fit, and the others are told what she has then."""
    site = DecidedRecord(tmp_path)

    def moves(number: int) -> str:
        with Record.open(tmp_path / "record.db", write=True, shapes=READINGS.shape, clock=SystemClock()) as record:
            live = LiveWorld(READINGS, record)

            @contextmanager
            def look() -> Iterator[tuple[World, Policy]]:
                live.catch_up()
                yield live.state, POLICY

            wanted = BudgetMoved(amount=2, from_owner="user/ada", to_owner="user/bob", why=str(number), by="eve")
            try:
                return str(move_budget(Journal(record), wanted, look))
            except RefusedByPolicy as error:
                return str(error)

    with ThreadPoolExecutor(8) as eight:
        answers = list(eight.map(moves, range(8)))
    assert sum(answer.isdecimal() for answer in answers) == 2
    assert {answer for answer in answers if not answer.isdecimal()} == {
        "user/ada has a budget of $0.000001, so $0.000002 cannot be moved"
    }
    assert [stored.type for stored in site.record.read()].count("BudgetMoved") == 2
