"""Files a person names."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from events.traces.trace import TraceReading


def existing(name: str) -> str:
    """The name of a file that is there, or `-` for standard input.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if name != "-" and not Path(name).exists():
        raise FileNotFoundError(errno.ENOENT, "there is no such file", name)
    return name


def trace_reading() -> TraceReading:
    """What the engine knows about the lines of a trace."""
    from engine.providers.readings import READINGS
    from events.traces.trace import TraceReading

    return TraceReading(source_of=READINGS.source, answered=READINGS.answered)
