"""What `steno doctor` finds out about a provider: one line a check, and what to do where it is not well."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

import msgspec

from events.errors import StenoError


class CheckState(StrEnum):
    """The result of a check."""

    OK = "ok"
    WARNING = "warning"  # a task can run, but look at this
    FAILED = "failed"  # a task cannot run
    SKIPPED = "skipped"  # not checked, because of a failure above


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """One thing checked."""

    name: str
    state: CheckState = CheckState.OK
    message: str
    """One line: what is, and what to do where it is not well."""
    error: StenoError | None = None
    """The error that a failure of it stands for, where there is one: gives the exit code."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A task that shows a provider works, and what it can cost."""

    file: Path
    """The task file."""
    hourly: int
    """Micro-dollars an hour of the dearest machine it may get."""
    run: int
    """Longest time of the task, microseconds."""
    idle: int
    """How long its machine may idle afterwards, microseconds."""
    worst_case: int
    """Micro-dollars: start, run, idling and the end of the machine."""


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of one provider, in order."""

    checks: tuple[Check, ...] = ()
    problem: StenoError | None = None
    """Why the provider cannot be asked at all."""
    absent: bool = False
    """Not configured, and the settings do not select it."""
    details: Mapping[str, object] = {}
    """Further keys of `--json`."""
    note: str | None = None
    """Text below the checks."""
    trial: Trial | None = None
    """What `--provision` can run; None: nothing, or the provider cannot be asked."""

    @property
    def failed(self) -> Check | None:
        """The first failed check."""
        return next((check for check in self.checks if check.state is CheckState.FAILED), None)
