"""The loop of a recorder: when it looks again."""

import contextlib
import platform
import signal
from pathlib import Path
from typing import Any

import pytest
from stenotest.records import START, StandingClock, temporary_record

from steno.engine.control.controller import Controller, Round
from steno.engine.control.poll_interval import Pace
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.local.provider import LocalProvider
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.runtime.record_loop import PartFailed, record_forever
from steno.engine.runtime.signals import stoppable
from steno.engine.state.policy import Policy
from steno.engine.submit.requests import submit
from steno.events.clock import SECOND, RandomIds

HOUR = 3600 * SECOND


class Asked(Controller):
    """Somebody asks for a run just after the first round has looked for what is asked for; each round has its time."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.rounds: list[int] = []

    def watch(self) -> Round:
        self.rounds.append(self.clock.now())
        done = super().watch()
        if len(self.rounds) == 1:
            submit(
                self.journal,
                run_id=RandomIds().new(),
                provider="dstack",
                project="elsewhere",
                task=Completed(name="asked", configuration={"type": "task", "commands": ["true"]}, base="/"),
                submitter="ada",
            )
        return done


def test_what_is_asked_for_while_a_round_ends_is_not_slept_over(tmp_path: Path) -> None:
    """The next round comes at once, and not an hour later."""
    clock = StandingClock()
    host = platform.node() or "localhost"
    provider = LocalProvider(tmp_path / "local", clock=clock, ids=RandomIds(), host=host, environment={})
    with temporary_record(tmp_path, clock=clock) as record:
        controller = Asked(
            live=LiveWorld(READINGS, record),
            provider=provider,
            clock=clock,
            policy=Policy(free=True),
            pace=Pace(fast=HOUR, slow=HOUR),
        )

        def twice() -> None:
            if len(controller.rounds) == 2:
                raise PartFailed("enough was seen")

        with pytest.raises(PartFailed):
            record_forever(controller, twice)
        controller.release()
        assert controller.rounds[1] - START < HOUR


class Stop(Exception):
    """Raised by the signal."""


def send() -> None:
    """The signal, to this very thread: its handler runs before this returns."""
    signal.raise_signal(signal.SIGUSR1)


def test_the_signal_raises_where_it_comes() -> None:
    """At once."""
    with stoppable(signal.SIGUSR1, Stop), pytest.raises(Stop):
        send()


def test_a_signal_whose_exception_was_swallowed_is_raised_at_the_next_check() -> None:
    """Python forgets what is raised inside a destructor."""
    with stoppable(signal.SIGUSR1, Stop) as check:
        check()
        with contextlib.suppress(Stop):
            send()
        with pytest.raises(Stop):
            check()


def test_signals_in_a_row_raise_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second exception would cut off the clean-up after the first; a later signal raises again."""
    with stoppable(signal.SIGUSR1, Stop):
        with pytest.raises(Stop):
            send()
        send()
        monkeypatch.setattr("steno.engine.runtime.signals._ROW", 0.0)
        with pytest.raises(Stop):
            send()


def test_what_python_forgets_is_not_printed_and_is_raised_at_the_next_check() -> None:
    """A signal in a destructor: nothing on stderr (pytest would fail of it), and it is not lost."""

    class Last:
        def __del__(self) -> None:
            send()

    with stoppable(signal.SIGUSR1, Stop) as check:
        last = Last()
        del last
        with pytest.raises(Stop):
            check()


def test_afterwards_the_signal_means_what_it_meant_before() -> None:
    """Nothing is left behind."""
    before = signal.getsignal(signal.SIGUSR1)
    with stoppable(signal.SIGUSR1, Stop):
        assert signal.getsignal(signal.SIGUSR1) != before
    assert signal.getsignal(signal.SIGUSR1) == before
