"""Where log lines go: commands that print data log to stderr; daemons log errors to stderr, the rest to stdout."""

import contextlib
import functools
import logging
import sys
from collections.abc import Sequence

import click

from cli.render.paint import visible
from cli.wiring.terminal import colour_wanted


def log_for_data() -> None:
    """Warnings and worse to stderr; stdout is the command's."""
    _install(_Handler(logging.WARNING, logging.CRITICAL, err=True), level=logging.WARNING)


def log_for_daemon(level: int = logging.INFO, *, json: bool = False) -> None:
    """Below ERROR to stdout, uncoloured; ERROR and above to stderr, red on a terminal.

    With `json`, each line is `{"at", "level", "message"}`.
    """
    _install(
        _Handler(level, logging.ERROR - 1, err=False, json=json),
        _Handler(logging.ERROR, logging.CRITICAL, err=True, json=json),
        level=level,
    )


class _Handler(logging.Handler):
    """Writes the levels from `lowest` to `highest`, one line a message, to stdout or stderr."""

    def __init__(self, lowest: int, highest: int, *, err: bool, json: bool = False) -> None:
        super().__init__(lowest)
        self._highest = highest
        self._err = err
        self._json = json
        self.setFormatter(_Line("%(asctime)s.%(msecs)03dZ %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%S"))

    def emit(self, record: logging.LogRecord) -> None:
        """One line; a traceback never reaches a terminal."""
        if record.levelno > self._highest:
            return
        if self._json:
            click.echo(_object(round(record.created * 1_000_000), record.levelname, record.getMessage()), err=self._err)
            (sys.stderr if self._err else sys.stdout).flush()
            return
        red = self._err and record.levelno >= logging.ERROR and colour_wanted(sys.stderr.isatty())
        line = visible(" ".join(self.format(record).splitlines()))
        click.echo(click.style(line, fg="red") if red else line, err=self._err, color=red)
        (sys.stderr if self._err else sys.stdout).flush()

    def emit_many(self, level: int, lines: Sequence[tuple[int, str]]) -> None:
        """Lines of one level, each as of its moment (microseconds, UTC), written at once and uncoloured."""
        if not self.level <= level <= self._highest:
            return
        name = logging.getLevelName(level)
        if self._json:
            text = "".join(f"{_object(at, name, message)}\n" for at, message in lines)
        else:
            text = "".join(f"{_stamp(at)} {name:<7} {message}\n" for at, message in lines)
        with self.lock or contextlib.nullcontext():
            click.echo(visible(text), err=self._err, nl=False)
            (sys.stderr if self._err else sys.stdout).flush()


def _object(at: int, level: str, message: str) -> str:
    import msgspec

    from events.clock import format_time

    value = {"at": format_time(at), "level": level.lower(), "message": " ".join(message.splitlines())}
    return msgspec.json.encode(value).decode()


def _stamp(at: int) -> str:
    """`2026-11-20T15:00:02.123Z`, as other lines begin."""
    return f"{_second(at // 1_000_000)}.{at // 1000 % 1000:03}Z"


@functools.lru_cache(maxsize=4)
def _second(at: int) -> str:
    import time

    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))


class _Line(logging.Formatter):
    """UTC times, and of an exception only its type and text."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's name
        import time

        return time.strftime(datefmt or "%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))

    def formatException(self, ei: object) -> str:  # noqa: N802 - logging's name
        kind, error, _ = ei if isinstance(ei, tuple) else (None, None, None)
        return f"({getattr(kind, '__name__', kind)}: {error})"


def _install(*handlers: logging.Handler, level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = handlers
    root.setLevel(level)
    for chatty in ("httpx", "httpcore", "alembic", "sqlalchemy", "transitions", "uvicorn", "uvicorn.error", "asyncio"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
