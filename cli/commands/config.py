"""`steno config`: every setting, its value and where the value comes from."""

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app, project_option, provider_option
from cli.wiring.output import emit, emit_json


@click.command("config")
@provider_option
@project_option
@common
@pass_app
def command(app: App) -> None:
    """Show every setting and where its value comes from.

    Later wins: defaults, dstack's own configuration file, steno.toml of your configuration folder, steno.toml of the
    current folder, .env of the current folder, the environment, flags. Secrets are shown as "set". A file can also set
    rates.<GPU> (dollars an hour of any GPU model), billing.<backend>.minimum and billing.<backend>.granularity.

    With --json: {"settings": {name: {"value", "source"}}, "variables": {name: [strongest first]}}.

    \b
    Examples:
      steno config
      steno config --json
    """
    entries = app.settings.entries
    if app.json:
        rows = {entry.name: {"value": entry.shown, "source": entry.source} for entry in entries}
        emit_json({"settings": rows, "variables": app.settings.variables})
        return
    from cli.render import paint

    head = ("SETTING", "VALUE", "FROM")
    emit(paint.table(head, [(entry.name, entry.shown or "–", paint.dim(entry.source)) for entry in entries]))
