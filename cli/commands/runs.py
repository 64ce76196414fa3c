"""Commands about runs: `show`, `timeline`, `explain`, `logs`, `stop`."""

from collections.abc import Iterator
from contextlib import closing

import click

from cli.wiring.app import App, steno_command
from cli.wiring.options import at_option, each_run, runs_argument, runs_or_vms_argument
from cli.wiring.output import emit, emit_json, show
from cli.wiring.terminal import columns
from engine.wire import wire


@steno_command("show")
@runs_argument
@at_option
@each_run
def show_command(app: App, run: str, at: str | None) -> None:
    """Show one run: the verdict with its evidence, and separately what the provider reported.

    RUN is a run id or its first characters, the provider's id, or a name (the open run Steno submitted under it, else
    the newest). With --json the run object, as in replay, with "ran" ({"type", "command", "image", "gpu_asked",
    "gpu_got", "project", "source", "user", "submitter"}), "observability", "anomalies", "position", "queued" (its
    place in Steno's queue as in `ps`, or null), "why" (cause and remedy, in a sentence), "blame" ("user", "task",
    "site", "provider", "steno" or null), "again" (whether the same task may succeed if it is run again) and "like"
    ({"run_id", "name", "runs", "phases": [{"phase", "seconds", "median_seconds", "count"}], "cost_usd",
    "median_cost_usd"}: the run beside
    the newest 200 ended runs of its name).

    \b
    Examples:
      steno show matmul-4f0c2a91b7de
      steno show 5f0c --json | jq '.reported'
      steno show matmul --at 1204
    """
    import msgspec

    from cli.render.runs import anomaly_table, in_full
    from cli.wiring.view import viewing
    from engine.decide.why_ended import cause_now
    from projections.models.charts import like
    from projections.models.evidence import message_of
    from projections.store.world_table import decode_run

    with viewing(app, at) as (record, view, now):
        row = view.row(run)
        others = like(view.store, row)
        folded = decode_run(row.folded)
        cause = cause_now(folded, view.state, now, message_of(record, folded))
        found, anomalies = view.run(row.run_id), view.anomalies_of(f"run/{row.run_id}")
        source, queued = view.source_of(row, now), view.queued(now).get(row.run_id)
        machine = None if found.vm_id is None else view.vm(found.vm_id).name
        position, ran = view.position, view.ran(row.run_id)
        tasks = view.store.runs.tasks(row) if found.tasks else ()
        tasks = view.store.runs.firings(row) if found.kind == "schedule" else tasks
    value = msgspec.to_builtins(found) | {
        "ran": ran,
        "observability": None if source is None else source.observability,
        "anomalies": anomalies,
        "position": position,
        "queued": None if queued is None else wire(queued),
        **msgspec.structs.asdict(cause),
        "like": wire(others),
    }
    page = in_full(
        found,
        now,
        why=cause.why,
        columns=columns(),
        executed=ran,
        like=others,
        queued=queued,
        machine=machine,
        tasks=tasks,
    )
    parts = [page]
    if anomalies:
        parts.append(anomaly_table(anomalies))
    if source is not None and source.observability != "fresh" and not found.ended:
        parts.append(f"{source.name} is {source.observability.value}: the data above may be old")
    show(app, value, "\n\n".join(parts))


@steno_command("timeline")
@runs_argument
@at_option
@each_run
def timeline_command(app: App, run: str, at: str | None) -> None:
    """Draw where a run's time went: a bar for each state, its attempts, its machine, and gaps.

    In a gap Steno did not see the run's source: `no answer` where it polled, `not polled` where no process of Steno
    did.

    With --json: {"run_id", "name", "state", "reason", "from", "until", "first_poll_at", "spans": [{"state", "attempt",
    "from", "to", "seconds", "position"}], "blind": [{"source", "from", "to", "kind", "seconds"}], "machine": {"vm_id",
    "start", "phases": [{"phase", "from", "to", "seconds"}]}, "phases": [{"phase", "from", "to", "seconds",
    "position"}]}; the last are the phases that the task itself reports.

    \b
    Examples:
      steno timeline matmul
      steno timeline matmul --json | jq '.spans[] | {state, seconds}'
    """
    from cli.render.timeline import draw
    from cli.wiring.view import viewing
    from engine.fold.run import phases_of
    from projections.models.timeline import timeline
    from projections.store.world_table import decode_run

    with viewing(app, at) as (_, view, now):
        row = view.row(run)
        found = view.run(row.run_id)
        vm = None if found.vm_id is None else view.vm(found.vm_id)
        folded, seen = decode_run(row.folded), view.clock(row.archive, now)
        life = timeline(
            found,
            view.blind_of(row, seen),
            seen,
            vm,
            folded.said,
            folded.later_attempts,
            phases_of(folded),
            foreign=row.is_foreign,
        )
    show(app, lambda: wire(life), lambda: draw(found, life, columns()))


