"""`steno causes`: why a task failed, by its output in files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from steno.cli.render import paint
from steno.cli.render.paint import table
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.output import emit, emit_json, progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from steno.engine.causes.catalogue import Catalogue
    from steno.engine.causes.find import Found

_CHUNK = 1 << 20  # bytes that are read at once
_SHOWN = 300  # characters of a quoted line for people


@steno_command("causes")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--exit-status", type=int, metavar="N", help="How the task exited; after 0 there is no cause.")
@click.option("--rules", metavar="FILE", help="A site's own rules, read before ours; else the setting causes.rules.")
def causes_command(app: App, files: tuple[str, ...], exit_status: int | None, rules: str | None) -> None:
    """The line of the output that explains the end, and what to do; "unknown" if no line does. FILE is an output as a
    task printed it, - for standard input. Without a file: the causes that Steno knows.

    Of several causes near the end the root counts: a failed GPU before a lost peer; of a lost peer and a traceback
    whichever came first. Errors that the task survived do not count.

    A rule of a site is a TOML table: [[rule]] with name, cause, source and patterns (RE2), see docs/reasons.md.

    With --json one object a file: {"file", "cause", "blame", "rule", "from", "to", "line"}; from and to are bytes in
    the file, and cause is null after exit status 0. Without a file: {"cause", "blame", "remedy", "rules"}.

    \b
    Examples:
      steno causes slurm-4711.out
      steno causes --exit-status 137 --json train.log
      steno logs my-run | steno causes -
      steno causes
    """
    from steno.engine.causes.catalogue import catalogue_of

    catalogue = catalogue_of(rules or app.settings.value("causes.rules"))
    if not files:
        _print_catalogue(app, catalogue)
        return
    for name in files:
        quote = _quote_of(name, catalogue, exit_status)
        if app.json:
            emit_json(_object(name, catalogue, quote, exit_status), lines=True)
        else:
            emit("\n".join(_lines(name, catalogue, quote, exit_status)))


def _quote_of(name: str, catalogue: Catalogue, exit_status: int | None) -> Found | None:
    from steno.engine.causes.find import find, lines_of

    if name == "-":
        return find(lines_of(iter(lambda: sys.stdin.buffer.read(_CHUNK), b"")), catalogue, exit_status)
    path = Path(name)
    with path.open("rb") as file, progress(f"reading {name}") as advance:
        return find(lines_of(_chunks(file.read, path.stat().st_size, advance)), catalogue, exit_status)


def _chunks(read: Callable[[int], bytes], size: int, advance: Callable[[int, int], None]) -> Iterator[bytes]:
    done = 0
    while chunk := read(_CHUNK):
        yield chunk
        done += len(chunk)
        advance(done, max(size, done))


def _object(name: str, catalogue: Catalogue, quote: Found | None, exit_status: int | None) -> dict[str, Any]:
    if quote is None:
        nothing = dict.fromkeys(("blame", "rule", "from", "to", "line"))
        return {"file": name, "cause": None if exit_status == 0 else "unknown", **nothing}
    return {
        "file": name,
        "cause": quote.rule.cause,
        "blame": catalogue.blame(quote.rule),
        "rule": quote.rule.name,
        "from": quote.start,
        "to": quote.end,
        "line": quote.line,
    }


def _lines(name: str, catalogue: Catalogue, quote: Found | None, exit_status: int | None) -> Iterator[str]:
    if quote is None:
        yield f"{name}: " + ("no cause: it exited 0" if exit_status == 0 else "unknown: no line of it explains the end")
        return
    blame = catalogue.blame(quote.rule)
    yield f"{name}: {paint.bold(quote.rule.cause)}" + ("" if blame is None else f", blame: {blame.value}")
    quoted = quote.line if len(quote.line) <= _SHOWN else f"{quote.line[:_SHOWN]}…"
    yield f"  {quoted}"
    yield paint.dim(f"  bytes {quote.start} to {quote.end}, by the rule {quote.rule.name}")
    yield f"  {catalogue.remedy(quote.rule)}"


def _print_catalogue(app: App, catalogue: Catalogue) -> None:
    if app.json:
        rules = {name: [rule.name for rule in catalogue.rules if rule.cause == name] for name in catalogue.causes}
        rows = [
            {"cause": name, "blame": cause.blame, "remedy": cause.remedy, "rules": rules[name]}
            for name, cause in catalogue.causes.items()
        ]
        emit_json(rows)
        return
    lines = [(name, cause.blame or "–", cause.remedy) for name, cause in catalogue.causes.items()]
    emit(table(("cause", "blame", "what to do"), lines))
