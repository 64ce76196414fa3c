"""Commands about single runs: `show`, `compare`, `timeline`, `explain`, `logs`, `stop`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from steno.cli.commands.levers import stop_many
from steno.cli.render import paint
from steno.cli.render.words import lasted, short
from steno.cli.wiring.app import App, steno_command
from steno.cli.wiring.options import (
    both_times_option,
    completed_runs,
    each_run,
    runs_argument,
    runs_or_vms_argument,
    why_option,
)
from steno.cli.wiring.output import show
from steno.cli.wiring.terminal import columns
from steno.cli.wiring.time_arguments import begin
from steno.cli.wiring.view import caught_up_view, learnt_of, viewing
from steno.engine.wire import wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from steno.engine.state.run import Run
    from steno.events.store.record import Record
    from steno.projections.answers.compare import Comparison


@steno_command("show")
@runs_argument
@both_times_option
@each_run
def show_command(app: App, run: str, at: str | None) -> None:
    """RUN is a run id or its first characters, the provider's id, or a name (the open run Steno submitted under it,
    else the newest). With --json the run object, as in replay, with "ran" ({"type", "command", "image", "gpu_asked",
    "gpu_got", "project", "source", "user", "submitter"}), "observability", "anomalies", "position", "queued" (its place
    in Steno's queue as in `ps`, or null), "why" (cause and remedy, in a sentence), "blame" ("user", "task", "site",
    "provider", "steno" or null), "again" (whether the same task may succeed if it is run again) and "like" ({"run_id",
    "name", "runs", "phases": [{"phase", "seconds", "median_seconds", "count"}], "cost_usd", "median_cost_usd"}: the run
    beside the newest 200 ended runs of its name) and "use" (as `/api/runs/{id}/samples` with one point; null without
    samples); with --at also "learnt", as in `ps`.

    \b
    Examples:
      steno show matmul-4f0c2a91b7de
      steno show 5f0c --json | jq '.reported'
      steno show matmul --at 1204
      steno show matmul --at 12:10 --known 12:25
    """

    from steno.cli.render.pictures import gpu_curve
    from steno.cli.render.runs import anomaly_table, in_full
    from steno.engine.rules.why_ended import cause_now
    from steno.projections.answers.costs import like
    from steno.projections.answers.evidence import message_of
    from steno.projections.answers.gpu_curve import use_of

    with viewing(app, at) as (record, view, now):
        row = view.row(run)
        others, folded = like(view.store, row), row.decoded
        cause = cause_now(folded, view.state, now, message_of(record, folded))
        answer, anomalies = row.public, view.anomalies_of(f"run/{row.run_id}")
        source, queued = view.source_of(row, now), view.queued(now).get(row.run_id)
        machine = None if answer.vm_id is None else view.vm(answer.vm_id).name
        differ = learnt_of(app, record, view, [answer])
        position, ran = view.position, row.executed
        tasks = view.store.runs.tasks(row) if answer.tasks else ()
        tasks = view.store.runs.firings(row) if answer.kind == "schedule" else tasks
        points = 1 if app.json else max(10, min(columns(), 100) - 6)
        use = None if folded.use is None else use_of(record, folded, position, points)
    value = msgspec.to_builtins(answer) | {
        "ran": ran,
        "observability": None if source is None else source.observability,
        "anomalies": anomalies,
        "position": position,
        "queued": None if queued is None else wire(queued),
        **msgspec.structs.asdict(cause),
        "like": wire(others),
        "use": None if use is None else wire(use),
        **({} if at is None else {"learnt": differ}),
    }
    page = in_full(
        answer,
        now,
        why=cause.why,
        columns=columns(),
        executed=ran,
        like=others,
        queued=queued,
        machine=machine,
        tasks=tasks,
    )
    parts = [page, *([] if use is None or not use.gpus else [gpu_curve(use)])]
    if anomalies:
        parts.append(anomaly_table(anomalies))
    if source is not None and source.observability != "fresh" and not answer.ended:
        parts.append(f"{source.name} is {source.observability.value}: the data above may be old")
    show(app, value, "\n\n".join(parts))


@steno_command("timeline")
@runs_argument
@both_times_option
@each_run
def timeline_command(app: App, run: str, at: str | None) -> None:
    """It has a bar for each state, its attempts, its machine, and gaps. In a gap Steno did not see the run's source:
    `no answer` where it polled, `not polled` where no process of Steno did.

    With --json: {"run_id", "name", "state", "reason", "from", "until", "first_poll_at", "spans": [{"state", "attempt",
    "from", "to", "seconds", "position"}], "blind": [{"source", "from", "to", "kind", "seconds"}], "machine": {"vm_id",
    "start", "phases": [{"phase", "from", "to", "seconds"}]}, "phases": [{"phase", "from", "to", "seconds",
    "position"}]}; the last are the phases that the task itself reports.

    \b
    Examples:
      steno timeline matmul
      steno timeline matmul --json | jq '.spans[] | {state, seconds}'
    """
    from steno.cli.render.pictures import draw
    from steno.projections.answers.timeline import timeline_of

    with viewing(app, at) as (_, view, now):
        row = view.row(run)
        life = timeline_of(view, row, now)
    show(app, lambda: wire(life), lambda: draw(row.public, life, columns()))


@steno_command("explain")
@runs_or_vms_argument
@both_times_option
@each_run
def explain_command(app: App, run: str, at: str | None) -> None:
    """A verdict comes with its rule, the provider's answer that decided it, and what would have changed it. For a run
    that started cold or is waiting, also why it got no warm machine. For a run that waits, or waited for a minute: the
    runs before it, which machines have the places, what they cost meanwhile, and, while it waits, in which range 80 %
    of its like started and how many starts such ranges held. For a machine: why it still runs, and what would stop it.
    For both: what the policy decided about it, why, with which numbers, and the polls that each decision stands on.

    With --json: {"run", "sentence", "rule", "evidence": [{"position", "kind", "at", "source", "path", "asked",
    "fields": [{"path", "value"}]}], "steps", "flips", "anomalies", "blind", "witnesses": [sentences], "why", "blame",
    "again", "wait": [sentences], "start": {"among", "samples", "low", "high", "low_seconds", "high_seconds",
    "level_percent", "checked", "held", "unknown"} or null, "not_warm": [sentences], "decisions": [{"position", "at",
    "decision", "why", "polls": [positions], "software"}]}; of a machine {"vm", "why_up": [sentences], "decisions",
    "anomalies", "position"}.

    A field's path is that of its value in `steno poll POSITION`. Evidence of kind "event" is one of Steno's own events,
    where no poll decided.

    \b
    Examples:
      steno explain matmul
      steno explain matmul --json | jq -r '.evidence[0].position'
      steno explain matmul --at 15m
      steno explain steno-slot-1-0
    """
    from steno.cli.render.explain import page, vm_page
    from steno.projections.answers.decided import decisions_about
    from steno.projections.answers.explain import explain
    from steno.projections.answers.output_cause import OutputCauses
    from steno.projections.read_models.schema import VmRow

    with viewing(app, at) as (record, view, now):
        row = view.run_or_vm(run)
        if isinstance(row, VmRow):
            vm, machine, anomalies = view.vm(row.vm_id), view.machine(row.vm_id), view.anomalies_of(f"vm/{row.vm_id}")
            why, until = view.why_up(row.vm_id, now), view.until(machine)
            decided = decisions_about(record, view.state, machine, view.position)
            value = {"vm": vm, "why_up": why, "decisions": [wire(each) for each in decided], "anomalies": anomalies}
            value |= {"position": view.position}
            show(app, value, lambda: vm_page(vm, machine, why, decided, anomalies, until, columns()))
            return
        explanation = explain(record, view, row, now, OutputCauses(app.settings.value("causes.rules")))
    show(app, lambda: wire(explanation), lambda: page(explanation, columns()))


@steno_command("logs")
@runs_argument
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the run, or all of them, ended.")
@click.option(
    "-n", "--tail", type=click.IntRange(min=1), metavar="N", help="Only the last N lines; with -f, from there."
)
@click.option("--since", metavar="TIME", help="Only what was written at this time or later: 14:05, 10m ago.")
@click.option("-t", "--timestamps", is_flag=True, help="Print before each line when it was written, in UTC.")
@click.option(
    "--search", metavar="TEXT", is_eager=True, help="Only recorded lines with this text; of all runs if none is named."
)
def logs_command(
    app: App,
    runs: tuple[str, ...],
    follow: bool,
    tail: int | None,
    since: str | None,
    timestamps: bool,
    search: str | None,
) -> None:
    """It is read from the provider; if that has it no more or does not answer, from the record, with a line for each
    part that was not kept. On a terminal, colours are kept and other control characters are shown as text (\\x1b). A
    file or pipe gets every byte. The lines that a kernel reports its progress with are left out; `steno kernel show`
    shows them. With several runs, a line with the name comes before each output; with -f, the name comes before each
    line, and the states of the runs are printed on stderr. With -f a run that waits is followed once it is submitted.

    --search looks in the record alone, for the bytes of TEXT, and prints run, place of the line in the output (bytes)
    and line: of the newest run first, 1,000 lines at most.

    --since and --timestamps need a provider that says when output was written. With another provider they are refused
    (exit 5); with -f, --timestamps then prints when a line arrived.

    With --json, JSON Lines: {"text"}, one for each line of output; with several runs "run", with --timestamps "at".
    With --search {"run", "run_id", "offset", "text"}.

    \b
    Examples:
      steno logs matmul
      steno logs matmul -f
      steno logs train eval test -f
      steno logs -l --tail 50
      steno logs train eval --tail 5
      steno logs matmul --since 10m --timestamps
      steno logs --search "CUDA out of memory"
    """
    from steno.cli.wiring.run_output import follow_outputs, print_lines_with, print_output, tasks_of

    start = None if since is None else begin(since, app.clock.now())
    runs = tuple(each for run in runs for each in tasks_of(app, run))
    app.several = len(runs) > 1
    if search:
        if follow or tail is not None or since is not None or timestamps:
            raise click.UsageError("--search looks in the record: leave -f, -n, --since and -t out")
        print_lines_with(app, search, runs)
        return
    if follow and app.several:
        follow_outputs(app, runs, tail=tail, since=start, timestamps=timestamps)
        return
    for run in runs:
        print_output(app, run, follow=follow, tail=tail, since=start, timestamps=timestamps)


@steno_command("stop")
@runs_argument
@click.option("--abort", is_flag=True, help="Stop at once; the task cannot clean up.")
@click.option("--all", "everything", is_flag=True, is_eager=True, help="Stop every run, and let none start.")
@click.option("--user", metavar="NAME", is_eager=True, help="Stop this user's runs, and let none start.")
@click.option("--state", metavar="STATE", is_eager=True, help="Stop the runs in this state.")
@click.option("--machine", metavar="VM", is_eager=True, help="Stop the runs on this machine.")
@why_option(default="not said")
@click.option("--yes", "-y", is_flag=True, help="Stop many runs without a question.")
def stop_command(app: App, runs: tuple[str, ...], abort: bool, why: str, yes: bool, **scope: Any) -> None:
    """Stopping a run that has ended does nothing. Steno records the request first. The process that holds the
    provider's lease carries it out, and this command waits up to 30 seconds for the end. With --json: {"run_id",
    "name", "state", "asked"}. If one of several names is not known, nothing is stopped.

    --all, --user, --state and --machine are one request for all that match, of the runs that were submitted through
    Steno. The runs and what they cost are shown first. After --all and --user, later runs wait until `steno resume`.
    With --json the lever, as `steno pause`.

    \b
    Examples:
      steno stop matmul
      steno stop 5f0c --abort
      steno stop --all --why "the bill"
      steno stop --user bob --yes
    """
    from steno.engine.submit.requests import needs_stop

    if any(scope.values()):
        if runs or abort or (scope["everything"] and len([value for value in scope.values() if value]) > 1):
            raise click.UsageError("--all, --user, --state and --machine take no names and no --abort, --all no other")
        stop_many(app, why, yes=yes, user=scope["user"], state=scope["state"], vm=scope["machine"])
        return
    app.several = len(runs) > 1
    with app.writing(create=False) as record:
        with caught_up_view(record) as view:
            named = {row.run_id: row.decoded for row in map(view.row, runs)}
            requested = [needs_stop(run, view.state, app.settings, app.clock.now()) for run in named.values()]
        for run, needed in zip(named.values(), requested, strict=True):
            _stop(app, record, run, abort=abort, requested=needed)


def _stop(app: App, record: Record, folded: Run, *, abort: bool, requested: bool) -> None:
    from steno.cli.render.runs import ended
    from steno.cli.wiring.session import END_TIMEOUT, session

    name, state = folded.name or folded.run_id, str(folded.state)
    outcome = f"{name} had already ended: {state}"
    if requested:
        with session(app, record, folded.provider, project=folded.project, adopt=False) as here:
            here.stop(folded, abort=abort)
            after = here.follow(folded.run_id, name, timeout=END_TIMEOUT)
        kind = "abort" if abort else "stop"
        outcome = f"the {kind} of {name} is requested; it has not ended yet: `steno show {name}`"
        if after is not None:
            state, outcome = after.state, ended(after)
    show(app, {"run_id": folded.run_id, "name": folded.name, "state": state, "asked": requested}, outcome)


@steno_command("compare")
@click.argument("runs", metavar="A B", nargs=2, shell_complete=completed_runs)
@both_times_option
def compare_command(app: App, runs: tuple[str, str], at: str | None) -> None:
    """The requests are known of runs that Steno submitted. With --json: {"runs": [run objects], "outcome":
    [{"field", "values"}], "task": [{"field", "values"}], "task_known", "position"}; times are seconds.

    \b
    Examples:
      steno compare matmul-4f0c2a91b7de matmul-81aa
      steno compare 5f0c 81aa --json | jq .task
    """

    from steno.projections.answers.compare import compared
    from steno.projections.answers.record_pages import request_of

    with viewing(app, at) as (record, view, _):
        rows = [view.row(word) for word in runs]
        first, second = (view.run(row.run_id) for row in rows)
        comparison = compared(first, second, (request_of(record, first.run_id), request_of(record, second.run_id)))
        position = view.position
    names = [run.name or run.run_id for run in (first, second)]
    if names[0] == names[1]:
        names = [f"{run.name} ({run.run_id[:8]})" for run in (first, second)]
    value = {"runs": (first, second), **msgspec.to_builtins(comparison), "position": position}
    show(app, value, lambda: _page(comparison, names, columns()))


def _page(comparison: Comparison, names: Sequence[str], width: int) -> str:
    rows = [
        (paint.bold(name) if line.differs else name, *(_shown(line.field, value) for value in line.values))
        for line in comparison.outcome
        for name in (line.field.removesuffix("_seconds").removesuffix("_usd").replace("_", " "),)
    ]
    parts = [paint.fitted(("", *names), rows, width, spare=())]
    if comparison.task:
        differing = [(line.field, *(_shown(line.field, value) for value in line.values)) for line in comparison.task]
        parts.append(paint.fitted(("ASKED FOR", *names), differing, width, spare=()))
    elif comparison.task_known:
        parts.append("Both requests are equal.")
    else:
        parts.append("The requests are unknown: Steno did not submit both runs.")
    return "\n\n".join(parts)


def _shown(field: str, value: Any) -> str:
    from steno.events.shape.secrets import PREFIX

    if value is None:
        return "–"
    if field.endswith("_seconds"):
        return lasted(value)
    if field.endswith("_usd"):
        return short(value)
    text = " && ".join(map(str, value)) if isinstance(value, list) else str(value)
    return f"secret {text.removeprefix(PREFIX)[:6]}…" if text.startswith(PREFIX) else text