@steno_command("explain")
@runs_or_vms_argument
@at_option
@each_run
def explain_command(app: App, run: str, at: str | None) -> None:
    """Explain a verdict: its rule, the provider's answer that decided it, and what would have changed it.

    For a run that started cold or is waiting, also why it got no warm machine. For a machine: why it still runs, and
    what would stop it.

    With --json: {"run", "sentence", "rule", "evidence": [{"position", "kind", "at", "source", "path", "asked",
    "fields": [{"path", "value"}]}], "steps", "flips", "anomalies", "blind", "witnesses": [sentences], "why", "blame",
    "again", "not_warm": [sentences]}; of a machine {"vm", "why_up": [sentences], "anomalies", "position"}. A field's
    path is that of its value in `steno poll POSITION`.
    Evidence of kind "event" is one of Steno's own events, where no poll decided.

    \b
    Examples:
      steno explain matmul
      steno explain matmul --json | jq -r '.evidence[0].position'
      steno explain matmul --at 15m
      steno explain steno-slot-1-0
    """
    from cli.render.explain import page, vm_page
    from cli.wiring.view import viewing
    from projections.models.explain import explain
    from projections.store.schema import VmRow

    with viewing(app, at) as (record, view, now):
        row = view.run_or_vm(run)
        if isinstance(row, VmRow):
            vm, machine, anomalies = view.vm(row.vm_id), view.machine(row.vm_id), view.anomalies_of(f"vm/{row.vm_id}")
            why, until = view.why_up(row.vm_id, now), view.until(machine)
            value = {"vm": vm, "why_up": why, "anomalies": anomalies, "position": view.position}
            show(app, value, lambda: vm_page(vm, machine, why, anomalies, until, columns()))
            return
        found = explain(record, view, row, now)
        why = view.why_not_warm(row.run_id)
    show(app, lambda: wire(found) | {"not_warm": why}, lambda: page(found, why, columns()))


@steno_command("logs")
@runs_argument
@click.option("-f", "--follow", is_flag=True, help="Follow the output of one run until it ends.")
@click.option(
    "-n", "--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines; with -f, from there."
)
@click.option("--since", metavar="TIME", help="Only what was written at this time or later: 14:05, 10m ago.")
@click.option("-t", "--timestamps", is_flag=True, help="Print before each line when it was written, in UTC.")
def logs_command(
    app: App, runs: tuple[str, ...], follow: bool, tail: int | None, since: str | None, timestamps: bool
) -> None:
    """Print a run's output, read from its provider; output is not recorded.

    On a terminal, colours are kept and other control characters are shown as text (\\x1b). A file or pipe gets every
    byte. The lines that a kernel reports its progress with are left out; `steno kernel show` shows them. With several
    runs, a line with the name comes before each output.

    --since and --timestamps need a provider that says when output was written. With another provider they are refused
    (exit 5); with -f, --timestamps then prints when a line arrived.

    With --json, JSON Lines: {"text"}, one for each line of output; with several runs "run", with --timestamps "at".

    \b
    Examples:
      steno logs matmul
      steno logs matmul -f
      steno logs -l --tail 50
      steno logs train eval --tail 5
      steno logs matmul --since 10m --timestamps
    """
    from cli.wiring.time_arguments import moment

    if follow and len(runs) > 1:
        raise click.UsageError("-f follows one run; name one")
    start = None if since is None else moment(since, app.clock.now())
    if start is not None and start > app.clock.now():
        raise click.BadParameter(f"{since} is in the future", param_hint="--since")
    runs = tuple(each for run in runs for each in _tasks(app, run))
    if follow and len(runs) > 1:
        raise click.UsageError(f"-f follows one run, and this is an array: name a task, as '{runs[0]}'")
    app.several = len(runs) > 1
    for run in runs:
        _print_output(app, run, follow=follow, tail=tail, since=start, timestamps=timestamps)


