"""Makes the calls of effects beside the polls, so that polls keep their pace (docs/adr/0029). An effect is a generator:
it yields each call to the provider and does everything else, above all the appends, itself. Only the recorder's thread
runs effects: record, outbox, vault and world belong to that thread.
"""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from steno.engine.errors import ProjectNotFound, ProviderError, ProviderRefused, ProviderUnreachable
from steno.events.clock import SECOND, Clock
from steno.events.errors import StenoError

Call = Callable[[], object]
Effect = Generator[Call, Any, object]  # gets each call's result or error; returns whether it has an outcome
T = TypeVar("T")

AT_ONCE = 4  # effects of one lane under way at once: more would only queue up at the server
GLANCE = SECOND // 10  # microseconds between looks at what other processes append, while a call is awaited
DRAIN_TIMEOUT = 10 * SECOND  # how long an ending process waits for calls under way; their intents stay open


@dataclass(frozen=True, slots=True)
class Result:
    value: object = None
    error: Exception | None = None

    @classmethod
    def of(cls, call: Call) -> "Result":
        try:
            return cls(call())
        except Exception as error:  # noqa: BLE001 - raised again where the effect goes on
            return cls(error=error)


class Executor:
    """Makes each call in a thread; threads are reused."""

    def __init__(self, notify: Callable[[], None] = lambda: None) -> None:
        """`notify`: called in the call's thread when its result is there."""
        self._notify = notify
        self._calls: SimpleQueue[tuple[str, Call] | None] = SimpleQueue()
        self._results: SimpleQueue[tuple[str, Result]] = SimpleQueue()
        self._threads = 0
        self._busy = 0

    def make(self, key: str, call: Call) -> Result | None:
        """Make a call; None: `finished` will give its result."""
        self._busy += 1
        if self._busy > self._threads:
            self._threads += 1
            # A daemon: a process that ends does not wait for a server that hangs.
            threading.Thread(target=self._run, name="steno-call", daemon=True).start()
        self._calls.put((key, call))
        return None

    def finished(self, wait: int) -> tuple[str, Result] | None:
        """The next result; None: none came within `wait` microseconds."""
        try:
            result = self._results.get(timeout=wait / SECOND) if wait > 0 else self._results.get_nowait()
        except Empty:
            return None
        self._busy -= bool(result[0])  # "": of `wake`
        return result

    def wake(self) -> None:
        """End a wait for the next result; from any thread."""
        self._results.put(("", Result()))

    def close(self) -> None:
        """End idle threads; does not wait for calls under way."""
        for _ in range(self._threads - self._busy):
            self._calls.put(None)
        self._threads = self._busy

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            key, call = given
            self._results.put((key, Result.of(call)))
            self._notify()


