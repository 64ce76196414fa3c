"""The loop of a recorder: when it looks again."""

import platform
from pathlib import Path
from typing import Any

import pytest
from stenotest.records import START, StandingClock, temporary_record

from cli.wiring.record_loop import PartFailed, record_forever
from engine.commands.submit import request_run
from engine.live.live_world import LiveWorld
from engine.policy import Policy
from engine.providers.local.provider import LocalProvider
from engine.providers.readings import READINGS
from engine.providers.task import Completed
from engine.recorder.interval import Pace
from engine.recorder.recorder import Recorder, Round
from events.clock import SECOND, RandomIds

HOUR = 3600 * SECOND


class Asked(Recorder):
    """Somebody asks for a run just after the first round has looked for what is asked for; each round has its time."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.rounds: list[int] = []

    def watch(self) -> Round:
        self.rounds.append(self.clock.now())
        found = super().watch()
        if len(self.rounds) == 1:
            request_run(
                self.journal,
                run_id=RandomIds().new(),
                provider="dstack",
                project="elsewhere",
                task=Completed(name="asked", configuration={"type": "task", "commands": ["true"]}, base="/"),
                submitter="ada",
            )
        return found


def test_what_is_asked_for_while_a_round_ends_is_not_slept_over(tmp_path: Path) -> None:
    """The next round comes at once, and not an hour later."""
    clock = StandingClock()
    host = platform.node() or "localhost"
    provider = LocalProvider(tmp_path / "local", clock=clock, ids=RandomIds(), host=host, environment={})
    with temporary_record(tmp_path, clock=clock) as record:
        recorder = Asked(
            live=LiveWorld(READINGS, record),
            provider=provider,
            clock=clock,
            policy=Policy(free=True),
            pace=Pace(fast=HOUR, slow=HOUR),
        )

        def twice() -> None:
            if len(recorder.rounds) == 2:
                raise PartFailed("enough was seen")

        with pytest.raises(PartFailed):
            record_forever(recorder, twice)
        recorder.release()
        assert recorder.rounds[1] - START < HOUR
