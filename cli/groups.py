"""Groups of commands: one that imports a command when it is called, one that is a command too."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from cli.catalogue import ENTRIES, near, page
from cli.wiring.app import App

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Commands from the catalogue, listed by section, loaded on call."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(ENTRIES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = ENTRIES.get(cmd_name)
        if entry is None:
            return None
        command = importlib.import_module(f"cli.commands.{entry.module}").command
        assert isinstance(command, click.Command)  # noqa: S101 - narrows importlib's Any
        command.short_help = entry.help
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in ENTRIES:
            raise click.UsageError(f"there is no command {args[0]!r}{near(args[0], list(ENTRIES))}", ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return page(ctx.ensure_object(App).colour)


class DefaultGroup(click.Group):
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
        rows = [
            record
            for parameter in self.commands[self.default].get_params(ctx)
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)) is not None
        ]
        with formatter.section("Options"):
            formatter.write_dl(rows)
        self.format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Subcommands, and what the default command takes."""
        found = super().shell_complete(ctx, incomplete)
        for parameter in self.commands[self.default].params:
            if isinstance(parameter, click.Argument):
                found += parameter.shell_complete(ctx, incomplete)
        return found
