"""What every command of Steno is: called with the `App`, `--record` and `--json` at its end; groups with a default."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from cli.wiring.app import App

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def _keep_record(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
    if value == "":
        raise click.BadParameter("it is empty; give a path or URL", ctx)
    if value is not None:
        ctx.ensure_object(App).set_flag("record", value)


def _keep_json(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value:
        ctx.ensure_object(App).json = True


COMMON = (
    click.Option(
        ["--json"], is_flag=True, expose_value=False, callback=_keep_json, help="Print JSON with stable keys."
    ),
    click.Option(
        ["--record"],
        metavar="URL",
        expose_value=False,
        callback=_keep_record,
        help="The record: a path (SQLite) or a database URL; else STENO_RECORD, steno.toml, your data folder.",
    ),
)
"""What every command takes, and `steno` itself too."""


class StenoCommand(click.Command):
    """A command whose function gets the `App` first; `COMMON` follows its own options."""

    def __init__(self, *arguments: Any, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.params += COMMON

    def invoke(self, ctx: click.Context) -> Any:
        """Call the function."""
        assert self.callback is not None  # noqa: S101 - each is made of one
        return ctx.invoke(self.callback, ctx.ensure_object(App), **ctx.params)


steno_command = functools.partial(click.command, cls=StenoCommand)


class CommandGroup(click.Group):
    """A group of such commands."""

    command_class = StenoCommand


class DefaultGroup(CommandGroup):
    """Arguments that do not start with a subcommand go to the hidden command `list`; `--help` shows both."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert the default command's name if no subcommand is given."""
        asks_for_help = args[:1] in (["--help"], ["-h"])
        completes = ctx.resilient_parsing and not args
        if not asks_for_help and not completes and (not args or args[0] not in self.commands):
            args = [self.default, *args]
        return super().parse_args(ctx, args)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The default command's options, then the subcommands."""
        self.commands[self.default].format_options(ctx, formatter)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Subcommands, and what the default command takes."""
        found = super().shell_complete(ctx, incomplete)
        for parameter in self.commands[self.default].params:
            if isinstance(parameter, click.Argument):
                found += parameter.shell_complete(ctx, incomplete)
        return found
