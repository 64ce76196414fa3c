"""Exit codes and error lines: the only place that maps errors to them."""

import contextlib
import errno
import os
import sys

import click

from steno.cli.render.paint import visible
from steno.cli.wiring.terminal import colour_wanted
from steno.engine import errors as engine
from steno.engine.runtime.signals import INTERRUPTED
from steno.events import errors as events

DONE = 0
NOT_SUCCEEDED = 1
USAGE = 2
UNREACHABLE = 3
NOT_FOUND = 4
CONFLICT = 5
REFUSED = 6
DAMAGED = 7
NOT_WRITABLE = 8
BUG = 70  # a bug in Steno (EX_SOFTWARE of sysexits.h); scripts must not rely on it


class Detached(events.StenoError):
    """Stopped following because of Ctrl-C; the run goes on."""


class WaitEnded(events.StenoError):
    """Stopped following because of the timeout; the run goes on."""


_ERRORS: dict[int, tuple[type[BaseException], ...]] = {
    NOT_SUCCEEDED: (WaitEnded,),
    USAGE: (events.StenoError,),
    UNREACHABLE: (
        *(events.RecordUnreachable, events.PoolFailed),
        *(engine.ProviderUnreachable, engine.ProviderRefused, engine.ProviderError),
    ),
    NOT_FOUND: (
        *(events.RecordNotFound, events.PositionNotFound, engine.ProjectNotFound, engine.RunNotFound),
        *(engine.CaseNotFound, engine.VmNotFound, engine.TokenNotFound, engine.LeverNotFound),
        *(engine.SourceNotFound, engine.NothingRecorded, FileNotFoundError),
    ),
    CONFLICT: (
        *(events.RecordLocked, events.VersionConflict, events.IdConflict, events.SourceIsLive, events.SecretGone),
        *(engine.VmInUse, engine.NameInUse, engine.Conflict),
    ),
    REFUSED: (engine.RefusedByPolicy,),
    DAMAGED: (events.NotARecord, events.RecordDamaged),
    NOT_WRITABLE: (events.RecordTooNew, events.RecordTooOld, events.RecordNotWritable),
    INTERRUPTED: (Detached,),
}
CODES = {error: code for code, errors in _ERRORS.items() for error in errors}
"""Error class → exit code; a subclass has that of its nearest listed ancestor."""

_REMEDIES = {  # errors of writing a file, and what to do
    errno.ENOSPC: ": free some space",
    errno.EDQUOT: ": free some space",
    errno.EROFS: ": write elsewhere",
    errno.EACCES: ": change its permissions",
    errno.EPERM: ": change its permissions",
}


def exit_code_of(error: BaseException) -> int:
    """Write an error as one line to stderr and return its exit code."""
    if isinstance(error, BrokenPipeError):  # the reader of our output has gone (`| head`): no message
        return INTERRUPTED
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else DONE
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        say("interrupted")
        return INTERRUPTED
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message(), err=True, color=colour_wanted(sys.stderr.isatty()))
        return USAGE
    if isinstance(error, click.ClickException):
        return _usage(error)
    if isinstance(error, UnicodeEncodeError) and error.reason.startswith("surrogates"):
        say(f"{error.object[:80]!r} is not UTF-8: names and arguments must be UTF-8")
        return USAGE
    code = code_of(error)
    if code != BUG:
        say(_text(error))
        return code
    if os.environ.get("STENO_DEBUG"):
        import traceback

        traceback.print_exception(error)
    say(f"bug in Steno: {type(error).__name__}: {error}; please report it (STENO_DEBUG=1 prints the traceback)")
    return BUG


def code_of(error: BaseException) -> int:
    listed = next((ancestor for ancestor in type(error).__mro__ if ancestor in CODES), None)
    if listed is not None:
        return CODES[listed]
    if isinstance(error, OSError):
        return NOT_WRITABLE if error.errno in _REMEDIES else BUG if error.filename is None else USAGE
    return BUG


def say(text: str) -> None:
    """Print a line on stderr that begins with `steno: `; red on a terminal."""
    line = " ".join(text.split())
    with contextlib.suppress(OSError):  # stderr is closed: the exit code remains
        click.secho(f"steno: {visible(line)}", err=True, fg="red", color=colour_wanted(sys.stderr.isatty()))


def _text(error: BaseException) -> str:
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{(error.strerror or str(error)).lower()}{_REMEDIES.get(error.errno or 0, '')}"
    return str(error) or (type(error).__doc__ or type(error).__name__).strip()


def _usage(error: click.ClickException) -> int:
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        hint = f" (see `{error.ctx.command_path} --help`)"
    message = error.format_message().rstrip(".")
    say(f"{message[:1].lower()}{message[1:]}{hint}")
    return USAGE
