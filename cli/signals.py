"""Signals as exceptions that cannot be lost."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def stoppable(number: signal.Signals, error: type[BaseException]) -> Iterator[Callable[[], None]]:
    """While it lasts, the signal raises `error`; what it yields raises it again if the signal came before.

    An exception that a signal raises inside a destructor or a callback is printed and forgotten by Python: a loop that
    asks once a round does not go on for ever.
    """
    came = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        raise error

    def check() -> None:
        if came:
            raise error

    before = signal.signal(number, handle)
    try:
        yield check
    finally:
        signal.signal(number, before)
