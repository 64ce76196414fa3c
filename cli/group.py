"""The top-level group: knows every command's name and help, imports only the one that is called."""

import importlib

import click

from cli.app import App
from cli.catalogue import ENTRIES, near
from cli.front import page


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
