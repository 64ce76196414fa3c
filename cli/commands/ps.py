"""`steno ps` and `steno watch`: the runs that a person looks for, and their changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from steno.cli.render.words import count
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.errors import NOT_SUCCEEDED
from steno.cli.wiring.options import both_times_option, completed_runs, hidden_option, user_option
from steno.cli.wiring.output import emit, emit_json, hint
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.view import DAY, learnt_of, moves_of, say_unseen, source_objects, viewing
from steno.engine.state.states import Reason, State
from steno.engine.wire import wire

if TYPE_CHECKING:
    from steno.projections.read_models.run_query import RunQuery
    from steno.projections.read_models.view import View

_FOUND = 50  # runs that a filter shows unless a limit is given
_EVERY = 1 << 62
_STATES = click.Choice([state.value for state in State])
_REASONS = click.Choice([reason.value for reason in Reason])
_SORTS = click.Choice(["time", "name", "duration", "cost"])  # as `run_query.SORTS`: importing it takes 0.1 s


@steno_command("ps")
@click.option("--all", "-a", "everything", is_flag=True, help="Every run, or every run that the filters find.")
@click.option("--failed", is_flag=True, help="As --state failed.")
@click.option("--state", type=_STATES, metavar="STATE", help="Runs in this state.")
@click.option("--reason", type=_REASONS, metavar="REASON", help="Runs with this reason.")
@user_option("Runs that this user submitted.")
@click.option("--project", metavar="NAME", help="Runs of this project.")
@click.option("--gpu", metavar="MODEL[:N]", help="Runs that got this GPU, or ask for it.")
@click.option("--machine", metavar="VM", help="Runs on this machine: its name, its id or the id's beginning.")
@click.option("--source", metavar="NAME", help="Runs of this source, or of this archive.")
@click.option(
    "--since",
    metavar="TIME",
    help="Runs submitted since then: yesterday, 14:05, 3d (days ago), an ISO time.",
)
@click.option("--until", metavar="TIME", help="Runs submitted until then.")
@click.option("--search", "-s", metavar="TEXT", default="", help="Runs with this text in name, command or id.")
@click.option("--sort", type=_SORTS, default="time", help="Newest first, A to Z, longest, or most expensive.")
@click.option("--limit", "-n", type=click.IntRange(min=1), metavar="N", help="At most N runs.")
@click.option("-q", "quiet", is_flag=True, help="Only run ids, one per line.")
@click.option("--wide", "-w", is_flag=True, help="Every column, with user, GPU and command.")
@click.option("--unfold", is_flag=True, help="A line for each run of an array.")
@hidden_option
@both_times_option
def ps_command(
    app: App,
    everything: bool,
    failed: bool,
    since: str | None,
    until: str | None,
    limit: int | None,
    quiet: bool,
    wide: bool,
    unfold: bool,
    at: str | None,
    **filters: Any,
) -> None:
    """Newest first: runs that have not ended, and those submitted within the last day. With a filter: the newest 50 of
    all runs that it finds; -n N gives another number, --all every run. Filters are combined. --search takes plain text,
    in upper or lower case.

    Imported runs are marked `archive`. Runs that were submitted as one array share a line that counts them by state.

    A run in Steno's queue shows its place and its estimated start. A task with a schedule shows when it is due; each of
    its firings is a run. COST is the cost of its machine's time, or the
    provider's figure in brackets if the machine is unknown.

    With --json: {"runs": [run objects, as in replay, with "ran" as in `show`], "sources": [{"source",
    "observability", "last_answered_at"}], "position", "queue": [{"run_id", "position", "why", "detail",
    "estimated_start"}]}; with --at also "learnt": [{"run_id", "name", "then", "known"}], the runs whose state at that
    moment is known otherwise than it was known then.

    \b
    Examples:
      steno ps
      steno ps --failed --since 2d --gpu MI300X
      steno ps --mine --state running
      steno ps -s 'train.py --lr 0.1' --sort duration -w
      steno stop $(steno ps -q --state running -n 1)
      steno ps --all --json | jq '.runs[] | {name, state, reason}'
      steno ps --at 2026-11-20T15:00:00Z
      steno ps --at 12:10 --known now
    """

    from steno.cli.wiring.time_arguments import moment
    from steno.projections.read_models.run_query import RunQuery

    if failed and filters["state"] not in (None, State.FAILED):
        raise click.UsageError(f"--failed and --state {filters['state']} contradict each other; give one of them")
    filters |= {"state": State.FAILED.value} if failed else {}
    with viewing(app, at) as (record, view, now):
        since_at, until_at = (None if text is None else moment(text, now) for text in (since, until))
        query = RunQuery(since=since_at, until=until_at, **filters)
        most = limit or (_FOUND if query.filters and not everything else _EVERY)
        if not query.filters and not everything:
            query = RunQuery(open_or_since=now - DAY, **filters)
        runs = view.found(query, most + 1)
        runs, more = runs[:most], len(runs) > most
        if not runs:
            _check(view, query, past=at is not None)
        sources, waiting = view.sources(now), view.queued(now)
        differ = learnt_of(app, record, view, runs)
        if app.json:
            queue = [wire(place) for place in waiting.values()]
            answers = [msgspec.to_builtins(run) | {"ran": view.row(run.run_id).executed} for run in runs]
            value = {"runs": answers, "sources": source_objects(sources), "position": view.position, "queue": queue}
            emit_json(value | ({} if at is None else {"learnt": differ}))
            return
        if quiet:
            click.echo("".join(f"{run.run_id}\n" for run in runs), nl=False)
            return
        from steno.cli.render.runs import listing
        from steno.engine.state.levers import sentence
        from steno.engine.submit.levers import in_force

        if runs:
            ids = dict.fromkeys(run.vm_id for run in runs if run.vm_id is not None)
            names = {vm_id: _machine(view, vm_id) for vm_id in ids}
            ran = {run.run_id: view.row(run.run_id).executed for run in runs} if wide else None
            emit(listing(runs, now, columns(), waiting=waiting, machines=names, unfold=unfold, executed=ran))
        for line in (*view.over_limit(now), *(sentence(lever) for lever in in_force(view.state, now))):
            hint(line)
        total = view.store.runs.count()
        if total == 0:
            hint("no runs yet; `steno submit -- COMMAND` runs one here, `steno up` watches a provider")
        elif not runs and query.filters:
            hint(_nothing(view, query, now))
        elif more:
            hint(f"more runs than these {most} found; -n N shows N, --all every run")
        elif not query.filters and len(runs) < total:
            hint(f"{count(total - len(runs), 'older run')} not shown; --all lists every run")
        watched = {run.provider for run in runs if not run.ended and run.archive is None}
        say_unseen([source for source in sources if source.name.split("/")[0] in watched], now)


def _machine(view: View, vm_id: str) -> str:
    """Its name, which means the newest of that name; of an older one with the beginning of its id."""
    name = view.vm(vm_id).name or vm_id[:8]
    newest = {row.vm_id for row in view.store.vms.matching(name)}
    return name if newest <= {vm_id} else f"{name} {vm_id[:8]}"


def _check(view: View, query: RunQuery, *, past: bool) -> None:
    """Raises `UnknownValue`; in the past it is only a hint, as a value may have come later."""
    from steno.projections.read_models.run_query import UnknownValue, check_known

    try:
        check_known(view.store, query)
    except UnknownValue as error:
        if not past:
            raise
        hint(f"{error} at that moment")


def _nothing(view: View, query: RunQuery, now: int) -> str:
    """Why no run was found, as far as times say it."""
    from steno.cli.render.words import moment
    from steno.projections.read_models.run_query import RunQuery, find

    if query.since is not None and query.since > now:
        return f"no run found: --since {moment(query.since)} is in the future"
    first = find(view.store, RunQuery(turned=True, hidden=query.hidden), 1)
    if query.until is not None and first and query.until < int(first[0][1].key):
        return f"no run found: the first one was submitted at {moment(int(first[0][1].key))}"
    return "no run found; leave out a filter, or list every run with `steno ps --all`"


@steno_command("watch")
@click.argument("runs", metavar="[RUN...]", nargs=-1, shell_complete=completed_runs)
def watch_command(app: App, runs: tuple[str, ...]) -> None:
    """With RUN: until all these runs have ended; else of every run, until Ctrl-C. The open runs come first. It polls
    nothing itself: `steno up` or `steno record` does, and `steno submit --wait` follows a run with its output. The exit
    code is 0 if all named runs succeeded, else 1.

    With --json, JSON Lines: the run object, as in `steno show`.

    \b
    Examples:
      steno watch
      steno watch train eval && steno compare train eval
    """
    from steno.cli.render.runs import ended
    from steno.cli.render.words import moment

    last: dict[str, str] = {}
    for now, run in moves_of(app, runs):
        last[run.run_id] = run.state
        if app.json:
            emit_json(run, lines=True)
        else:
            emit(f"{moment(now)}  {ended(run)}")
    if any(state != "succeeded" for state in last.values()):
        app.exit_code = NOT_SUCCEEDED
