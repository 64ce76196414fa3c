"""Fleets: which fleet a task needs, how long its machines stay idle, and the offers of dstack's own plan.

Since 0.20 dstack fails a task at once where no fleet of the project fits it. A fleet with `nodes: 0..N` costs nothing
until a run needs one.
"""

import math
from collections.abc import Mapping, Sequence

import msgspec

from steno.engine.errors import TaskInvalid
from steno.engine.providers.base import Preparation
from steno.engine.providers.dstack.client import RUNS, Client, HttpAnswer
from steno.engine.providers.dstack.lenient import at, objects
from steno.engine.providers.dstack.task import for_dstack
from steno.engine.state.policy import BACKSTOP
from steno.events.clock import SECOND, duration

RUN_IDLE = 300  # seconds dstack keeps a machine idle after a run without `idle_duration`
FLEET_IDLE = 72 * 3600  # seconds dstack keeps a machine idle in a fleet without `idle_duration`
_GONE = frozenset({"terminating", "terminated"})


def needs_fleet(server_version: str | None) -> bool:
    """True if that server needs an existing fleet: 0.19 makes it by itself; an unknown version counts as new."""
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
    """The fleet to make for the task; None if an existing fleet fits, or if the task names its fleets.

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
    """True if dstack could place the task in that fleet, as far as the listing shows; in doubt False."""
    spec = at(fleet, "spec", "configuration")
    if not isinstance(spec, dict) or spec.get("ssh_config") or spec.get("nodes") is None:
        return False
    lists = ("backends", "regions", "availability_zones", "instance_types")
    offered, wanted = spec.get("spot_policy") or "on-demand", task.get("spot_policy") or "on-demand"
    kept, idle = idle_seconds(spec.get("idle_duration"), FLEET_IDLE), idle_seconds(task.get("idle_duration"), RUN_IDLE)
    return (
        fleet.get("status") == "active"
        and all(_lists_meet(spec.get(key), task.get(key)) for key in lists)
        and ("auto" in (offered, wanted) or offered == wanted)
        and (_nodes(task) == 1 or spec.get("placement") == "cluster")
        and spec.get("reservation") == task.get("reservation")
        and _price_meets(spec, task)
        and _resources_meet(spec.get("resources"), task.get("resources"))
        and (kept is None or (idle is not None and kept >= idle))
        and _room(fleet) >= _nodes(task)
    )


def kept_idle(task: Mapping[str, object]) -> str:
    """The `idle_duration` of a fleet made for this task, in dstack's words: dstack's default, or the task's if longer.

    dstack takes the shorter of fleet and task, and a fleet's is fixed. With `off`, a run of somebody else without an
    `idle_duration` would keep its machine for ever.
    """
    wanted = idle_seconds(task.get("idle_duration"), RUN_IDLE)
    return "off" if wanted is None else f"{max(FLEET_IDLE, wanted)}s"


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
    """Machines that a run could still get there: idle, or yet to be rented; infinite without a limit."""
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


def _ranges_meet(left: object, right: object) -> bool:
    low = [bound for bound in (at(left, "min"), at(right, "min")) if isinstance(bound, int | float)]
    high = [bound for bound in (at(left, "max"), at(right, "max")) if isinstance(bound, int | float)]
    return not low or not high or max(low) <= min(high)


def _lists_meet(left: object, right: object) -> bool:
    if not isinstance(left, list) or not isinstance(right, list):
        return True
    return bool({str(name).lower() for name in left} & {str(name).lower() for name in right})


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


def ask_plan(
    client: Client, task: Mapping[str, object], server_version: str | None, *, most: int, patience: float
) -> HttpAnswer:
    """The answer to the plan of a task. `most`: how many offers are listed of each job; `patience`: as for `ask`."""
    path = client.address.path("runs/get_plan")
    request: dict[str, object] = {"run_spec": {"configuration": for_dstack(task)}, "max_offers": most}
    if needs_fleet(server_version):
        # without it newer servers show the offers of existing fleets only; 0.19 does not know the field
        request["for_offers_only"] = True
    answer = client.ask(path, request, patience=patience)
    if answer.status == 422 and "for_offers_only" in request:
        del request["for_offers_only"]
        answer = client.ask(path, request, patience=patience)
    return answer


def count_offers(plan: object) -> int | None:
    """How many machines fit the job that the fewest fit, also those not available now; None: an unreadable plan."""
    jobs = objects(at(plan, "job_plans"))
    totals = [total for job in jobs if type(total := job.get("total_offers")) is int]
    return min(totals) if totals and len(totals) == len(jobs) else None


_LATER = BACKSTOP // SECOND  # seconds dstack's timer is longer while a recorder runs (`decide.machine.backstop`)


class IdleSetting(msgspec.Struct, frozen=True, kw_only=True):
    """Steno's own idle timeout and who set it."""

    limit: int | None  # microseconds; None: for ever
    origin: str  # where it is set: `default`, `steno.toml`, `AMD_VM_IDLE_TIMEOUT in .env` …


class Idling(msgspec.Struct, frozen=True, kw_only=True):
    """How this task's machine ends when idle, and the fleets whose machines end otherwise."""

    message: str
    fleets: tuple[str, ...] = ()  # one line a fleet whose own `idle_duration` gets in the way


def idling(task: Mapping[str, object], fleets: Sequence[Mapping[str, object]], timeout: IdleSetting) -> Idling:
    """The effective idle timeout of the machine this task makes, and where it comes from.

    Steno drains it after the shorter of the policy's timeout and the task's `idle_duration`, which may be `off`;
    `creation_policy: create` is zero. dstack ends it after the shorter of the task's and the fleet's `idle_duration`
    (default 5 minutes), both fixed when the machine is made. `task` is a `normal_task`.
    """
    own, policy = task.get("idle_duration"), None if timeout.limit is None else timeout.limit // SECOND
    wanted = None if own is None else idle_seconds(own, RUN_IDLE)
    limit, why = policy, timeout.origin
    if task.get("creation_policy") == "create":
        limit, why = 0, "the task's creation_policy: create"
    elif own is not None and wanted is None:
        limit, why = None, "the task's own idle_duration: off"
    elif wanted is not None and (policy is None or wanted < policy):
        rest = "no limit" if policy is None else _length(policy)
        limit, why = wanted, f"the task's own idle_duration; {rest} for others: {timeout.origin}"
    ends = "never ends an idle machine" if limit is None else f"ends an idle machine after {_length(limit)}"
    if not limit:
        behind = "dstack has the same limit"
    elif wanted is not None and wanted <= limit + _LATER:
        behind = f"dstack does after the task's own {_length(wanted)}"
    else:
        behind = (
            f"without a recorder dstack does: after {_length(limit + _LATER)} where the recorder ended, "
            f"after {_length(limit)} where only `steno submit` ran"
        )
    others = (_beside(fleet, policy) for fleet in fleets)
    return Idling(message=f"Steno {ends} ({why}); {behind}", fleets=tuple(line for line in others if line is not None))


def _beside(fleet: Mapping[str, object], limit: int | None) -> str | None:
    """Why that fleet's machines may end at another time than the policy's `limit` (seconds)."""
    name, spec = str(fleet.get("name")), at(fleet, "spec", "configuration")
    if not isinstance(spec, dict) or spec.get("nodes") is None or spec.get("ssh_config"):
        return None
    own = spec.get("idle_duration")
    kept = idle_seconds(own, FLEET_IDLE)
    whose = "its idle_duration" if own is not None else "dstack's default for fleets"
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
    return duration(seconds * SECOND)
