"""Printing: text for people, JSON for programs, hints and warnings on stderr."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from itertools import chain
from typing import TYPE_CHECKING

import click

from steno.cli.render.paint import visible, visible_json
from steno.cli.wiring.terminal import colour_wanted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from steno.cli.wiring.app import App
    from steno.engine.wire import Tabled


PATIENCE = 1.0
"""Seconds of work without a progress bar."""


def emit(text: str) -> None:
    click.echo(visible(text), color=colour_wanted(sys.stdout.isatty()))


def paged(header: str, lines: Iterable[str], *, whole: bool) -> None:
    """Lines on stdout; on a terminal below a header, and through a pager if they are `whole`: they end by themselves.

    The pager is that of `PAGER`; `less` shows what fits on the screen without a question.
    """
    if not sys.stdout.isatty():
        for line in lines:
            emit(line)
        return
    header = click.style(header, dim=True)
    if whole:
        os.environ.setdefault("LESS", "-FRX")
        pieces = chain((header,), (f"\n{visible(line)}" for line in lines))  # click ends the last line
        click.echo_via_pager(pieces, color=colour_wanted(terminal=True))
    else:
        for line in chain((header,), lines):
            emit(line)


def emit_json(value: object, *, lines: bool = False) -> None:
    """Print a JSON value on stdout: indented on a terminal; one line in a pipe or with `lines` (JSON Lines)."""
    import msgspec

    encoded = msgspec.json.encode(value)
    if not lines and sys.stdout.isatty():
        encoded = msgspec.json.format(encoded, indent=2)
    click.echo(visible_json(encoded.decode()))


def emit_csv(report: Tabled) -> None:
    from steno.engine.wire import csv_of

    click.echo(csv_of(report), nl=False)


def show(
    app: App, value: Callable[[], object] | object, text: Callable[[], str] | str, *, nothing: str | None = None
) -> None:
    """Print the value as JSON with --json, else the text; a function delays an expensive one. `nothing`: a hint in
    place of the text.
    """
    if app.json:
        emit_json(value() if callable(value) else value, lines=app.several)
    elif nothing is not None:
        hint(nothing)
    else:
        emit(text if isinstance(text, str) else text())


def hint(text: str) -> None:
    click.secho(visible(text), err=True, dim=True, color=colour_wanted(sys.stderr.isatty()))


@contextlib.contextmanager
def progress(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr for work that lasts longer than `PATIENCE`; nothing without a terminal."""
    if not sys.stderr.isatty():
        yield lambda _done, _total: None
        return

    started = time.monotonic()
    drawn = ""

    def advance(done: int, total: int) -> None:
        nonlocal drawn
        if time.monotonic() - started < PATIENCE:
            return
        share = min(1.0, done / total) if total else 1.0
        text = f"{what} {'█' * round(share * 24):░<24} {share:4.0%}"
        if text != drawn:
            drawn = text
            click.echo(f"\r{text}", err=True, nl=False)

    try:
        yield advance
    finally:
        if drawn:
            click.echo("\r\x1b[K", err=True, nl=False)
