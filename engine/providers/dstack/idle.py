"""How long a machine really stays idle: Steno ends it or dstack does, whichever is earlier."""

from collections.abc import Mapping, Sequence

import msgspec

from engine.policy import BACKSTOP
from engine.providers.dstack.fleet import FLEET_IDLE, RUN_IDLE, idle_seconds
from engine.providers.dstack.lenient import at
from events.clock import SECOND, span

_LATER = BACKSTOP // SECOND  # seconds dstack's timer is longer while a recorder runs (`source_view.backstop`)


class IdleSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Steno's own idle timeout and who set it."""

    limit: int | None  # microseconds; None: for ever
    origin: str  # where it is set: `default`, `steno.toml`, `AMD_VM_IDLE_TIMEOUT in .env` …


class Idling(msgspec.Struct, frozen=True, kw_only=True):
    """What becomes of this task's machine, and which fleets would do otherwise."""

    message: str
    fleets: tuple[str, ...] = ()  # one line a fleet whose own `idle_duration` gets in the way


def idling(task: Mapping[str, object], fleets: Sequence[Mapping[str, object]], timeout: IdleSetting) -> Idling:
    """The effective idle timeout of the machine this task makes, and where it comes from.

    Steno drains it after the shorter of the policy's timeout and the task's `idle_duration`, which may be `off`;
    `creation_policy: create` is zero. dstack ends it after the shorter of the task's and the fleet's `idle_duration`
    (default 5 minutes), both fixed when the machine is made. `task` is a `normal_task`.
    """
    own, policy = task.get("idle_duration"), None if timeout.limit is None else timeout.limit // SECOND
    asked = None if own is None else idle_seconds(own, RUN_IDLE)
    limit, why = policy, timeout.origin
    if task.get("creation_policy") == "create":
        limit, why = 0, "the task's creation_policy: create"
    elif own is not None and asked is None:
        limit, why = None, "the task's own idle_duration: off"
    elif asked is not None and (policy is None or asked < policy):
        rest = "no limit" if policy is None else _length(policy)
        limit, why = asked, f"the task's own idle_duration; {rest} for others: {timeout.origin}"
    ends = "never ends an idle machine" if limit is None else f"ends an idle machine after {_length(limit)}"
    if not limit:
        behind = "dstack has the same limit"
    elif asked is not None and asked <= limit + _LATER:
        behind = f"dstack does after the task's own {_length(asked)}"
    else:
        behind = (
            f"without a recorder dstack does: after {_length(limit + _LATER)} where the recorder ended, "
            f"after {_length(limit)} where only `steno submit` ran"
        )
    others = (_beside(fleet, policy) for fleet in fleets)
    return Idling(message=f"Steno {ends} ({why}); {behind}", fleets=tuple(line for line in others if line is not None))


def _beside(fleet: Mapping[str, object], limit: int | None) -> str | None:
    """Why that fleet's machines may end at another time than the policy's `limit` (seconds)."""
    name, found = str(fleet.get("name")), at(fleet, "spec", "configuration")
    if not isinstance(found, dict) or found.get("nodes") is None or found.get("ssh_config"):
        return None
    said = found.get("idle_duration")
    kept = idle_seconds(said, FLEET_IDLE)
    whose = "its idle_duration" if said is not None else "dstack's default for fleets"
    if kept is not None and (limit is None or kept < limit):
        return (
            f"fleet {name}: dstack ends its machines after {_length(kept)} ({whose}), before Steno does; "
            "create it again with a longer idle_duration; dstack cannot change it"
        )
    if name.startswith("steno-"):
        return None  # made by us: every run of ours sets its own time, and the shorter counts
    if limit is not None and (kept is None or kept > max(limit, RUN_IDLE)):
        keeps = "for ever" if kept is None else _length(kept)
        return (
            f"fleet {name}: a run of somebody else that says nothing keeps its machine {keeps} ({whose}); "
            "Steno ends only machines of its own"
        )
    return None


def _length(seconds: int) -> str:
    return span(seconds * SECOND)
