"""Log targets: commands that print data log to stderr; daemons log errors to stderr, the rest to stdout.

A daemon goes on when nobody reads its log, as a stopped terminal does: what does not fit is left out and counted.
"""

import contextlib
import functools
import logging
import select
import sys
import time
from collections.abc import Sequence
from typing import Final

import click

from steno.cli.render.paint import visible, visible_json
from steno.cli.wiring.terminal import colour_wanted

_PATIENCE: Final = 1000  # milliseconds that a daemon waits for a reader, once
_AT_ONCE: Final = 10  # lines: about what fits where a pipe says that it has room


def log_for_data() -> None:
    """Log warnings and errors to stderr; stdout is for data."""
    _install(_Handler(logging.WARNING, logging.CRITICAL, err=True, patience=None), level=logging.WARNING)


def log_for_daemon(*, json: bool = False) -> None:
    """Below ERROR to stdout, uncoloured; the rest to stderr, red on a terminal; `json`: lines as JSON objects."""
    _install(
        _Handler(logging.INFO, logging.ERROR - 1, err=False, json=json),
        _Handler(logging.ERROR, logging.CRITICAL, err=True, json=json),
        level=logging.INFO,
    )


class _Handler(logging.Handler):
    """Writes the levels from `lowest` to `highest` to stdout or stderr, one line per message.

    `patience`: milliseconds to wait for room; None: as long as it takes.
    """

    def __init__(
        self, lowest: int, highest: int, *, err: bool, json: bool = False, patience: int | None = _PATIENCE
    ) -> None:
        super().__init__(lowest)
        self._patience = patience
        self._missing = 0
        self._highest = highest
        self._err = err
        self._json = json

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line; of an exception only type and text, as a traceback never reaches a terminal."""
        text = record.getMessage()
        if record.exc_info and record.exc_info[0] is not None and not self._json:
            text += f" ({record.exc_info[0].__name__}: {record.exc_info[1]})"
        self.emit_many(record.levelno, [(round(record.created * 1_000_000), " ".join(text.splitlines()))])

    def emit_many(self, level: int, lines: Sequence[tuple[int, str]]) -> None:
        """Write lines (time in microseconds UTC, text) of one level at once."""
        if not self.level <= level <= self._highest:
            return
        with self.lock or contextlib.nullcontext():
            for first in range(0, len(lines), _AT_ONCE):
                some = lines[first : first + _AT_ONCE]
                if not self._has_room():
                    self._missing += len(some)
                    continue
                if self._missing:
                    text = f"lines missing here, as nobody read the log: {self._missing}"
                    self._missing = 0
                    self._write(logging.WARNING, [(some[0][0], text)])
                self._write(level, some)

    def _has_room(self) -> bool:
        """True if a write would not block. After a wait without success it does not wait again until there is room."""
        try:
            target = (sys.stderr if self._err else sys.stdout).fileno()
        except (OSError, ValueError):  # not a file, or closed: the write says so
            return True
        room = select.poll()
        room.register(target, select.POLLOUT)
        return bool(room.poll(0 if self._missing else self._patience))

    def _write(self, level: int, lines: Sequence[tuple[int, str]]) -> None:
        name = logging.getLevelName(level)
        form, safe = (_object, visible_json) if self._json else (_line, visible)
        text = safe("\n".join(form(at, name, message) for at, message in lines))
        red = not self._json and self._err and level >= logging.ERROR and colour_wanted(sys.stderr.isatty())
        click.echo(click.style(text, fg="red") if red else text, err=self._err, color=red)
        (sys.stderr if self._err else sys.stdout).flush()


def _line(at: int, level: str, message: str) -> str:
    return f"{_second(at // 1_000_000)}.{at // 1000 % 1000:03}Z {level:<7} {message}"


def _object(at: int, level: str, message: str) -> str:
    import msgspec

    from steno.events.clock import format_time

    return msgspec.json.encode({"at": format_time(at), "level": level.lower(), "message": message}).decode()


@functools.lru_cache(maxsize=4)
def _second(at: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


def _install(*handlers: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)
    for chatty in ("httpx", "httpcore", "alembic", "sqlalchemy", "uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    # It takes a SIGTERM in the middle of a step for an error of a callback, of which there are none.
    logging.getLogger("transitions").setLevel(logging.CRITICAL)
