"""Calls of effects made at once, in the caller's thread, so that one thing happens after another."""

from steno.engine.control.effects import Call, Executor, Result
from steno.events.clock import Clock


class InlineExecutor(Executor):
    """Makes each call where it is asked for; the pauses between calls are the clock's."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock

    def make(self, key: str, call: Call) -> Result | None:
        return Result.of(call)

    def finished(self, wait: int) -> tuple[str, Result] | None:
        self._clock.sleep(wait)
        return None
