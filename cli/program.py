"""The program: the group of all commands, and one command line run to its exit code."""

import contextlib
import os
import sys
from typing import TextIO

import click

from cli.groups import LazyGroup
from cli.wiring.app import App
from cli.wiring.errors import exit_code_of
from cli.wiring.options import common, version_option


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    subcommand_metavar="COMMAND [ARGS]…",
    invoke_without_command=True,
)
@version_option
@common
@click.pass_context
def steno(ctx: click.Context) -> None:
    """The front page is `cli.catalogue`."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: list[str]) -> int:
    """Run one command line; its exit code. An error is one line on stderr, never a traceback."""
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
