"""`steno completion`: the completion script of a shell."""

import click

from cli.wiring.options import common


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@common
def command(shell: str) -> None:
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
