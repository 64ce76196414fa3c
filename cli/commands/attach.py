"""`steno attach`: the way to a port of a run, or into it."""

import click

from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import run_argument
from steno.cli.wiring.output import show
from steno.cli.wiring.view import viewing
from steno.engine.wire import wire


@steno_command("attach")
@run_argument
@click.option("--port", "-p", type=click.IntRange(1, 65535), metavar="N", help="A port that the run listens on.")
def attach_command(app: App, run: str, port: int | None) -> None:
    """It prints the address of the port, the commands that open the way to it, to be left running, and the command for
    a shell in the run. Nothing is opened. The way is the provider's: its own client, ssh through a login node, a step
    beside a job, the address of a service, or 127.0.0.1 for a run of this machine. A run that does not run yet, or has
    ended, is refused (exit 5).

    With --json: {"run_id", "name", "port", "address", "commands", "inside"}; null where there is none.

    \b
    Examples:
      steno attach notebook --port 8888
      $(steno attach notebook -p 8888 --json | jq -r '.commands[0]')
    """
    from steno.projections.answers.entrance import entrance

    with viewing(app) as (record, view, _):
        folded, store = view.row(run).decoded, record.store
    way = entrance(folded, port, lambda run: app.provider_of(run, store))
    lines = [] if way.address is None else [way.address + (", once this runs:" if way.commands else "")]
    lines += [f"  {command}" for command in way.commands]
    lines += [f"a shell in it: {way.inside}"] if way.inside else []
    page = "\n".join(lines) or f"{way.name} runs on this machine: name a port with --port"
    show(app, wire(way), page)
