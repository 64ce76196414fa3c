"""`steno show`: one run in full."""

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, pass_app, run_argument
from cli.wiring.output import emit, emit_json


@click.command("show")
@run_argument
@at_option
@common
@pass_app
def command(app: App, run: str, at: str | None) -> None:
    """Show one run: the verdict with its evidence, and separately what the provider reported.

    RUN is a run id or its first characters, the provider's id, or a name (the open run Steno submitted under it, else
    the newest). With --json the run object, as in replay, with "observability", "anomalies", "position" and "queued"
    (its place in Steno's queue as in `ps`, or null).

    \b
    Examples:
      steno show matmul-4f0c
      steno show 5f0c --json | jq '.reported'
      steno show matmul --at 1204
    """
    from cli.wiring.time_arguments import seen_from
    from cli.wiring.view import viewing

    with viewing(app, at) as (_, view):
        row = view.row(run)
        found, anomalies = view.run(row.run_id), view.anomalies_of(row.run_id)
        now = seen_from(app, view, at)
        source, queued = view.source_of(row, now), view.queued(now).get(row.run_id)
        if app.json:
            import msgspec

            from projections.models.queue_rows import queued_run
            from projections.models.wire import wire

            beside = {
                "observability": None if source is None else source.observability,
                "anomalies": anomalies,
                "position": view.position,
                "queued": None if queued is None else wire(queued_run(queued)),
            }
            emit_json(msgspec.to_builtins(found) | beside)
            return
        from cli.render.runs import anomaly_table, in_full

        machine = None if found.vm_id is None else view.vm(found.vm_id).name
        emit(in_full(found, now, queued=queued, machine=machine))
        if anomalies:
            emit("\n" + anomaly_table(anomalies))
        if source is not None and source.observability != "fresh" and not found.ended:
            emit(f"\n{source.name} is {source.observability.value}: the data above may be old")
