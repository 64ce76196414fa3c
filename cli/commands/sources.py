"""`steno sources`: the sources of the record, live and imported."""

import getpass

import click

from cli.wiring.app import App, DefaultGroup
from cli.wiring.options import at_option
from cli.wiring.output import hint, show
from cli.wiring.terminal import columns


@click.group("sources", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def sources_command() -> None:
    """List the sources of the record: those a recorder polls, and archives that were imported.

    An archive ends with its last poll: it is never blind, and no budget, limit or alert counts it. A hidden archive is
    left out of every list and page; its polls stay in the record.

    \b
    Examples:
      steno sources
      steno sources hide march-outage
      steno sources show march-outage
      steno sources --json | jq '.sources[] | {source, kind, polls}'
    """


@sources_command.command("list", hidden=True)
@at_option
def listed(app: App, at: str | None) -> None:
    """List sources with their first and last poll.

    With --json: {"sources": [{"source", "kind": "live"|"archive", "hidden", "first_poll_at", "last_poll_at", "polls",
    "runs", "machines"}], "position"}.

    \b
    Examples:
      steno sources
      steno sources --at 2026-11-20T15:00:00Z --json
    """
    from cli.render import paint, words
    from cli.wiring.view import viewing
    from engine.wire import wire
    from projections.models.sources import source_rows

    with viewing(app, at) as (record, view, _):
        rows, position = source_rows(record, view), view.position
    head = ("SOURCE", "KIND", "FIRST POLL", "LAST POLL", "POLLS", "RUNS", "MACHINES")
    cells = [
        (
            row.source,
            f"{row.kind}, hidden" if row.hidden else row.kind,
            words.moment(row.first_poll_at),
            words.moment(row.last_poll_at),
            f"{row.polls:,}",
            f"{row.runs:,}",
            f"{row.machines:,}",
        )
        for row in rows
    ]
    if rows or app.json:
        value = {"sources": [wire(row) for row in rows], "position": position}
        show(app, value, paint.fitted(head, cells, columns(), right=(4, 5, 6), spare=(2, 6, 5)))
    else:
        hint("no polls yet; `steno up` records a provider, `steno import TRACE` imports a trace")


@sources_command.command("hide")
@click.argument("name", metavar="NAME")
def hide(app: App, name: str) -> None:
    """Hide an archive from every list and page.

    NAME is the archive's name as `steno sources` lists it; the part after the slash is enough. Nothing is deleted:
    `steno sources show NAME` undoes it. With --json: {"source", "hidden", "position"}.

    \b
    Examples:
      steno sources hide march-outage
    """
    _set(app, name, hidden=True)


@sources_command.command("show")
@click.argument("name", metavar="NAME")
def show_archive(app: App, name: str) -> None:
    """Show a hidden archive in the lists again.

    With --json: {"source", "hidden", "position"}.

    \b
    Examples:
      steno sources show march-outage
    """
    _set(app, name, hidden=False)


def _set(app: App, name: str, *, hidden: bool) -> None:
    from cli.wiring.view import caught_up_view
    from engine.live.journal import Journal
    from events.types import SourceHidden, SourceShown
    from projections.models.sources import archive_named

    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            source, position = archive_named(view, name), view.position
            changed = (source in view.hidden()) != hidden
        if changed:
            kind = SourceHidden if hidden else SourceShown
            position = Journal(record).write(f"source/{source}", kind(source=source, by=getpass.getuser()))
    said = f"is hidden; `steno sources show {name}` shows it again" if hidden else "is shown again"
    if not changed:
        said = f"is {'hidden' if hidden else 'shown'} already"
    show(app, {"source": source, "hidden": hidden, "position": position}, f"{source} {said}")
