"""Everything that can go wrong with a record, one class a cause. Exit codes are in `cli/wiring/errors.py` alone.

Each message says what happened and what to do, in one line.
"""


class StenoError(Exception):
    """The root of every error Steno raises on purpose; its text is fit for a user."""


def reported(error: Exception) -> str:
    """An error as a log line: its text; an unexpected error is called a bug in Steno."""
    return str(error) if isinstance(error, StenoError) else f"bug in Steno: {type(error).__name__}: {error}"


class RecordNotFound(StenoError):
    """There is no record at that place."""


class NotARecord(StenoError):
    """The file is there but it is not a Steno record."""


class RecordDamaged(StenoError):
    """The record was changed, cut or lost bytes."""


class RecordTooNew(StenoError):
    """The record was written by a newer version of Steno."""


class RecordTooOld(StenoError):
    """The record has an older form than this Steno uses. The message says how to bring it up to date."""


class RecordNotWritable(StenoError):
    """The record cannot be written: read-only, disk full, or no permission."""


class RecordPaused(RecordNotWritable):
    """The database takes no writes for now: it is full, or read-only after a fail-over. A recorder tries again."""


class RecordReplaced(RecordNotWritable):
    """Another record, or another state of it, took the place of this one while it was open: restart."""


class RecordLocked(StenoError):
    """Another process held the record longer than we wait."""


class LeaseLost(RecordLocked):
    """Another process took over the lease that this one acted under."""


class RecordUnreachable(StenoError):
    """The database of the record cannot be reached, or refuses the user."""


class VersionConflict(StenoError):
    """The stream is not at the version the writer expected."""


class IdConflict(StenoError):
    """The event id is already used by an event with other bytes."""


class SourceIsLive(StenoError):
    """Polls of a source that a recorder polls are not imported."""


class UnreadableInput(StenoError):
    """A file given by the user cannot be read as what it should be (trace, bundle, task file)."""


class PositionNotFound(StenoError):
    """The record has no such position, or no poll there."""


class PoolFailed(StenoError):
    """Processes or machines that work on the pieces of a record cannot be reached, or were killed."""


class SecretGone(StenoError):
    """A secret that an intent needs is no longer in the vault."""
