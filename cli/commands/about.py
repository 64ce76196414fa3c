"""`steno config`, `steno states` and `steno completion`: what Steno is set to, is made of, and completes."""

from typing import Literal

import click

from cli.wiring.app import App, CommandGroup, steno_command
from cli.wiring.options import project_option, provider_option
from cli.wiring.output import show


@steno_command("config")
@provider_option
@project_option
@click.option("--sample", is_flag=True, help="Print a steno.toml with every setting, its meaning and its default.")
def config_command(app: App, *, sample: bool) -> None:
    """Show every setting and where its value comes from.

    Later wins: defaults, the provider's own configuration file, steno.toml of your configuration folder, steno.toml of
    the current folder, .env of the current folder, the environment, flags. Secrets are shown as "set". A file can also
    set rates.<GPU> (dollars an hour of any GPU model), billing.<backend>.minimum and billing.<backend>.granularity.

    With --json: {"settings": {name: {"value", "source"}}, "variables": {name: [strongest first]}}.

    \b
    Examples:
      steno config
      steno config --json
      steno config --sample > steno.toml
    """
    from cli.render import paint

    if sample:
        from cli.render.sample import sample_settings
        from engine.providers.registry import settings_table

        text = sample_settings(settings_table().known)
        show(app, {"file": "steno.toml", "text": text}, text.removesuffix("\n"))
        return
    entries = app.settings.entries
    rows = {entry.name: {"value": entry.shown, "source": entry.source} for entry in entries}
    cells = [(entry.name, entry.shown or "–", paint.dim(entry.source)) for entry in entries]
    value = {"settings": rows, "variables": app.settings.variables}
    show(app, value, paint.table(("SETTING", "VALUE", "FROM"), cells))


@steno_command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion_command(_: App, shell: str) -> None:
    """Print the completion script for your shell.

    It completes commands, options and the names of the runs in your record.

    \b
    Examples:
      steno completion bash > ~/.local/share/bash-completion/completions/steno
      steno completion zsh  > "${fpath[1]}/_steno"
      steno completion fish > ~/.config/fish/completions/steno.fish
    """
    from click.shell_completion import get_completion_class

    from cli.program import steno

    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - the choice above lists click's own shells
    script = kind(steno, {}, "steno", "_STENO_COMPLETE")
    click.echo(script.source_template % script.source_vars())


@click.group("states", cls=CommandGroup)
def states_command() -> None:
    """Draw the state machine of runs, or that of machines.

    \b
    Examples:
      steno states run --format mermaid
      steno states vm --format dot | dot -Tsvg > vm.svg
    """


_notation = click.option(
    "--format", "form", type=click.Choice(["mermaid", "dot"]), default="mermaid", show_default=True, help="Notation."
)


@states_command.command("run")
@_notation
def run(app: App, form: Literal["mermaid", "dot"]) -> None:
    """The Run machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno states run
      steno states run --format dot | dot -Tsvg > run.svg
    """
    from engine.fold.state_machines import RUN

    _draw(app, "run", form, RUN.diagram(form))


@states_command.command("vm")
@_notation
def vm(app: App, form: Literal["mermaid", "dot"]) -> None:
    """The VM machine. With --json: {"machine", "format", "diagram"}.

    \b
    Examples:
      steno states vm
      steno states vm --format dot | dot -Tsvg > vm.svg
    """
    from engine.fold.state_machines import VM

    _draw(app, "vm", form, VM.diagram(form))


def _draw(app: App, machine: str, form: str, text: str) -> None:
    show(app, {"machine": machine, "format": form, "diagram": text}, text.removesuffix("\n"))
