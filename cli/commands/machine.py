"""`steno machine`: the state machines, drawn as text."""

from typing import Literal

import click

from cli.wiring.app import App
from cli.wiring.options import common, pass_app
from cli.wiring.output import emit_json


@click.group("machine")
def command() -> None:
    """Draw a state machine that the verdicts come from.

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
def run(app: App, form: Literal["mermaid", "dot"]) -> None:
    """The Run machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno machine run
      steno machine run --format dot | dot -Tsvg > run.svg
    """
    from engine.fold.state_machines import RUN

    _draw(app, "run", form, RUN.diagram(form))


@command.command("vm")
@_notation
@common
@pass_app
def vm(app: App, form: Literal["mermaid", "dot"]) -> None:
    """The VM machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno machine vm
      steno machine vm --format dot | dot -Tsvg > vm.svg
    """
    from engine.fold.state_machines import VM

    _draw(app, "vm", form, VM.diagram(form))


def _draw(app: App, machine: str, form: str, text: str) -> None:
    if app.json:
        emit_json({"machine": machine, "format": form, "diagram": text})
    else:
        click.echo(text, nl=False)
