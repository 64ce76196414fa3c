"""The number a row keeps for an event's type name and version. A number is never used again; a new version gets a new
one.
"""

from typing import Final

from events import types
from events.errors import RecordTooNew

POLL_RECORDED: Final = 1
POLL_FAILED: Final = 2
RUN_OBSERVED: Final = 3
VM_OBSERVED: Final = 4
PROVIDER_EVENT_SEEN: Final = 5

POLLS: Final = frozenset({POLL_RECORDED, POLL_FAILED})
OBSERVED: Final[dict[str, int]] = {"run": RUN_OBSERVED, "vm": VM_OBSERVED, "provider_event": PROVIDER_EVENT_SEEN}
"""The observation event that an item of each shape kind gives."""

KINDS: Final[dict[int, tuple[str, int]]] = {
    POLL_RECORDED: ("PollRecorded", 1),
    POLL_FAILED: ("PollFailed", 1),
    RUN_OBSERVED: ("RunObserved", 1),
    VM_OBSERVED: ("VmObserved", 1),
    PROVIDER_EVENT_SEEN: ("ProviderEventSeen", 1),
    10: ("RunRequested", 1),
    11: ("StopRequested", 1),
    12: ("SubmitIntended", 1),
    13: ("SubmitSucceeded", 1),
    14: ("SubmitFailed", 1),
    15: ("StopIntended", 1),
    16: ("StopSucceeded", 1),
    17: ("StopFailed", 1),
    18: ("FleetIntended", 1),
    19: ("FleetEnsured", 1),
    20: ("FleetFailed", 1),
    21: ("IntentAbandoned", 1),
    22: ("RecorderStarted", 1),
    23: ("RecorderStopped", 1),
    24: ("PolicyAdopted", 1),
    25: ("RunHeld", 1),
    26: ("RunPlaced", 1),
    27: ("RunRequeued", 1),
    28: ("VmStopRequested", 1),
    29: ("VmDrainStarted", 1),
    30: ("VmDrainCancelled", 1),
    31: ("VmStopIntended", 1),
    32: ("VmStopSucceeded", 1),
    33: ("VmStopFailed", 1),
    34: ("VmGoneConfirmed", 1),
    35: ("BudgetCrossed", 1),
    36: ("NoticeIntended", 1),
    37: ("NoticeDelivered", 1),
    38: ("NoticeFailed", 1),
    39: ("TokenCreated", 1),
    40: ("TokenRevoked", 1),
    41: ("TaskReported", 1),
    42: ("AlertsAdopted", 1),
    45: ("SourceHidden", 1),
    46: ("SourceShown", 1),
}

CODES: Final[dict[type, int]] = {
    getattr(types, name): code for code, (name, version) in KINDS.items() if version == getattr(types, name).version
}
"""The kind under which each event class is written: that of its newest version."""


def type_of(kind: int) -> tuple[str, int]:
    """Name and version behind a row's kind.

    Raises:
        RecordTooNew: this version of Steno does not know that kind.
    """
    found = KINDS.get(kind)
    if found is None:
        raise RecordTooNew(f"The record holds events of kind {kind}, which this version does not know: update steno.")
    return found
