"""What dstack could start a task on, by its own plan (`runs/get_plan`), which starts nothing."""

from collections.abc import Mapping

from engine.providers.dstack import fleet
from engine.providers.dstack.client import Client, HttpAnswer
from engine.providers.dstack.lenient import at, objects
from engine.providers.dstack.task import for_dstack


def ask_plan(
    client: Client, task: Mapping[str, object], server_version: str | None, *, most: int, patience: float
) -> HttpAnswer:
    """The answer to the plan of a task. `most`: how many offers are listed of each job; `patience`: as for `ask`."""
    path = client.address.path("runs/get_plan")
    request: dict[str, object] = {"run_spec": {"configuration": for_dstack(task)}, "max_offers": most}
    if fleet.needs_fleet(server_version):
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
