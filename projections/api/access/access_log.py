"""One log line per answer: method, path, status, duration, caller. Never the query, a header or a body."""

import contextlib
import functools
import logging
import threading
from collections import deque
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from starlette.types import Scope

from steno.events.clock import SECOND
from steno.projections.api.token_store import without_secrets
from steno.projections.api.tokens import Caller

_log = logging.getLogger("steno.access")
_KEPT: Final = 10_000  # waiting lines; where the log of whoever embeds the service blocks, the oldest are left out
_PAUSE: Final = 0.2  # seconds between writes
_LONGEST: Final = 200
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})  # polled by machines: only errors are logged

_Line = tuple[int, str, bytes, int, int, str]


class AccessLog:
    """Writes in its own thread: a blocked terminal delays no request."""

    def __init__(self) -> None:
        self._lines: deque[_Line] = deque(maxlen=_KEPT)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if _log.isEnabledFor(logging.INFO):
            self._thread = threading.Thread(target=self._run, name="steno-access-log", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def answered(self, scope: Scope, status: int, caller: Caller | None, at: int, took: int) -> None:
        """Log one answer: `at` in microseconds UTC, `took` in microseconds."""
        if self._thread is None or (scope["path"] in _QUIET and status < 400):
            return
        name = "-" if caller is None else caller.name
        self._lines.append((at, scope["method"], scope["raw_path"], status, took, name))

    def _run(self) -> None:
        with contextlib.suppress(OSError):  # the log is closed
            while not self._stopping.wait(_PAUSE):
                self._write()
            self._write()

    def _write(self) -> None:
        lines: list[tuple[int, str]] = []
        while self._lines:
            at, method, path, status, took, caller = self._lines.popleft()
            lines.append((at, f"{method} {_shown(path)} {status or '-'} {took / 1000:.1f} ms {caller}"))
        for handler in logging.getLogger().handlers if lines else ():
            _emit(handler, lines)


@functools.lru_cache(maxsize=1024)
def _shown(path: bytes) -> str:
    text = path.decode("ascii", "backslashreplace")
    if "%" in text:
        text = unquote(text)  # a token is one in any spelling
    text = without_secrets(text if text.isprintable() else ascii(text))
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _emit(handler: logging.Handler, lines: Sequence[tuple[int, str]]) -> None:
    if hasattr(handler, "emit_many"):  # our own: lines one at a time cost more than the answers
        handler.emit_many(logging.INFO, lines)
        return
    for at, text in lines if handler.level <= logging.INFO else ():
        record = _log.makeRecord(_log.name, logging.INFO, __file__, 0, text, (), None)
        record.created, record.msecs = at / SECOND, at // 1000 % 1000
        handler.handle(record)
