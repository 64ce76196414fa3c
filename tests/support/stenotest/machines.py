"""Coherent histories of one machine, as a dstack server could have listed it: rows by hand, and a Hypothesis strategy.

A machine is made, has an address, is busy and idle by turns, may fall silent and answer again, may change its price,
and goes: told why, with the time of its end or, as servers before 0.20 do, without.
"""

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from stenotest.dstack_history import START, Item, moment, provider_id

HOST = "10.0.0.1"
_REASONS = (None, "idle_timeout", "Idle timeout", "terminated_by_user", "unreachable", "error", "job_finished")


@dataclass(slots=True)
class MachineHistory:
    """The rows that the server listed, one a moment, in order."""

    items: list[Item]
    states: list[str]
    """The state each row leads to, known from how it was made."""
    ended_from: int | None
    """The first row that is evidence of its end; None: there is none."""
    old: bool
    """The server tells no ends."""


def machine_item(
    name: str = "a-machine",
    status: str = "idle",
    *,
    label: str | None = None,
    project: str = "main",
    fleet: str = "lab-fleet",
    hostname: str | None = HOST,
    price: float | None = 1.99,
    created: float = 0,
    finished: float | None = None,
    reason: str | None = None,
    unreachable: bool = False,
    gpu: str | None = "MI300X",
    gpus: int = 1,
    backend: str = "amddevcloud",
    spot: bool = False,
    blocks: tuple[int, int] = (0, 1),
    old: bool = False,
    start: int = START,
) -> Item:
    """A row of `instances/list`; `blocks` are (busy, all), times are seconds after `start`; `old`: as 0.19.37."""
    row: Item = {
        "id": provider_id(f"machine {label if label is not None else name}"),
        "project_name": project,
        "backend": backend,
        "instance_type": {
            "name": "gpu-mi300x1-192gb-devcloud",
            "resources": {
                "cpus": 20,
                "memory_mib": 245_760,
                "gpus": [{"name": gpu, "memory_mib": 196_608, "vendor": "amd"} for _ in range(gpus if gpu else 0)],
                "spot": spot,
                "disk": {"size_mib": 737_280},
                "cpu_arch": "x86",
            },
        },
        "name": name,
        "fleet_name": fleet,
        "instance_num": 0,
        "hostname": hostname,
        "status": status,
        "unreachable": unreachable,
        "termination_reason": reason,
        "created": moment(created, start),
        "region": "atl1",
        "price": price,
        "total_blocks": blocks[1],
        "busy_blocks": blocks[0],
    }
    if not old:
        row |= {
            "termination_reason_message": None,
            "finished_at": None if finished is None else moment(finished, start),
        }
    return row


def machine_event(
    before: str, after: str, at: float, name: str = "a-machine", *, label: str | None = None, start: int = START
) -> Item:
    """A row of `events/list`: the machine's status changed. 0.22.5 words a machine made for a run differently."""
    changed = f"Instance status changed {before.upper()} -> {after.upper()}"
    made = "Instance provisioned for job. Instance status: PROVISIONING"
    return {
        "id": provider_id(f"event {label if label is not None else name} {after} {at}"),
        "recorded_at": moment(at, start),
        "actor_user": None,
        "targets": [
            {"type": "instance", "id": provider_id(f"machine {label if label is not None else name}"), "name": name}
        ],
        "message": made if before == "pending" else changed,
    }


def placeholder(name: str = "a-machine", **more: Any) -> Item:
    """A row of a machine that waits for an offer, and does not exist yet."""
    row = machine_item(name, "pending", price=None, hostname=None, **more)
    return {**row, "backend": None, "instance_type": None, "region": None, "total_blocks": None}


@st.composite
def machine_histories(draw: Any, name: str = "a-machine", step: float = 5) -> MachineHistory:
    """A machine from its making on, `step` seconds between two rows, to its end or to somewhere on the way."""
    old = draw(st.booleans())
    history = MachineHistory([], [], None, old)
    price = draw(st.sampled_from([0.0, 0.5, 1.99, 15.92]))
    row: dict[str, Any] = {"old": old, "price": price, "hostname": None, "unreachable": False}

    def show(status: str, state: str | None = None, **more: Any) -> None:
        for _ in range(draw(st.integers(1, 3))):
            history.items.append(machine_item(name, status, **{**row, **more}))
            history.states.append(state or status)

    show("provisioning")
    row["hostname"] = HOST
    if draw(st.booleans()):
        show("provisioning")
    for phase in draw(st.lists(st.sampled_from(["busy", "idle", "silent", "dearer"]), max_size=8)):
        if phase == "silent":
            row["unreachable"] = not row["unreachable"]
        elif phase == "dearer":
            row["price"] += 0.25
        status = phase if phase in ("busy", "idle") else history.items[-1]["status"]
        show(status)
    ending = draw(st.sampled_from(["stays", "going", "gone", "gone", "at once"]))
    reason = draw(st.sampled_from(_REASONS))
    if ending in ("going", "gone"):
        show("terminating", reason=reason)
    if ending in ("gone", "at once"):
        history.ended_from = len(history.items)
        finished = None if old else step * len(history.items)
        show("terminated", reason=reason, finished=finished)
    return history
