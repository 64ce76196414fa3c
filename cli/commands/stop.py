"""`steno stop`: stop a run."""

from contextlib import closing

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import run_argument
from cli.wiring.output import show


@steno_command("stop")
@run_argument
@click.option("--abort", is_flag=True, help="Stop at once; the task cannot clean up.")
def stop_command(app: App, run: str, abort: bool) -> None:
    """Stop a run; stopping a run that has ended does nothing.

    Steno records the request first. The process that holds the provider's lease carries it out, and this command waits
    up to 30 seconds for the end. With --json: {"run_id", "name", "state", "asked"}.

    \b
    Examples:
      steno stop matmul
      steno stop 5f0c --abort
    """
    from cli.render.runs import ended
    from cli.wiring.session import END_TIMEOUT, session
    from cli.wiring.view import caught_up_view
    from engine.commands.stop import needs_stop
    from projections.store.world_table import decode_run

    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            found = decode_run(view.row(run).folded)
            requested = needs_stop(found, view.state, app.settings, app.clock.now())
        name, state = found.name or found.run_id, str(found.state)
        said = f"{name} had already ended: {state}"
        if requested:
            with (
                closing(app.provider_of(found, record.store)) as provider,
                session(app, record, provider, adopt=False) as here,
            ):
                here.stop(found, abort=abort)
                after = here.follow(found.run_id, name, timeout=END_TIMEOUT)
            kind = "abort" if abort else "stop"
            said = f"the {kind} of {name} is requested; it has not ended yet: `steno show {name}`"
            if after is not None:
                state, said = after.state, ended(after)
    show(app, {"run_id": found.run_id, "name": found.name, "state": state, "asked": requested}, said)
