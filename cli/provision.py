"""`steno doctor --provision`: the shipped MI300X example on a rented machine, its price told and asked for first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.example import example_file
from cli.providers import named
from cli.render import words
from cli.render.runs import ended
from cli.stores import writing
from cli.submitting import follow, submit
from cli.task import described
from cli.wiring.errors import NOT_SUCCEEDED, Detached
from cli.wiring.output import emit, emit_json
from engine.money.words import money
from engine.providers.dstack.doctor import worst_case
from engine.providers.dstack.task import normal_task
from events.clock import SECOND, parse_time

if TYPE_CHECKING:
    from cli.task import Task
    from cli.wiring.app import App
    from engine.objects import RunObject
    from engine.providers.dstack.doctor import Diagnosis

_UNUSABLE = frozenset({"not_available", "no_quota"})


def provision(app: App, found: Diagnosis, *, yes: bool) -> None:
    """Tell the worst case, ask, run the example, and report start-up time, exit status and cost.

    Raises:
        Detached: whoever was asked said no; nothing was rented.
    """
    run_id = app.ids.new()
    task = described(file=example_file(), command=(), flags={}, provider="dstack", run_id=run_id)
    most = _worst_case(task, found)
    question = f"Running {task.name} can cost {words.money(money(most))} at most ({_terms(task, found)}). Rent it?"
    if not yes and not click.confirm(question, err=True):
        raise Detached("nothing was rented")
    with writing(app) as record:
        provider = named(app, "dstack", record.path)
        try:
            run = follow(app, record, provider, submit(app, record, provider, task, run_id), timeout=None)
        finally:
            provider.close()
    if run.state != "succeeded":
        app.exit_code = NOT_SUCCEEDED
    _report(app, run, most)


def _price(found: Diagnosis) -> int:
    """Of the dearest machine dstack could take, micro-dollars an hour: it takes the next where the first has none."""
    return max((offer.price for offer in found.offers if offer.availability not in _UNUSABLE), default=0)


def _seconds(task: Task, field: str) -> int:
    value = normal_task(task.configuration).get(field)
    return value if isinstance(value, int) and value > 0 else 0


def _worst_case(task: Task, found: Diagnosis) -> int:
    run, idle = _seconds(task, "max_duration") * SECOND, _seconds(task, "idle_duration") * SECOND
    return worst_case(_price(found), run=run, idle=idle)


def _terms(task: Task, found: Diagnosis) -> str:
    run, idle = _seconds(task, "max_duration"), _seconds(task, "idle_duration")
    return (
        f"{words.money(money(_price(found)))}/h for start, {words.duration(run * SECOND)} of running, "
        f"{words.duration(idle * SECOND)} of idling and the end"
    )


def _report(app: App, run: RunObject, most: int) -> None:
    began = None
    if run.submitted_at is not None and run.started_at is not None:
        began = (parse_time(run.started_at) - parse_time(run.submitted_at)) / SECOND
    if app.json:
        emit_json({"run": run, "startup_seconds": began, "worst_case_usd": money(most)})
        return
    emit(f"\n{ended(run)}")
    emit(f"start-up  {words.duration(round(began * SECOND)) if began is not None else 'never started'}")
    emit(f"exit      {run.exit_status if run.exit_status is not None else '–'}")
    emit(f"cost      {words.short(run.cost_usd or run.provider_cost_usd)} so far, {words.money(money(most))} at most")
