"""`steno stop`: stop a run."""

from __future__ import annotations

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app, run_argument
from cli.wiring.output import emit, emit_json

_END_TIMEOUT = 30_000_000
"""Microseconds to wait for the end: a server may take 2 s to stop a run and up to 30 to abort one."""


@click.command("stop")
@run_argument
@click.option("--abort", is_flag=True, help="Stop at once; the task cannot clean up.")
@common
@pass_app
def command(app: App, run: str, abort: bool) -> None:
    """Stop a run; stopping a run that has ended does nothing.

    Steno records the request first. The process that holds the provider's lease carries it out, and this command waits
    up to 30 seconds for the end. With --json: {"run_id", "name", "state", "asked"}.

    \b
    Examples:
      steno stop matmul
      steno stop 5f0c --abort
    """
    from contextlib import closing

    from cli.render.runs import ended
    from cli.wiring.logging_setup import log_for_data
    from cli.wiring.providers import of_run
    from cli.wiring.session import session
    from cli.wiring.stores import writing
    from engine.commands.stop import needs_stop
    from projections.models.projector import caught_up
    from projections.models.view import View
    from projections.store.world_table import decode_run

    log_for_data()
    with writing(app, create=False) as record:
        with caught_up(record) as store:
            view = View(store)
            found = decode_run(view.row(run).folded)
            requested = needs_stop(found, view.world().state, app.settings, app.clock.now())
        name, state = found.name or found.run_id, str(found.state)
        if requested:
            with (
                closing(of_run(app, found, record.store)) as provider,
                session(app, record, provider, adopt=False) as here,
            ):
                here.stop(found, abort=abort)
                after = here.follow(found.run_id, name, timeout=_END_TIMEOUT)
                state = state if after is None else after.state
    if app.json:
        emit_json({"run_id": found.run_id, "name": found.name, "state": state, "asked": requested})
    elif not requested:
        emit(f"{name} had already ended: {state}")
    elif after is None:
        emit(f"the {'abort' if abort else 'stop'} of {name} is requested; it has not ended yet: `steno show {name}`")
    else:
        emit(ended(after))
