"""The fleet a task needs: since 0.20 dstack fails a task at once where no fleet of the project fits it.

Planning is pure; a fleet with `nodes: 0..N` costs nothing until a run needs one.
"""

import math
from collections.abc import Mapping, Sequence

from engine.errors import TaskInvalid
from engine.providers.base import Preparation
from engine.providers.dstack.client import RUNS, Client
from engine.providers.dstack.lenient import at, objects

RUN_IDLE = 300  # seconds dstack keeps a machine idle after a run without `idle_duration`
FLEET_IDLE = 72 * 3600  # seconds dstack keeps a machine idle in a fleet without `idle_duration`
_GONE = frozenset({"terminating", "terminated"})


def needs_fleet(server_version: str | None) -> bool:
    """Whether that server needs an existing fleet: 0.19 makes one by itself; an unknown version counts as new."""
    try:
        major, minor = (int(part) for part in (server_version or "").split(".")[:2])
    except ValueError:
        return True
    return (major, minor) >= (0, 20)


def plan_fleet(
    task: Mapping[str, object],
    fleets: Sequence[Mapping[str, object]],
    *,
    project: str,
    nodes: int | None,
    waiting: int = 0,
) -> Preparation | None:
    """The fleet to make for the task; None if one that exists will do, or if the task names its fleets.

    `task` is a `normal_task`; `fleets` come from `fleets/list`; `nodes` limits the new fleet (None: no limit).
    `waiting`: jobs without a machine, which may take the free room: dstack fails a run for a full fleet, it does not
    queue it.
    """
    reuses = task.get("creation_policy") == "reuse" and not task.get("retry")
    if task.get("fleets") or task.get("instances") or reuses:
        return None
    rooms = [_room(fleet) for fleet in fleets if fits(fleet, task)]
    if sum(rooms) >= _nodes(task) + waiting:
        return None
    taken = {str(fleet.get("name")) for fleet in fleets}
    kept = kept_idle(task)
    stem = _stem(task, project, kept)
    name = next(name for name in (stem, *(f"{stem}-{n}" for n in range(2, 10_000))) if name not in taken)
    most = None if nodes is None else max(nodes, _nodes(task))
    configuration = _fleet_of(name, most, kept)
    if task.get("backends"):
        configuration["backends"] = task["backends"]
    if _nodes(task) > 1:
        configuration["placement"] = "cluster"
    return Preparation(project=project, name=name, configuration=configuration)


def plan_slot(
    name: str, task: Mapping[str, object], fleets: Sequence[Mapping[str, object]], *, project: str
) -> Preparation | None:
    """The slot of that name, open to any task of one machine; None if a fleet of that name exists.

    A slot is a fleet of at most one machine, so that Steno chooses the machine of a run (`fleets: [slot]`): dstack
    cannot reserve a machine, but never puts a second one into such a fleet. It needs neither `backends` nor `resources`
    (tried on 0.19.37 and 0.22.5). `task` is a `normal_task`.
    """
    if name in {str(fleet.get("name")) for fleet in fleets}:
        return None
    return Preparation(project=project, name=name, configuration=_fleet_of(name, 1, kept_idle(task)))


def _fleet_of(name: str, most: int | None, kept: str) -> dict[str, object]:
    return {
        "type": "fleet",
        "name": name,
        "nodes": {"min": 0} if most is None else {"min": 0, "max": most},
        "idle_duration": kept,
        # without a policy a fleet is on-demand and refuses a spot task
        "spot_policy": "auto",
    }


def fits(fleet: Mapping[str, object], task: Mapping[str, object]) -> bool:
    """Whether dstack could place the task in that fleet, as far as the listing shows; in doubt False."""
    spec = at(fleet, "spec", "configuration")
    if not isinstance(spec, dict) or spec.get("ssh_config") or spec.get("nodes") is None:
        return False
    lists = ("backends", "regions", "availability_zones", "instance_types")
    offered, wanted = spec.get("spot_policy") or "on-demand", task.get("spot_policy") or "on-demand"
    kept, asked = idle_seconds(spec.get("idle_duration"), FLEET_IDLE), idle_seconds(task.get("idle_duration"), RUN_IDLE)
    return (
        fleet.get("status") == "active"
        and all(_lists_meet(spec.get(key), task.get(key)) for key in lists)
        and ("auto" in (offered, wanted) or offered == wanted)
        and (_nodes(task) == 1 or spec.get("placement") == "cluster")
        and spec.get("reservation") == task.get("reservation")
        and _price_meets(spec, task)
        and _resources_meet(spec.get("resources"), task.get("resources"))
        and (kept is None or (asked is not None and kept >= asked))
        and _room(fleet) >= _nodes(task)
    )


