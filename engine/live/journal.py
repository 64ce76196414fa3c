"""The record as effects use it: durable appends, and what is open, whichever process wrote it."""

from collections.abc import Sequence
from typing import Final

from steno.engine.live.live_world import LiveWorld
from steno.engine.state.outbox import Outbox
from steno.engine.state.policy import Policy, dump_policy
from steno.engine.state.world import World
from steno.events import types
from steno.events.store.record import Batch, Record, Unless

_PULLS: Final = frozenset({"LeverPulled"})
_PLACES: Final = _PULLS | {"RunPlaced", "BudgetMoved"}


class Journal:
    """Writes intents and outcomes so that they survive a power cut."""

    def __init__(self, record: Record, live: LiveWorld | None = None) -> None:
        """`live`: the world that knows what is open, owned by the caller's thread; None: append only."""
        self.record = record
        self._live = live

    def write(self, stream: str, *facts: types.Event) -> int:
        """Append facts to a stream (`run/<id>`, `vm/<id>` …) in one durable transaction; the position of the last."""
        return self.append(Batch(stream=stream, events=facts))[-1]

    def append(self, *batches: Batch, unless: Unless | None = None) -> tuple[int, ...]:
        """Append to several streams in one durable transaction; VersionConflict, IdConflict: nothing was appended."""
        return self.record.append_many(batches, durable=True, unless=unless)

    def adopt_policy(self, source: str, policy: Policy, state: World) -> bool:
        """Record that decisions about this source follow this policy from now on, as a replay needs it; False if they
        already did by `state`, the world at the record's head.
        """
        adopted = state.policies.get(source, ())
        if adopted and adopted[-1].policy == policy:
            return False
        self.write(f"source/{source}", types.PolicyAdopted(source=source, policy=dump_policy(policy)))
        return True

    def queue(
        self, source: str, facts: Sequence[types.Event], *, version: int, seen: int | None = None, spends: bool = False
    ) -> None:
        """Append decisions about a source's queue, all or none. `version`: of the stream (`queue_version`), before the
        world that the decisions rest on was folded. `seen`: the position of that world: no place is given after a lever
        that it does not know, nor, if places `spend`, after a place of another source: both spend one budget. None: no
        place is given.

        Raises:
            VersionConflict: another process decided meanwhile; nothing was appended.
        """
        unless = None if seen is None else Unless(_PLACES if spends else _PULLS, seen)
        self.append(Batch(stream=f"queue/{source}", events=facts, expected_version=version), unless=unless)

    def queue_version(self, source: str) -> int:
        return self.record.version(f"queue/{source}")

    def outbox(self) -> Outbox:
        """Requests and intents that are open now, including those that other processes have written so far."""
        return self.state().outbox

    def state(self) -> World:
        """The world at the record's head."""
        if self._live is None:
            raise RuntimeError("this journal has no world, so it does not know what is open")
        self._live.catch_up()
        return self._live.state

    def event(self, position: int | None) -> types.Event | None:
        """The event at a position; None if there is none, like an outcome that is not known yet."""
        return None if position is None else self.record.event(position)
