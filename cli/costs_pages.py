"""The pages of `steno costs` beside the report: FOCUS rows, performance, reconciliation, projection."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from cli.money import Books
    from cli.wiring.app import App


def focus(found: Books) -> None:
    """Every charge as a CSV row in FOCUS's columns, the header first."""
    import click

    from engine.money.focus import focus_rows

    for row in focus_rows(found.costs):
        line = io.StringIO()
        csv.writer(line, lineterminator="\n").writerow(row)
        click.echo(line.getvalue(), nl=False)


def measured(app: App, found: Books) -> None:
    """Start times, idle shutdown and cost per task beside their targets."""
    from cli.render.money import measure_object, measures
    from engine.money.performance import performance

    figures = performance(found.costs)
    if app.json:
        emit_json({"measures": [measure_object(one) for one in figures], "position": found.position})
        return
    emit(measures(figures, columns()))
    if not any(one.count for one in figures):
        hint("nothing is measured yet: no run has had a machine")


def reconciled(app: App, found: Books) -> None:
    """Our cost of each run beside the provider's own, and every difference by its cause."""
    from cli.render.money import reconciliation_page
    from engine.money.reconcile import reconcile
    from projections.models.money_objects import reconciliation_object

    runs, everything = reconcile(found.costs)
    if app.json:
        rows = [reconciliation_object(one, found.state) for one in runs]
        total = reconciliation_object(everything, found.state)
        emit_json({"runs": rows, "total": total, "position": found.position})
    elif runs or everything.ours:
        emit(reconciliation_page(runs, everything, found.state, columns()))
    else:
        hint("nothing has cost anything yet, by either side")


def projected(app: App) -> None:
    """The usual cost estimates, calculated from the settings' rate, timeout and budget."""
    from cli.render.money import claim_object, inputs_object, projection_page
    from engine.money.projection import Inputs, project
    from engine.settings.policy import policy_from

    policy, known = policy_from(app.settings), Inputs()
    rates = {one.gpu: one.hourly for one in (*policy.assumed, *policy.rates)}
    inputs = Inputs(
        hourly=rates.get("MI300X", known.hourly),
        idle_timeout_configured=known.idle_timeout_configured if policy.idle_timeout is None else policy.idle_timeout,
        grant=known.grant if policy.budget_total is None else policy.budget_total,
    )
    claims = project(inputs)
    if app.json:
        emit_json({"inputs": inputs_object(inputs), "claims": [claim_object(one) for one in claims]})
    else:
        emit(projection_page(inputs, claims, columns()))
