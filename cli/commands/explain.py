"""`steno explain`: why a run has its verdict; why a machine still runs."""

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option, run_or_vm_argument
from cli.wiring.output import show
from cli.wiring.terminal import columns


@steno_command("explain")
@run_or_vm_argument
@at_option
def explain_command(app: App, run: str, at: str | None) -> None:
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
    from cli.render.explain import page, vm_page
    from cli.wiring.view import viewing
    from projections.models.explain import explain
    from projections.models.wire import wire
    from projections.store.schema import VmRow

    with viewing(app, at) as (record, view, now):
        row = view.run_or_vm(run)
        if isinstance(row, VmRow):
            vm, machine, anomalies = view.vm(row.vm_id), view.machine(row.vm_id), view.anomalies_of(f"vm/{row.vm_id}")
            why, until = view.why_up(row.vm_id, now), view.until(machine)
            value = {"vm": vm, "why_up": why, "anomalies": anomalies, "position": view.position}
            show(app, value, lambda: vm_page(vm, machine, why, anomalies, until, columns()))
            return
        found = explain(record, view, row, now)
        why = view.why_not_warm(row.run_id)
    show(app, lambda: wire(found) | {"not_warm": why}, lambda: page(found, why, columns()))
