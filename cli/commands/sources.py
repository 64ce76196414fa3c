"""`steno sources`, `steno workers` and `steno incidents`: what is recorded, by whom, and what was odd or missed."""

import getpass
from typing import TYPE_CHECKING

import click
import msgspec

from steno.cli.render import paint, words
from steno.cli.render.words import count, lasted, moment
from steno.cli.wiring.app import App, DefaultGroup, steno_command
from steno.cli.wiring.options import both_times_option, user_option
from steno.cli.wiring.output import hint, show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import begin
from steno.cli.wiring.view import caught_up_view, look_of, viewing
from steno.engine.wire import wire
from steno.events.clock import format_time
from steno.events.store.store import SEATS, Holder, store_at

if TYPE_CHECKING:
    from steno.events.store.record import Record


@click.group("sources", cls=DefaultGroup, subcommand_metavar="[COMMAND] [ARGS]…")
def sources_command() -> None:
    """Live sources are those that a recorder polls. An archive ends with its last poll: it is never blind, and no
    budget, limit or alert counts it. A hidden archive is left out of every list and page; its polls stay in the record.

    \b
    Examples:
      steno sources
      steno sources hide march-outage
      steno sources show march-outage
      steno sources --json | jq '.sources[] | {source, kind, polls}'
    """


@sources_command.command("list", hidden=True)
@both_times_option
def listed(app: App, at: str | None) -> None:
    """List sources with their first and last poll.

    With --json: {"sources": [{"source", "kind": "live"|"archive", "hidden", "first_poll_at", "last_poll_at", "polls",
    "runs", "machines"}], "position"}.

    \b
    Examples:
      steno sources
      steno sources --at 2026-11-20T15:00:00Z --json
    """
    from steno.projections.answers.record_pages import source_rows

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
    value = {"sources": [wire(row) for row in rows], "position": position}
    none = None if rows else "no polls yet; `steno up` records a provider, `steno import TRACE` imports a trace"
    show(app, value, paint.fitted(head, cells, columns(), right=(4, 5, 6), spare=(2, 6, 5)), nothing=none)


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
    from steno.engine.live.journal import Journal
    from steno.events.types import SourceHidden, SourceShown
    from steno.projections.answers.record_pages import archive_named

    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            source, position = archive_named(view, name), view.position
            changed = (source in view.hidden()) != hidden
        if changed:
            kind = SourceHidden if hidden else SourceShown
            position = Journal(record).write(f"source/{source}", kind(source=source, by=getpass.getuser()))
    outcome = f"is hidden; `steno sources show {name}` shows it again" if hidden else "is shown again"
    if not changed:
        outcome = f"is {'hidden' if hidden else 'shown'} already"
    show(app, {"source": source, "hidden": hidden, "position": position}, f"{source} {outcome}")


@steno_command("workers")
def workers_command(app: App) -> None:
    """A source is recorded, and acted on, by the one process that holds its lease. `notices` is the lease of the
    process that sends notices, `audit` that of the process that derives decisions again (`steno audit`), `sharing …`
    that of a process that shares its sources with others (`steno record --source`).

    On PostgreSQL a holder renews its lease every 1.5 s. When it dies or is cut off, the lease ends within 6 s and
    another process takes over with the next token; an append with an older token is refused. On SQLite a lease ends
    with its process.

    A process has another worker id after each start. SINCE is when it took the lease, by its own clock.

    A lease that nobody holds is listed while its source is one: it has answered a poll.

    With --json: {"leases": [{"lease", "held", "process", "host", "worker", "token", "since", "seconds_left"}]}.
    `seconds_left` is null where a lease has no end (SQLite), and 0 or less when it has ended.

    \b
    Examples:
      steno workers
      steno workers --record postgresql://steno@db.example.org/steno
      steno workers --json | jq '.leases[] | select(.held | not) | .lease'
    """
    leases = [
        lease for lease in store_at(app.settings.record).leases() if lease.held or not lease.name.startswith(SEATS)
    ]
    with app.reading(check=False) as record:
        listed_leases = [
            lease for lease in leases if lease.held or "/" not in lease.name or _answered(record, lease.name)
        ]
    head = ("LEASE", "STATE", "PROCESS", "HOST", "SINCE", "TOKEN", "WORKER")
    rows = [
        (
            lease.name,
            _state(lease),
            str(lease.process),
            lease.host,
            words.moment(lease.since),
            str(lease.token),
            lease.worker[:8],
        )
        for lease in listed_leases
    ]
    value = {"leases": [_object(lease) for lease in listed_leases]}
    none = None if rows else "no process has acted on this record yet; `steno up` records a provider"
    show(app, value, paint.fitted(head, rows, columns(), right=(2, 5), spare=(6, 5, 4)), nothing=none)
    free = [lease.name for lease in listed_leases if not lease.held and "/" in lease.name]
    if free and not app.json:
        taken = " ".join(f"--source {name}" for name in free)
        hint(f"nobody acts on {', '.join(free)}; `steno up {taken}` takes over")


