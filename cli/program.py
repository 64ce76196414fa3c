"""The group of all commands, and `run`: one command line to its exit code."""

import contextlib
import importlib
import inspect
import os
import sys
from typing import TextIO

import click

from steno.cli.catalogue import ABOUT, ALIASES, HELP, OF_PROVIDERS, module_of, near, page
from steno.cli.wiring.app import COMMON, App, refuse_repeated
from steno.cli.wiring.errors import exit_code_of


class LazyGroup(click.Group):
    """The commands of the catalogue; each is imported only when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(HELP)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name not in HELP or cmd_name in OF_PROVIDERS:
            return _of_provider(ctx, cmd_name)
        command = getattr(importlib.import_module(f"steno.cli.commands.{module_of(cmd_name)}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)  # noqa: S101 - narrows importlib's Any
        if command.short_help is None:
            command.short_help = HELP[cmd_name]
            command.help = f"{HELP[cmd_name]}\n\n{inspect.cleandoc(command.help or '')}"
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = not args or args[0].startswith("-") or args[0] in HELP or args[0] in ALIASES
        if not known and _of_provider(ctx, args[0]) is None:
            raise click.UsageError(f"there is no command {args[0]!r}{near(args[0], list(HELP))}", ctx)
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        return page(ctx.ensure_object(App).colour)


def _of_provider(ctx: click.Context, name: str) -> click.Command | None:
    """The provider's own commands, as a group of its name."""
    from steno.engine.providers import registry

    place = registry.commands_of(name)
    if place is None:
        return None
    module, _, attribute = place.partition(":")
    group = getattr(importlib.import_module(module), attribute)
    assert isinstance(group, click.Group)  # noqa: S101 - narrows importlib's Any
    from steno.cli.wiring.host import ProviderHost

    group.context_settings = {**group.context_settings, "obj": ProviderHost(ctx.ensure_object(App), name)}
    for command in group.commands.values():
        if COMMON[0] not in command.params:
            command.params += COMMON
            refuse_repeated(command)
    return group


def _print_version(ctx: click.Context, _: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from steno.events.installation import commit, version
        from steno.events.store.store import REVISION

        click.echo(f"steno {version()} (commit {commit() or 'unknown'}, schema {REVISION})")
        ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND [ARGS]…",
    invoke_without_command=True,
    help=ABOUT,
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Print version, commit and schema.",
)
@click.pass_context
def steno(ctx: click.Context) -> None:
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


steno.params += COMMON
refuse_repeated(steno)


def run(arguments: list[str]) -> int:
    """Run one command line; return its exit code. An error is one line on stderr, never a traceback."""
    app = App()
    out = sys.stdout
    try:
        try:
            steno.main(args=arguments, prog_name="steno", standalone_mode=False, obj=app)
        except SystemExit:
            if sys.stdout is out:
                raise
            raise BrokenPipeError from None  # click handled it first, wrapped the streams, and exits 1
        out.flush()
    except BaseException as error:  # noqa: BLE001 - the one place where every error becomes a code and a line
        code = exit_code_of(error)
        _drop(out)
        return code
    else:
        return app.exit_code


def _drop(out: TextIO) -> None:
    """Discard output that cannot be written, or Python reports it at exit."""
    try:
        out.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())
