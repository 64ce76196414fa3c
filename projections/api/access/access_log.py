"""A line in the log for every answer: method, path, status, how long, who. Never the query, a header or a body."""

from __future__ import annotations

import contextlib
import functools
import logging
import threading
from collections import deque
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable
from urllib.parse import unquote

from events.clock import SECOND
from projections.api.access.token_file import without_secrets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from starlette.types import Scope

    from events.clock import Clock
    from projections.api.access.who import Who

_log = logging.getLogger("steno.access")
_KEPT: Final = 10_000
"""Lines that wait to be written; where the log stands still the oldest are dropped, and counted."""
_PAUSE: Final = 0.2
"""Seconds between writing."""
_LONGEST: Final = 200
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})
"""Asked every few seconds by machines: told only where the answer is no good one."""

_Line = tuple[int, str, bytes, int, int, str]


@runtime_checkable
class TakesMany(Protocol):
    """A handler that writes many lines at once: one at a time they cost more than the answers they tell of."""

    def emit_many(self, level: int, lines: Sequence[tuple[int, str]]) -> None:
        """Write lines of that level, each as of its moment (microseconds, UTC)."""
        ...


class AccessLog:
    """Written by a thread of its own: a terminal that stands still holds no request up."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lines: deque[_Line] = deque(maxlen=_KEPT)
        self._taken = 0
        self._written = 0
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to write, if anybody listens."""
        if _log.isEnabledFor(logging.INFO):
            self._thread = threading.Thread(target=self._run, name="steno-access-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Write the rest, and end."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def answered(self, scope: Scope, status: int, who: Who | None, at: int, took: int) -> None:
        """Tell of one answer: when it was given (microseconds, UTC), and how many microseconds it took."""
        if self._thread is None or (scope["path"] in _QUIET and status < 400):
            return
        name = "-" if who is None else who.name
        self._lines.append((at, scope["method"], scope["raw_path"], status, took, name))
        self._taken += 1

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # nobody reads the log any more
            while not self._stopping.wait(_PAUSE):
                self._write()
            self._write()

    def _write(self) -> None:
        lines: list[tuple[int, str]] = []
        while self._lines:
            line = self._lines.popleft()
            self._written += 1
            lines.append((line[0], _text(line)))
        lost = self._taken - self._written - len(self._lines)
        if lost > 0:
            self._written += lost
            lines.append((self._clock.now(), f"{lost} requests are not told: the log was too slow"))
        if lines:
            _emit(lines)


def _text(line: _Line) -> str:
    _, method, path, status, took, who = line
    return f"{method} {_shown(path)} {status or '-'} {took / 1000:.1f} ms {who}"


@functools.lru_cache(maxsize=1024)
def _shown(path: bytes) -> str:
    shown = path.decode("ascii", "backslashreplace")
    if "%" in shown:
        shown = unquote(shown)  # a token is one in any spelling
    shown = without_secrets(shown if shown.isprintable() else ascii(shown))
    return shown if len(shown) <= _LONGEST else shown[:_LONGEST] + "…"


def _emit(lines: Sequence[tuple[int, str]]) -> None:
    handlers = logging.getLogger().handlers
    many = [handler for handler in handlers if isinstance(handler, TakesMany)]
    for handler in many:
        handler.emit_many(logging.INFO, lines)
    if len(many) == len(handlers):
        return
    for at, text in lines:
        record = _log.makeRecord(_log.name, logging.INFO, __file__, 0, text, (), None)
        record.created, record.msecs = at / SECOND, at // 1000 % 1000
        for other in handlers:
            if other not in many and record.levelno >= other.level:
                other.handle(record)