class Effects:
    """Effects under way: at most one of each run and machine, and `AT_ONCE` of each lane. What cannot start does not
    wait here: it stays open in the record and is found there again.
    """

    def __init__(
        self,
        executor: Executor,
        clock: Clock,
        *,
        ended: Callable[[], None] | None = None,
        idle: Callable[[], None] = lambda: None,
        expect: Callable[[], None] = lambda: None,
    ) -> None:
        """`ended` is called when an effect that waited for a call has ended, so that others can start; `idle` now and
        then while a poll is awaited; `expect` in the call's thread right before each call of an effect, and it raises
        if the call must not be made.
        """
        self._expect = expect
        self._idle = idle
        self._executor = executor
        self._clock = clock
        self._ended = ended
        self._started: dict[str, tuple[str, Effect]] = {}  # by run or machine: lane and effect
        self._closed = False
        self._refilling = False
        self._polls = 0
        self._asked = ""  # the key of the poll that is awaited
        self._answer: Result | None = None
        self.errors: dict[str, StenoError] = {}  # why the newest effect of a run or machine has no outcome
        self.unreachable = False  # the provider was unreachable or refused us since this was last False

    def has(self, key: str) -> bool:
        return key in self._started

    @property
    def busy(self) -> bool:
        return bool(self._started)

    def full(self, lane: str) -> bool:
        return self._closed or sum(started == lane for started, _ in self._started.values()) >= AT_ONCE

    def start(self, lane: str, key: str, effect: Effect) -> bool:
        """Start an effect and run it to its first call, or to its end; whether it has an outcome. Does nothing if one
        of that run or machine is under way, if the lane is full, or if the newest effect failed and no new round began:
        the provider is not asked again without a pause.
        """
        if self.has(key) or self.full(lane) or (self._refilling and key in self.errors):
            return False
        self.errors.pop(key, None)
        self._started[key] = lane, effect
        return self._go_on(key, Result())

    def attend(self, wait: int) -> bool:
        """Continue the effect whose call ends next; False: no call ended within `wait` microseconds."""
        finished = self._executor.finished(wait)
        if finished is None:
            return False
        self._take(*finished)
        return True

    def wake(self) -> None:
        """End a wait in `attend`; from any thread."""
        self._executor.wake()

    def wait(self, duration: int, until: Callable[[], bool] = lambda: False) -> None:
        """Continue effects for `duration` microseconds, or until `until` holds."""
        left, before = duration, self._clock.now()
        while left > 0 and not until():
            self.attend(left)
            now = self._clock.now()
            left, before = left - max(0, now - before), now  # a clock set back adds at most `duration`

    def beside(self, call: Callable[[], T]) -> T:
        """The result of a call; effects go on meanwhile."""
        self.ask(call)
        while (result := self.answer()) is None:
            finished = self._executor.finished(GLANCE)
            if finished is None:
                self._idle()
            else:
                self._take(*finished)
        if result.error is not None:
            raise result.error
        return result.value  # type: ignore[return-value]

    def ask(self, call: Call) -> None:
        """Make a call whose result `answer` gives, after `attend` met it. One at a time: an earlier one is dropped."""
        self._polls += 1
        self._asked = f"poll/{self._polls}"
        self._answer = self._executor.make(self._asked, call)

    def answer(self) -> Result | None:
        """The result of the call that was asked last; None: it is not there yet, or was given already."""
        answer, self._answer = self._answer, None
        return answer

    def drain(self) -> None:
        """Start nothing more, without a wait; `close` then ends it."""
        self._closed = True

    def close(self) -> bool:
        """Start nothing more and wait up to `DRAIN_TIMEOUT` for calls under way; False: one is still under way."""
        self._closed = True
        try:
            self.wait(DRAIN_TIMEOUT, until=lambda: not self._started)
        finally:
            self._executor.close()
        self._closed = bool(self._started)
        return not self._closed

    def _take(self, key: str, result: Result) -> None:
        if key == self._asked:
            self._answer = result
        if key not in self._started:
            return  # a poll, perhaps of a round that was aborted
        self._go_on(key, result)
        if key not in self._started and self._ended is not None and not (self._closed or self.unreachable):
            self._refilling = True
            try:
                self._ended()
            finally:
                self._refilling = False

    def _checked(self, call: Call) -> object:
        self._expect()
        return call()

    def _go_on(self, key: str, result: Result | None) -> bool:
        """Continue the effect until a call is made elsewhere, or to its end."""
        _, effect = self._started[key]
        while result is not None:
            try:
                call = effect.send(result.value) if result.error is None else effect.throw(result.error)
                result = self._executor.make(key, partial(self._checked, call))
            except BaseException as error:
                del self._started[key]
                if isinstance(error, StopIteration):
                    return bool(error.value)
                if not isinstance(error, ProviderError | ProjectNotFound | ProviderUnreachable | ProviderRefused):
                    raise
                self.errors[key] = error
                self.unreachable = self.unreachable or isinstance(error, ProviderUnreachable | ProviderRefused)
                return False
        return False
