"""Whether the machine a run is on has come up, and is still there. Standard library only, for the supervisor."""

import time
from collections.abc import Mapping
from pathlib import Path

from engine.providers.local.locks import is_locked

_LOOK = 0.02
"""Seconds between two looks at a machine that is a process of its own."""


class MachineReadiness:
    """The machine of one run, from its supervisor's side."""

    def __init__(self, plan: Mapping[str, object]) -> None:
        """Of a plan (see `launch`): `machine` is the folder of a machine that is kept; else the supervisor itself is
        the machine and comes up `boot` microseconds after its start, or at once where there is neither.
        """
        machine, boot = plan["machine"], plan["boot"]
        self._machine = Path(str(machine)) if machine is not None else None
        self._ready_at = time.monotonic() + boot / 1_000_000 if isinstance(boot, int) else None

    @property
    def matters(self) -> bool:
        """The run may have had to wait."""
        return self._machine is not None or self._ready_at is not None

    @property
    def waits(self) -> bool:
        """The machine is not up yet."""
        if self._machine is not None:
            return not (self._machine / "up.json").exists()
        return self._left() > 0

    @property
    def lost(self) -> bool:
        """The machine is a process of its own and has died."""
        return self._machine is not None and not is_locked(self._machine)

    def pause(self, longest: float) -> float:
        """Seconds until the next look is worth while."""
        return _LOOK if self._machine is not None else min(longest, max(0.001, self._left()))

    def _left(self) -> float:
        return 0.0 if self._ready_at is None else self._ready_at - time.monotonic()
