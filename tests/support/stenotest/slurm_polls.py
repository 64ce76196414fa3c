"""Polls of a Slurm cluster made by hand: a moment, a command and its answer; and the facts in its lines."""

import json
import shlex

from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.state.facts import RunFacts
from steno.events.clock import SECOND
from steno.events.poll import Poll
from stenotest.slurm_histories import START, clock

__all__ = ["START", "clock", "facts_of", "poll"]


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


def facts_of(words: tuple[str, ...], *lines: str) -> tuple[RunFacts, ...]:
    """The facts in these lines of an answer. Raises ValueError if one is unreadable."""
    reading = SlurmReading()
    scope = reading.scope("slurm:", json.dumps(words).encode())
    assert scope is not None
    return tuple(facts for line in lines for facts in reading.runs(json.dumps(line).encode(), scope))
