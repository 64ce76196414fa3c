"""The policies under which one demand was run on genuine servers, each as settings and as a question to `whatif`."""

from pathlib import Path
from typing import Any, Final

from steno.engine.state.world import World
from steno.engine.whatif.demand import Demand, Outcome, demand_of
from steno.events.clock import SECOND
from steno.projections.answers.whatif import WhatIfQuestion

HISTORIES: Final = Path(__file__).parents[2] / "engine" / "whatif" / "histories"
RECORDED: Final = "recorded"  # the policy from which the others are predicted
POLICIES: Final[dict[str, tuple[str, int, int]]] = {  # name → mode, most machines, idle timeout in seconds
    RECORDED: ("provider", 2, 20),
    "shorter": ("provider", 2, 5),
    "longer": ("provider", 2, 40),
    "one": ("pool", 1, 20),
    "three": ("provider", 3, 12),
    "pool": ("pool", 3, 30),
}


def settings(name: str) -> dict[str, str]:
    """The settings of a policy, as variables."""
    mode, most, idle = POLICIES[name]
    chosen = {"STENO_VMS_MODE": mode, "STENO_MAX_VMS": str(most), "STENO_IDLE_TIMEOUT": f"{idle}s"}
    return {**chosen, "STENO_BUDGET": "off"}


def question(name: str) -> WhatIfQuestion:
    """The question that predicts a policy."""
    mode, most, idle = POLICIES[name]
    changes: tuple[tuple[str, Any], ...] = (("mode", mode), ("max_vms", most), ("idle_timeout", idle * SECOND))
    return WhatIfQuestion(changes=changes)


def whole(state: World) -> Demand:
    """The demand of a history, up to its last poll."""
    return demand_of(state, None, 0, (state.last_at or 0) + 1)


def truth(state: World, recorded: Demand) -> Outcome:
    """The figures of a policy that was really run, in a window that begins with the first request and is as long as the
    recorded policy's: what lies behind that is not predicted.
    """
    last, length = (state.last_at or 0) + 1, recorded.until - recorded.work[0].requested_at
    return demand_of(state, None, 0, min(last, whole(state).work[0].requested_at + length)).outcome
