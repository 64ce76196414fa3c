"""`steno incidents`: anomalies, and gaps in which a source was not seen."""

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option
from cli.wiring.output import hint, show


@steno_command("incidents")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="At most N."
)
@at_option
def incidents_command(app: App, limit: int, at: str | None) -> None:
    """List contradictions, missing items and unknown statuses in what providers said, and gaps in which they said
    nothing.

    A gap is `no answer` where Steno polled the source, and `not polled` where no process of Steno did. Newest first;
    hidden archives are left out. With --json: {"anomalies": [{"kind", "subject", "position", "at", "detail"}], "blind":
    [{"source", "from", "to", "kind": "no_answer"|"not_polled"}], "more": whether there are more anomalies than -n
    shows}.

    \b
    Examples:
      steno incidents
      steno incidents -n 5 --at yesterday
      steno incidents --json | jq -r '.anomalies[].kind' | sort | uniq -c
    """
    from cli.render.runs import dated_anomaly_table, gap_table
    from cli.wiring.view import viewing
    from projections.models.incidents import incidents
    from projections.models.reader_pool import Look

    with viewing(app, at) as (record, view, now):
        found = incidents(
            Look(record=record, view=view, position=view.position, now=now, past=at is not None), limit=limit
        )
        silent = [source.name for source in view.sources(now) if source.last_answered is None]
        polled = bool(view.state.sources)
    more = found.next is not None
    parts = [dated_anomaly_table(found.anomalies)] if found.anomalies else []
    parts += [gap_table(found.blind)] if found.blind else []
    value = {"anomalies": found.anomalies, "blind": found.blind, "more": more}
    none = "every answer was as expected, and no source was silent" if polled else "no source has been polled"
    none = f"No incidents, but {', '.join(silent)} has never answered." if silent else f"No incidents: {none}."
    show(app, value, "\n\n".join(parts) or none)
    if more:
        hint(f"more anomalies than these {limit}; -n N shows N")