def _tasks(app: App, run: str) -> list[str]:
    """A word for each task of an array; for another run its own."""
    from cli.wiring.view import viewing

    with viewing(app) as (_, view, _):
        row = view.row(run)
        return [f"{run}[{task.task}]" for task in view.store.runs.tasks(row)] or [run]


def _print_output(app: App, run: str, *, follow: bool, tail: int | None, since: int | None, timestamps: bool) -> None:
    from cli.wiring.run_output import dated_lines, last_lines, lines_of, printed, without_frames
    from cli.wiring.view import viewing
    from engine.errors import Conflict
    from projections.store.world_table import decode_run

    with viewing(app) as (record, view, _):
        found = decode_run(view.row(run).folded)
        store = record.store
    name = found.name or found.run_id
    if found.provider_id is None:
        raise Conflict(f"{name} has not been submitted to its provider, so it has no output; see `steno show {name}`")
    if app.several and not app.json:
        emit(f"==> {run if run.endswith(']') else name} <==")
    with closing(app.provider_of(found, store)) as provider:

        def read(*, going_on: bool) -> Iterator[bytes]:
            if since is None and not timestamps:
                pieces = provider.logs(found.provider_id or "", name, follow=going_on)
                return pieces if found.said is None else without_frames(pieces)
            dated = provider.dated_logs(found.provider_id or "", name, follow=going_on)
            arrival = app.clock if follow and since is None else None
            framed = found.said is not None
            return dated_lines(dated, since=since, stamped=timestamps, framed=framed, arrival=arrival)

        pieces = read(going_on=follow)
        if tail is not None:
            pieces = last_lines(pieces, tail, sum(1 for _ in lines_of(read(going_on=False))) if follow else None)
        if not app.json:
            printed(pieces)
            return
        for line in lines_of(pieces):
            at, _, text = line.partition(b" ") if timestamps else (b"", b"", line)
            value = {"text": text.decode("utf-8", "replace")} | ({"at": at.decode()} if timestamps else {})
            emit_json({"run": name, **value} if app.several else value, lines=True)


@steno_command("stop")
@runs_argument
@click.option("--abort", is_flag=True, help="Stop at once; the task cannot clean up.")
@each_run
def stop_command(app: App, run: str, abort: bool) -> None:
    """Stop a run; stopping a run that has ended does nothing.

    Steno records the request first. The process that holds the provider's lease carries it out, and this command waits
    up to 30 seconds for the end. With --json: {"run_id", "name", "state", "asked"}.

    \b
    Examples:
      steno stop matmul
      steno stop 5f0c --abort
    """
    from cli.render.runs import ended
    from cli.wiring.session import END_TIMEOUT, session
    from cli.wiring.view import caught_up_view
    from engine.commands.stop import needs_stop
    from projections.store.world_table import decode_run

    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            found = decode_run(view.row(run).folded)
            requested = needs_stop(found, view.state, app.settings, app.clock.now())
        name, state = found.name or found.run_id, str(found.state)
        said = f"{name} had already ended: {state}"
        if requested:
            with session(app, record, found.provider, project=found.project, adopt=False) as here:
                here.stop(found, abort=abort)
                after = here.follow(found.run_id, name, timeout=END_TIMEOUT)
            kind = "abort" if abort else "stop"
            said = f"the {kind} of {name} is requested; it has not ended yet: `steno show {name}`"
            if after is not None:
                state, said = after.state, ended(after)
    show(app, {"run_id": found.run_id, "name": found.name, "state": state, "asked": requested}, said)
