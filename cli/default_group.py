"""A group that is a command too: `steno vms` lists, `steno vms web-0` shows one, `steno vms stop web-0` stops it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class DefaultGroup(click.Group):
    """Whatever does not begin with a subcommand's name goes to the hidden command `list`; `--help` shows both."""

    default = "list"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The arguments with the default command's name in front, where it is meant."""
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
