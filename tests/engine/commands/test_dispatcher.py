"""What a submission is told whose outcome another process owes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from stenotest.records import StandingClock

from engine.commands.dispatcher import Dispatcher
from engine.errors import ProviderUnreachable
from engine.fold.outbox import Outbox
from engine.fold.sources import Source
from events.clock import SECOND

DOWN = "Unable to contact slurm controller"


def waiting(silent: dict[str, int]) -> Dispatcher:
    """Beside a holder that does not act; accounting answers all the time, the witnesses in `silent` do not."""
    clock, source = StandingClock(), Source(name="slurm/lab", last_answered=0, silent=silent)
    failure = SimpleNamespace(position=7)
    record = SimpleNamespace(
        read=lambda **_: iter([failure] if silent else []), poll=lambda _: SimpleNamespace(error=DOWN, status=1)
    )
    recorder: Any = SimpleNamespace(
        source="slurm/lab",
        hold=lambda: False,
        catch_up=lambda: None,
        world=SimpleNamespace(state=SimpleNamespace(sources={"slurm/lab": source})),
        journal=SimpleNamespace(record=record, ledger=Outbox),
        actor=None,
        effects=None,
        clock=clock,
    )
    return Dispatcher(recorder)


def test_a_controller_that_is_away_is_blamed_though_accounting_answers() -> None:
    """Once the time is up: before, the holder may be at work."""
    with pytest.raises(ProviderUnreachable, match=f"slurm/lab does not answer .*{DOWN}"):
        waiting({"controller": 0}).submitted("a-run", 60 * SECOND)


def test_a_holder_that_is_slow_is_no_outage() -> None:
    assert waiting({}).submitted("a-run", 60 * SECOND) is None
