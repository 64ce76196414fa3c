"""Several controllers in one thread, on one world: each goes on with its round when its answer has come."""

from collections.abc import Callable

from steno.engine.control.controller import Controller, Round, Rounds
from steno.events.clock import SECOND

_LONGEST = 60 * SECOND  # microseconds: no pause is longer, unless the clock was set back


class RoundRobin:
    """The rounds of one recorder, one after the other."""

    def __init__(self, controller: Controller, after: Callable[[Round, bool], None]) -> None:
        """`after` is called with each round and whether the lease was held before it."""
        self.controller = controller
        self._after = after
        self._steps: Rounds | None = None
        self._due = 0
        self._asked = -1  # the requests in the record before the last round
        self._held = False
        self.leaving = False

    def step(self) -> None:
        """Do what is due, without a wait. Raises what `Controller.watch` raises; the round is then over."""
        controller = self.controller
        try:
            while controller.effects.attend(0):
                pass
            if self._steps is not None:
                answer = controller.effects.answer()
                if answer is None:
                    return
                if answer.error is not None:
                    raise answer.error
                self._go_on(answer.value)
            elif self.leaving:
                self._leave()
            elif self._is_due():
                self._held, self._asked = controller.holds, controller.live.state.outbox.asked
                self._steps = controller.watching()
                self._go_on(None)
            else:
                controller.report()
        except BaseException:
            self._steps, self._due = None, controller.clock.now() + 2 * SECOND
            raise

    def expect_lease(self) -> None:
        """Drop a lease that is lost: bound to the record, it would void the appends of every other source too."""
        if self._steps is None and self.controller.holds:
            self.controller.hold()

    def leave(self) -> None:
        """Hand the source over: no new round and no new effect; the lease is free when those under way have ended."""
        if not self.leaving and self.controller.holds:
            self.controller.effects.drain()
        self.leaving = True

    def stay(self) -> None:
        """Record it again, once it is handed over if that has begun."""
        self.leaving = self.leaving and self.controller.holds

    def end(self, why: str) -> None:
        """Free the lease now; calls under way get a moment."""
        self._steps = None
        self.controller.stopped(why)
        self.controller.release()

    def _leave(self) -> None:
        if self.controller.holds and not self.controller.effects.busy:
            self.end("another recorder takes its share")

    def _is_due(self) -> bool:
        now = self.controller.clock.now()
        return self.controller.live.state.outbox.asked != self._asked or not now < self._due <= now + _LONGEST

    def _go_on(self, result: object) -> None:
        assert self._steps is not None  # noqa: S101 - of `step`
        controller = self.controller
        try:
            controller.effects.ask(self._steps.send(result))
        except StopIteration as end:
            done: Round = end.value
            self._steps, self._due = None, controller.clock.now() + done.pause
            self._after(done, self._held)
