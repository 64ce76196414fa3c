"""`steno explain`: why a run has its verdict; why a machine still runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, pass_app, run_or_vm_argument
from cli.wiring.output import emit, emit_json
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from engine.objects import VmObject
    from projections.models.view import View


@click.command("explain")
@run_or_vm_argument
@at_option
@common
@pass_app
def command(app: App, run: str, at: str | None) -> None:
    """Explain a verdict: its rule, the provider's answer that decided it, and what would have changed it.

    For a run that started cold or is waiting, also why it got no warm machine. For a machine: why it still runs, and
    what would stop it.

    With --json: {"run", "sentence", "rule", "evidence": [{"position", "kind", "at", "source", "path", "fields":
    [{"path", "value"}]}], "steps", "flips", "anomalies", "blind", "not_warm": [sentences]}; of a machine {"vm",
    "why_up": [sentences], "anomalies", "position"}. A field's path is that of its value in `steno poll POSITION`.
    Evidence of kind "event" is one of Steno's own events, where no poll decided.

    \b
    Examples:
      steno explain matmul
      steno explain matmul --json | jq -r '.evidence[0].position'
      steno explain matmul --at 15m
      steno explain steno-slot-1-0
    """
    from cli.wiring.time_arguments import seen_from
    from cli.wiring.view import viewing
    from projections.models.explain import explain
    from projections.models.wire import wire
    from projections.store.vm_table import VmRow

    with viewing(app, at) as (record, view):
        now = seen_from(app, view, at)
        row = view.run_or_vm(run)
        if isinstance(row, VmRow):
            _explain_vm(app, view, view.vm(row.vm_id), now)
            return
        found = explain(record, view, row, now)
        why = view.why_not_warm(row.run_id)
    if app.json:
        emit_json(wire(found) | {"not_warm": why})
        return
    from cli.render.explain import page

    emit(page(found, why, columns()))


def _explain_vm(app: App, view: View, found: VmObject, now: int) -> None:
    why, anomalies = view.why_up(found.vm_id, now), view.anomalies_of_vm(found.vm_id)
    if app.json:
        emit_json({"vm": found, "why_up": why, "anomalies": anomalies, "position": view.position})
        return
    from cli.render.explain import vm_page

    machine = view.machine(found.vm_id)
    emit(vm_page(found, machine, why, anomalies, view.until(machine), columns()))
