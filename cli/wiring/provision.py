"""`steno doctor --provision`: a provider's example on a rented machine, its price shown and asked for first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.render import words
from cli.render.runs import ended
from cli.wiring.errors import NOT_SUCCEEDED, Detached
from cli.wiring.output import emit, emit_json
from cli.wiring.providers import named
from cli.wiring.session import follow, submit
from cli.wiring.stores import writing
from cli.wiring.task import described
from engine.money.words import money
from events.clock import SECOND, parse_time

if TYPE_CHECKING:
    from cli.wiring.app import App
    from engine.objects import RunObject
    from engine.providers.checks import Trial


def provision(app: App, trial: Trial, provider_name: str, *, yes: bool) -> None:
    """Show the worst case, ask, run the example, and report start-up time, exit status and cost.

    Raises:
        Detached: the answer was no; nothing was rented.
    """
    run_id = app.ids.new()
    task = described(
        file=trial.file, command=(), flags={}, settings=app.settings, provider=provider_name, run_id=run_id
    )
    terms = (
        f"{words.money(money(trial.hourly))}/h for start, {words.duration(trial.run)} of running, "
        f"{words.duration(trial.idle)} of idling and the end"
    )
    question = f"Running {task.name} can cost {words.money(money(trial.worst_case))} at most ({terms}). Rent it?"
    if not yes and not click.confirm(question, err=True):
        raise Detached("nothing was rented")
    with writing(app) as record:
        provider = named(app, provider_name, record.store)
        try:
            run = follow(app, record, provider, submit(app, record, provider, task, run_id), timeout=None)
        finally:
            provider.close()
    if run.state != "succeeded":
        app.exit_code = NOT_SUCCEEDED
    _report(app, run, trial.worst_case)


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
