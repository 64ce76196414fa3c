"""`steno logs`: a run's output."""

import codecs
import sys
from collections.abc import Iterable, Iterator
from contextlib import closing

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import run_argument
from cli.wiring.output import emit_json


@steno_command("logs")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run ends.")
def logs_command(app: App, run: str, follow: bool) -> None:
    """Print a run's output, read from its provider; output is not recorded.

    On a terminal, colours are kept and other control characters are shown as text (\\x1b). A file or pipe gets every
    byte.

    With --json, JSON Lines: {"text"}, one for each line of output.

    \b
    Examples:
      steno logs matmul
      steno logs matmul -f
    """
    from cli.render.paint import visible_output
    from cli.wiring.view import viewing
    from engine.errors import Conflict
    from projections.store.world_table import decode_run

    with viewing(app) as (record, view, _):
        found = decode_run(view.row(run).folded)
        store = record.store
    if found.provider_id is None:
        raise Conflict(
            f"{found.name} has not been submitted to its provider, so it has no output; see `steno show {found.name}`"
        )
    with closing(app.provider_of(found, store)) as provider:
        pieces = provider.logs(found.provider_id, found.name or "", follow=follow)
        if app.json:
            for line in _lines(pieces):
                emit_json({"text": line.decode("utf-8", "replace")}, lines=True)
            return
        shown = sys.stdout.isatty()
        decoded = codecs.getincrementaldecoder("utf-8")("replace")
        for piece in pieces:
            sys.stdout.buffer.write(visible_output(decoded.decode(piece)).encode() if shown else piece)
            sys.stdout.buffer.flush()


def _lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Each line without its end; the last one also if it has none."""
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from whole
    if rest:
        yield rest
