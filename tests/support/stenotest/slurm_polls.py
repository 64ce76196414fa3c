"""Polls of a Slurm cluster made by hand: a moment, a command and its answer."""

import json
import shlex

from events.clock import SECOND, format_time, parse_time
from events.poll import Poll

START = parse_time("2026-11-20T12:00:00Z")


def clock(second: int) -> str:
    """A time as Slurm prints it."""
    return format_time(START + second * SECOND)[:19]


def poll(second: int, words: tuple[str, ...], line: str | None) -> Poll:
    """An answer, a second after the other at the earliest; None: none came."""
    return Poll(
        source="slurm/lab",
        path=f"slurm:{shlex.join(words)}",
        req=json.dumps(words).encode(),
        started_at=START + second * SECOND,
        observed_at=START + second * SECOND + SECOND // 10,
        status=1 if line is None else 0,
        error="Unable to contact slurm controller" if line is None else None,
        body=json.dumps(line or "").encode(),
        text=True,
        answered=line is not None,
    )