def _answered(record: "Record", source: str) -> bool:
    """True if a poll of it was answered: not of a misspelled project, nor of a provider that is not here."""
    polls = record.read(stream=f"source/{source}", types={"PollRecorded"}, limit=1)
    return next(iter(polls), None) is not None


def _state(lease: Holder) -> str:
    if lease.seconds_left is None:
        return "held until its process ends"
    if lease.held:
        return f"held, ends in {lease.seconds_left:.1f} s unless renewed"
    return "free" if lease.seconds_left == 0 else f"free since {lasted(-lease.seconds_left)}"


def _object(lease: Holder) -> dict[str, object]:
    facts = msgspec.structs.asdict(lease)
    since = None if lease.since is None else format_time(lease.since)
    return {"lease": facts.pop("name"), "held": lease.held} | facts | {"since": since}


@steno_command("incidents")
@click.option("--since", metavar="TIME", help="Only what was noticed or lasted since then: yesterday, 14:05, 3d.")
@user_option("Only about runs of this user and their machines, and gaps.")
@click.option(
    "-n", "--limit", type=click.IntRange(min=1), default=50, show_default=True, metavar="N", help="At most N."
)
@both_times_option
def incidents_command(app: App, since: str | None, user: str | None, limit: int, at: str | None) -> None:
    """Anomalies are contradictions, missing items and unknown statuses. A gap is `no answer` where Steno polled the
    source, and `not polled` where no process of Steno did. Newest first; hidden archives are left out.

    A run or machine is stuck that has been queued, provisioning, pulling or ending for longer than 95 % of those of its
    name, or of its provider and GPU, in this record. Fewer than 20 judge nothing. It is listed until that is over. A
    move from one state to another is new if none of the 100 or more runs or machines of that provider had made it.

    With --json: {"anomalies": [{"kind", "subject", "position", "at", "detail", "more": the command that shows more}],
    "blind": [{"source", "from", "to", "kind": "no_answer"|"not_polled"}], "dwells": [{"subject", "name", "state",
    "since", "position", "seconds", "among", "samples", "p95_seconds", "stuck", "more"}], "unusual": [as "anomalies", of
    new moves], "more": whether there are more
    anomalies than -n shows}; p95_seconds is null where too few are known.

    \b
    Examples:
      steno incidents
      steno incidents -n 5 --at yesterday
      steno incidents --since yesterday --mine
      steno incidents --json | jq -r '.anomalies[].kind' | sort | uniq -c
      steno incidents --json | jq -r '.dwells[] | select(.stuck).more'
    """
    from steno.cli.render.runs import dated_anomaly_table, gap_table
    from steno.projections.answers.incidents import incidents

    with viewing(app, at) as (record, view, now):
        start = None if since is None else begin(since, now)
        answer = incidents(look_of(record, view, now, at), limit=limit, since=start, user=user)
        silent = [source.name for source in view.sources(now) if source.last_answered is None]
        polled = bool(view.state.sources)
    more = answer.next is not None
    stuck = [
        (f"#{dwell.position}", moment(dwell.since), dwell.name or "–", dwell.detail, dwell.more)
        for dwell in answer.dwells
        if dwell.stuck
    ]
    parts = [paint.table(("POLL", "SINCE", "STUCK", "WHAT", "MORE"), stuck, right=(0,))] if stuck else []
    parts += [dated_anomaly_table(notes) for notes in (answer.unusual, answer.anomalies) if notes]
    parts += [gap_table(answer.blind)] if answer.blind else []
    dwells = [wire(dwell) for dwell in answer.dwells]
    lists = {"anomalies": answer.anomalies, "blind": answer.blind, "dwells": dwells, "unusual": answer.unusual}
    value = {**lists, "more": more}
    none = "every answer was as expected, and no source was silent" if polled else "no source has been polled"
    none = none if start is None and user is None else f"{none}, as far as was asked"
    none = f"No incidents, but {', '.join(silent)} has never answered." if silent else f"No incidents: {none}."
    show(app, value, "\n\n".join(parts) or none)
    if unknown := sum(dwell.p95_seconds is None for dwell in answer.dwells):
        hint(f"{count(unknown, 'dwell')} not judged: fewer than 20 of that kind have ended")
    if more:
        hint(f"more anomalies than these {limit}; -n N shows N")
