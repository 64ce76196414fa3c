"""A slot: a fleet of at most one machine, so that Steno says which machine a run goes to (`fleets: [slot]`).

dstack has no reservation of a machine, but it never puts a second machine into a fleet of one, and a run that names the
fleet goes nowhere else. What was tried on 0.19.37 and 0.22.5: neither `backends` nor `resources` is needed.
"""

from collections.abc import Mapping, Sequence

from engine.providers.base import FleetPlan
from engine.providers.dstack.fleet import kept_idle


def plan_slot(
    name: str, task: Mapping[str, object], fleets: Sequence[Mapping[str, object]], *, project: str
) -> FleetPlan | None:
    """The slot of that name, open to any task of one machine; None where a fleet of that name is there.

    Args:
        task: the task it is made for, its shorthands written out (`task.normal_task`).
        fleets: the items of `fleets/list`.
    """
    if name in {str(fleet.get("name")) for fleet in fleets}:
        return None
    configuration: dict[str, object] = {
        "type": "fleet",
        "name": name,
        "nodes": {"min": 0, "max": 1},
        "idle_duration": kept_idle(task),
        # a fleet without a policy is on-demand and would refuse a spot task; the task decides for itself
        "spot_policy": "auto",
    }
    return FleetPlan(project=project, name=name, configuration=configuration)