def kept_idle(task: Mapping[str, object]) -> str:
    """The `idle_duration` of a fleet made for this task, in dstack's words: dstack's default, or the task's if longer.

    dstack takes the shorter of fleet and task, and a fleet's is fixed. With `off`, a run of somebody else without an
    `idle_duration` would keep its machine for ever.
    """
    asked = idle_seconds(task.get("idle_duration"), RUN_IDLE)
    return "off" if asked is None else f"{max(FLEET_IDLE, asked)}s"


def ensure_fleet(client: Client, plan: Preparation) -> bool:
    """Make the fleet; True if it was there already. Raises TaskInvalid if dstack refuses the configuration."""
    if plan.name in {str(fleet.get("name")) for fleet in list_fleets(client)}:
        return True
    specification = {"configuration": plan.configuration, "profile": {"name": "default"}}
    body = {"plan": {"spec": specification, "current_resource": None}, "force": False}
    answer = client.ask(client.address.path("fleets/apply"), body, again=False)
    if answer.ok:
        return False
    error = client.trouble(answer, "make a fleet for the task")
    if isinstance(error, TaskInvalid) and plan.name in {str(fleet.get("name")) for fleet in list_fleets(client)}:
        return True
    raise error


def list_fleets(client: Client) -> list[dict[str, object]]:
    return client.rows(client.address.path("fleets/list"), what="list the fleets")


def count_waiting(client: Client) -> int:
    """Jobs of the project's active runs without a machine."""
    request = {**RUNS.request(client.address.project), "only_active": True}
    waiting = 0
    for run in client.rows(RUNS.path, request, what="list the active runs"):
        for job in objects(run.get("jobs")):
            submissions = job.get("job_submissions")
            newest = submissions[-1] if isinstance(submissions, list) and submissions else None
            waiting += at(newest, "status") == "submitted" and at(newest, "job_provisioning_data") is None
    return waiting


def _stem(task: Mapping[str, object], project: str, kept: str) -> str:
    """`steno-<backends, or the project>`, with what makes it unlike the usual one: long idling, a cluster."""
    backends = task.get("backends")
    owner = "-".join(sorted(str(name) for name in backends)) if isinstance(backends, list) and backends else project
    words = ["steno", "".join(letter if letter.isalnum() else "-" for letter in owner.lower())[:16].strip("-")]
    if kept != f"{FLEET_IDLE}s":
        words.append("kept" if kept == "off" else kept)
    if _nodes(task) > 1:
        words.append("cluster")
    return "-".join(word for word in words if word)


def _room(fleet: Mapping[str, object]) -> float:
    """Machines a run could still get there: idle ones and those yet to be rented; infinite without a limit."""
    most = at(fleet, "spec", "configuration", "nodes", "max")
    if not isinstance(most, int):
        return math.inf
    held = [row for row in objects(fleet.get("instances")) if str(row.get("status")) not in _GONE]
    idle = sum(1 for row in held if row.get("status") == "idle" and not row.get("unreachable"))
    return max(0, most - len(held)) + idle


def _resources_meet(offered: object, wanted: object) -> bool:
    theirs, ours = at(offered, "gpu"), at(wanted, "gpu")
    if theirs and ours:
        maker, other = at(theirs, "vendor"), at(ours, "vendor")
        names = _lists_meet(at(theirs, "name"), at(ours, "name"))
        vendors = maker in (None, other) or other is None
        if not (names and vendors and _ranges_meet(at(theirs, "count"), at(ours, "count"))):
            return False
    sizes = (("memory",), ("disk", "size"), ("cpu", "count"))
    return all(_ranges_meet(at(offered, *path), at(wanted, *path)) for path in sizes)


def _ranges_meet(one: object, other: object) -> bool:
    low = [bound for bound in (at(one, "min"), at(other, "min")) if isinstance(bound, int | float)]
    high = [bound for bound in (at(one, "max"), at(other, "max")) if isinstance(bound, int | float)]
    return not low or not high or max(low) <= min(high)


def _lists_meet(one: object, other: object) -> bool:
    if not isinstance(one, list) or not isinstance(other, list):
        return True
    return bool({str(name).lower() for name in one} & {str(name).lower() for name in other})


def _price_meets(spec: Mapping[str, object], task: Mapping[str, object]) -> bool:
    """A fleet that pays less than the task would may have no offer for it."""
    theirs, ours = spec.get("max_price"), task.get("max_price")
    if not isinstance(theirs, int | float):
        return True
    return isinstance(ours, int | float) and theirs >= ours


def idle_seconds(value: object, default: int) -> int | None:
    """Seconds a machine may idle; None for `off` (no limit)."""
    if value in ("off", -1):
        return None
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _nodes(task: Mapping[str, object]) -> int:
    groups = task.get("groups")
    if isinstance(groups, list) and groups:
        return sum(_nodes({"nodes": at(group, "nodes")}) for group in groups)
    nodes = task.get("nodes")
    return nodes if isinstance(nodes, int) and nodes > 0 else 1
