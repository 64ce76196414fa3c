"""`steno machine`: the state machines, drawn from the tables the verdicts come from."""

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit_json


@click.group("machine")
def command() -> None:
    """Draw a state machine the verdicts come from.

    \b
    Examples:
      steno machine run --format mermaid
      steno machine vm --format dot | dot -Tsvg > vm.svg
    """


_notation = click.option(
    "--format", "form", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True, help="Notation."
)


@command.command("run")
@_notation
@common
@pass_app
def run(app: App, form: str) -> None:
    """The Run machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno machine run
      steno machine run --format dot | dot -Tsvg > run.svg
    """
    from engine.fold.run_diagram import diagram

    _draw(app, "run", form, diagram("dot" if form == "dot" else "mermaid"))


@command.command("vm")
@_notation
@common
@pass_app
def vm(app: App, form: str) -> None:
    """The VM machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno machine vm
      steno machine vm --format dot | dot -Tsvg > vm.svg
    """
    from engine.fold.vm_diagram import diagram

    _draw(app, "vm", form, diagram("dot" if form == "dot" else "mermaid"))


def _draw(app: App, machine: str, form: str, text: str) -> None:
    if app.json:
        emit_json({"machine": machine, "format": form, "diagram": text})
    else:
        click.echo(text, nl=False)
