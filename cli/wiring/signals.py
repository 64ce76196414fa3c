"""Signals as exceptions that cannot be lost."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stoppable(number: signal.Signals, error: type[BaseException]) -> Iterator[Callable[[], None]]:
    """While it lasts, the signal raises `error`; what it yields raises it again if the signal came before.

    An exception that a signal raises inside a destructor or a callback is forgotten by Python: a loop that asks once a
    round does not go on for ever, and what Python would print of it is not shown.
    """
    came = False
    unraisable = sys.unraisablehook

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
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
    """While it lasts the process is ending in order: SIGTERM says nothing new, a further Ctrl-C ends it at once.

    Args:
        code: what the process leaves with then.
    """
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
