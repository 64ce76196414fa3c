"""`steno ps`: list runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.wiring.app import App
from cli.wiring.options import at_option, common, hidden_option, pass_app
from cli.wiring.output import emit, emit_json, hint
from cli.wiring.terminal import columns

if TYPE_CHECKING:
    from projections.models.view import SourceView, View

_DAY = 86_400_000_000


@click.command("ps")
@click.option("--all", "-a", "everything", is_flag=True, help="Also runs that ended more than a day ago.")
@hidden_option
@at_option
@common
@pass_app
def command(app: App, everything: bool, hidden: bool, at: str | None) -> None:
    """List runs, newest first: those that have not ended, and those submitted within the last day.

    Imported runs are marked `archive`.

    A run in Steno's queue shows its place and its estimated start. COST is the cost of its machine's time, or the
    provider's figure in brackets if the machine is unknown.

    With --json: {"runs": [run objects, as in replay], "sources": [{"source", "observability", "last_answered_at"}],
    "position", "queue": [{"run_id", "position", "why", "detail", "estimated_start"}]}.

    \b
    Examples:
      steno ps
      steno ps --all --json | jq '.runs[] | {name, state, reason}'
      steno ps --at 2026-11-20T15:00:00Z
    """
    from cli.wiring.time_arguments import seen_from
    from cli.wiring.view import viewing

    with viewing(app, at) as (_, view):
        now = seen_from(app, view, at)
        runs = view.runs(open_or_since=None if everything else now - _DAY, newest_first=True, hidden=hidden)
        sources, waiting = view.sources(now), view.queued(now)
        if app.json:
            from cli.wiring.view import source_object
            from projections.models.queue_rows import queued_run
            from projections.models.wire import wire

            emit_json(
                {
                    "runs": runs,
                    "sources": [source_object(one) for one in sources],
                    "position": view.position,
                    "queue": [wire(queued_run(one)) for one in waiting.values()],
                }
            )
            return
        from cli.render.runs import listing

        if runs:
            names = {run.vm_id: view.vm(run.vm_id).name or run.vm_id[:8] for run in runs if run.vm_id is not None}
            emit(listing(runs, now, columns(), waiting=waiting, machines=names))
        watched = {run.provider for run in runs if not run.ended and run.archive is None}
        _footer(view, len(runs), [one for one in sources if one.name.split("/")[0] in watched], now)


def _footer(view: View, shown: int, sources: list[SourceView], now: int) -> None:
    """On stderr: how many older runs are not shown, and which sources of open runs do not answer."""
    from cli.render.words import count
    from cli.wiring.view import say_unseen

    total = view.count()
    if total == 0:
        hint("no runs yet; `steno submit -- COMMAND` runs one here, `steno up` watches dstack")
    elif shown < total:
        hint(f"{count(total - shown, 'older run')} not shown; --all lists every run")
    say_unseen(sources, now)
