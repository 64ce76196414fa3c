"""`steno timeline`: where a run's time went."""

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, pass_app, run_argument
from cli.wiring.output import emit, emit_json
from cli.wiring.terminal import columns


@click.command("timeline")
@run_argument
@at_option
@common
@pass_app
def command(app: App, run: str, at: str | None) -> None:
    """Draw where a run's time went: a bar for each state, its attempts, its machine, and gaps without an answer.

    With --json: {"run_id", "name", "state", "reason", "from", "until", "first_poll_at", "spans": [{"state", "attempt",
    "from", "to", "seconds", "position"}], "blind": [{"source", "from", "to", "seconds"}], "machine": {"vm_id", "start",
    "phases": [{"phase", "from", "to", "seconds"}]}, "phases": [{"phase", "from", "to", "seconds", "position"}]}; the
    last are the phases that a kernel's task reports.

    \b
    Examples:
      steno timeline matmul
      steno timeline matmul --json | jq '.spans[] | {state, seconds}'
    """
    from cli.wiring.time_arguments import seen_from
    from cli.wiring.view import viewing
    from projections.models.timeline import timeline
    from projections.models.wire import wire
    from projections.store.world_table import decode_run

    with viewing(app, at) as (_, view):
        row = view.row(run)
        found = view.run(row.run_id)
        vm = None if found.vm_id is None else view.vm(found.vm_id)
        folded, now = decode_run(row.folded), view.clock(row.archive, seen_from(app, view, at))
        life = timeline(found, view.blind_of(row), now, vm, folded.said, folded.later_attempts)
    if app.json:
        emit_json(wire(life))
        return
    from cli.render.timeline import draw

    emit(draw(found, life, columns()))
