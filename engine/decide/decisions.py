"""What the controller can decide, as frozen values; `engine.act` matches them once and carries them out."""

from dataclasses import dataclass
from typing import Literal

from engine.fold.vm import DrainBy

Creation = Literal["reuse", "reuse-or-create"]
HeldFor = Literal["cap", "capacity", "machine", "user"]
"""As `events.types.RunHeld.why`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Hand this run over now: reserve its place first."""

    run_id: str
    slot: str | None
    vm_id: str | None
    creation: Creation
    """What the provider is told."""
    gpu: str | None
    idle: int | None
    """The `idle_duration` the provider is told, microseconds (-1: off): the backstop behind our own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Keep it in the queue; written down once for each new reason."""

    run_id: str
    why: HeldFor
    detail: str
    not_before: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Requeue:
    """The provider had no capacity: ask again, not before the time given."""

    run_id: str
    provider_id: str
    attempt: int
    gpu: str | None
    not_before: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """It will never be handed over."""

    run_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartDrain:
    """No run may be placed on this machine any more."""

    vm_id: str
    by: DrainBy
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelDrain:
    """A run came, or the reason is gone: the machine stays."""

    vm_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRun:
    """End a run because the machine it is on is to go."""

    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StopVm:
    """Tell the provider to end this machine, which a poll has shown empty since the drain began."""

    vm_id: str
    provider_id: str
    by: DrainBy


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """The budget reached a threshold for the first time."""

    threshold: int
    spent: int
    total: int


Decision = Place | Hold | Requeue | Refuse | StartDrain | CancelDrain | StopRun | StopVm | Alert
