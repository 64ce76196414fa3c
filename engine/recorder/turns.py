"""Several recorders in one thread, on one world: each goes on with its round when its answer has come."""

from collections.abc import Callable
from contextlib import suppress

from engine.recorder.recorder import Recorder, Round, Rounds
from events.clock import SECOND
from events.errors import LeaseLost

_LONGEST = 60 * SECOND  # microseconds: no pause is longer, unless the clock was set back


class Turns:
    """The rounds of one recorder, one after the other."""

    def __init__(self, recorder: Recorder, after: Callable[[Round, bool], None]) -> None:
        """`after` is called with each round and whether the lease was held before it."""
        self.recorder = recorder
        self._after = after
        self._steps: Rounds | None = None
        self._due = 0
        self._asked = -1  # the requests in the record before the last round
        self._held = False
        self.leaving = False

    def step(self) -> None:
        """Do what is due, without a wait. Raises what `Recorder.watch` raises; the round is then over."""
        recorder = self.recorder
        try:
            while recorder.effects.attend(0):
                pass
            if self._steps is not None:
                answer = recorder.effects.answer()
                if answer is None:
                    return
                if answer.error is not None:
                    raise answer.error
                self._go_on(answer.value)
            elif self.leaving:
                self._leave()
            elif self._is_due():
                self._held, self._asked = recorder.holds, recorder.live.state.outbox.asked
                self._steps = recorder.watching()
                self._go_on(None)
            else:
                recorder.report()
        except BaseException:
            self._steps, self._due = None, recorder.clock.now() + 2 * SECOND
            raise

    def expect_lease(self) -> None:
        """Drop a lease that is lost: bound to the record, it would void the appends of every other source too."""
        if self._steps is None and self.recorder.holds:
            self.recorder.hold()

    def leave(self) -> None:
        """Hand the source over: no new round and no new effect; the lease is free when those under way have ended."""
        if not self.leaving and self.recorder.holds:
            self.recorder.effects.drain()
        self.leaving = True

    def stay(self) -> None:
        """Record it again, once it is handed over if that has begun."""
        self.leaving = self.leaving and self.recorder.holds

    def end(self, why: str) -> None:
        """Free the lease now; calls under way get a moment."""
        self._steps = None
        if self.recorder.holds:
            with suppress(LeaseLost):  # another process acts by now, which this one did not notice yet
                self.recorder.stopped(why)
        self.recorder.release()

    def _leave(self) -> None:
        if self.recorder.holds and not self.recorder.effects.busy:
            self.end("another recorder takes its share")

    def _is_due(self) -> bool:
        now = self.recorder.clock.now()
        return self.recorder.live.state.outbox.asked != self._asked or not now < self._due <= now + _LONGEST

    def _go_on(self, result: object) -> None:
        assert self._steps is not None  # noqa: S101 - of `step`
        recorder = self.recorder
        try:
            recorder.effects.ask(self._steps.send(result))
        except StopIteration as end:
            found: Round = end.value
            self._steps, self._due = None, recorder.clock.now() + found.pause
            self._after(found, self._held)
