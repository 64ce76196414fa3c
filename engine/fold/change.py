"""What one tick changed: the fold's output beside its state."""

from enum import StrEnum
from typing import Final

import msgspec

from engine.fold.vm import VmStep
from engine.states import State

DETAIL: Final = 1000
"""Characters of an anomaly's detail."""


class Transition(msgspec.Struct, frozen=True, kw_only=True):
    """A run moved."""

    position: int
    at: int
    """`observed_at` of the poll that moved it."""
    before: State
    after: State
    rule: str


class AnomalyKind(StrEnum):
    """What should not be."""

    CONTRADICTION = "contradiction"  # the provider takes back an end, or says two things of one thing at once
    ILLEGAL_TRANSITION = "illegal_transition"  # a newer answer shows the run behind where it was
    SCHEMA_DRIFT = "schema_drift"  # a word or a type we do not know
    ORPHAN = "orphan"  # a machine that nobody we know of asked for
    ORPHAN_SUSPECTED = "orphan_suspected"  # told to go and not seen gone: still billed
    AMBIGUOUS_VM = "ambiguous_vm"  # two machines fit a run equally well
    AMBIGUOUS_SUBMISSION = "ambiguous_submission"  # a run at the provider that may be ours, or only says so
    CLOCK_SKEW = "clock_skew"  # the provider's clock is more than 2 s off ours
    COST_DIVERGENCE = "cost_divergence"  # the provider's figure cannot be explained by its own answers
    GPU_MISMATCH = "gpu_mismatch"  # the machine has another GPU than was asked for


class Anomaly(msgspec.Struct, frozen=True, kw_only=True):
    """Something the provider said that should not be."""

    kind: AnomalyKind
    subject: str
    """`run/<run_id>`, `vm/<vm_id>` or `source/<source>`."""
    position: int
    detail: str

    def __post_init__(self) -> None:
        """Cut a long detail: it may repeat what a caller sent, and it appears in logs, lists and notices."""
        if len(self.detail) > DETAIL:
            msgspec.structs.force_setattr(self, "detail", self.detail[: DETAIL - 1] + "…")


class Blind(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which we did not see a source: from its last answered poll to its next."""

    source: str
    since: int
    until: int | None


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """One run after a tick: how it moved, or None where only what the provider reports changed."""

    run_id: str
    transition: Transition | None


class VmMoved(msgspec.Struct, frozen=True, kw_only=True):
    """One machine after a tick: how it moved, or None where only what the provider reports changed."""

    vm_id: str
    step: VmStep | None


Change = Moved | VmMoved | Anomaly | Blind
