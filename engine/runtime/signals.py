"""Signals as exceptions that are not lost."""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130

_ROW = 1.0  # seconds in which signals are one


class Terminated(BaseException):
    """SIGTERM: stop in good order. No `except Exception` on the way takes it for a failure of its own."""


@contextmanager
def stoppable(number: signal.Signals, error: type[BaseException]) -> Iterator[Callable[[], None]]:
    """In the block, the signal raises `error`, and the yielded function raises it again if the signal has come: Python
    drops an exception raised in a destructor or callback, so loops call the function each round. Signals in a row raise
    once: a second exception would cut off the clean-up after the first.
    """
    came, raised = False, -_ROW
    unraisable = sys.unraisablehook

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal came, raised
        came, now = True, time.monotonic()
        if now - raised >= _ROW:
            raised = now
            raise error

    def check() -> None:
        if came:
            raise error

    def ours_is_told(lost: "sys.UnraisableHookArgs") -> None:
        if not (came and issubclass(lost.exc_type, error)):
            unraisable(lost)

    before = signal.signal(number, handle)
    sys.unraisablehook = ours_is_told
    try:
        yield check
    finally:
        sys.unraisablehook = unraisable
        signal.signal(number, before)


@contextmanager
def ending(code: int) -> Iterator[None]:
    """In the block the process shuts down in order: SIGTERM is ignored, another Ctrl-C exits at once with `code`."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def leave(_number: int, _frame: FrameType | None) -> None:
        os._exit(code)

    before = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGINT)]
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
