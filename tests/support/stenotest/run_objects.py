"""Run objects for tests: made in one line, complete in every key."""

import msgspec

from steno.engine.objects import RunObject
from steno.events.clock import SECOND, foreign_run_id, format_time

T = 1_763_600_000 * SECOND
"""The moment test runs are submitted at: 2025-11-20T00:53:20Z."""


def a_run(*moves: tuple[str, float], **changes: object) -> RunObject:
    """A run that made these moves, seconds after T."""
    origins: list[str | None] = [None, *(state for state, _ in moves)]
    fields: dict[str, object] = {
        "run_id": foreign_run_id("dstack", "p1"),
        "provider_id": "p1",
        "name": "matmul",
        "provider": "dstack",
        "state": moves[-1][0],
        "reason": None,
        "exit_status": None,
        "rule": None,
        "evidence": [1],
        "reported": None,
        "attempts": 1,
        "vm_id": None,
        "start": None,
        "submitted_at": format_time(T),
        "started_at": None,
        "finished_at": None,
        "execution_seconds": None,
        "cost_usd": None,
        "provider_cost_usd": None,
        "transitions": [
            {
                "position": n,
                "at": format_time(T + round(at * SECOND)),
                "from": origins[n - 1],
                "to": state,
                "rule": None,
            }
            for n, (state, at) in enumerate(moves, start=1)
        ],
    }
    return msgspec.convert(fields | changes, RunObject)
