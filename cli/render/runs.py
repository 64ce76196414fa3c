"""Runs in tables, one in full, two rule sets side by side; anomalies and gaps."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from steno.cli.render import paint, words
from steno.engine.objects import BlindObject, RanObject, RunObject
from steno.engine.state.changes import Anomaly
from steno.engine.state.facts import Waits
from steno.engine.state.states import State
from steno.events.clock import duration, parse_time

if TYPE_CHECKING:
    from steno.engine.decide.queue import Queued
    from steno.engine.money.starts import Like
    from steno.projections.answers.incidents import DatedAnomaly
    from steno.projections.read_models.schema import RunRow

_TASKS = 20  # of an array, or firings of a schedule, in full


def verdict(run: RunObject) -> str:
    """`● failed · exit_nonzero · exit 1` in the state's colour; of a schedule `● queued · next at TIME`."""
    if run.next_at is not None:
        return paint.verdict(run.state, f"next at {words.moment(run.next_at)}")
    if (run.rule or "").endswith("/not-seen"):
        return paint.verdict(run.state, "not seen")
    return paint.verdict(run.state, run.reason, None if run.exit_status is None else f"exit {run.exit_status}")


def ended(run: RunObject) -> str:
    """The last line about a run: name, verdict, duration, cold or warm start, cost."""
    return "  ".join(filter(None, (f"{paint.bold(called(run))}  {verdict(run)}", *figures(run))))


def figures(run: RunObject) -> tuple[str, ...]:
    """Duration, start and cost; an empty text for what is unknown."""
    return (
        "" if run.execution_seconds is None else f"ran {ran(run)}",
        "" if run.start is None else f"{run.start} start",
        paid(run),
    )


def paid(run: RunObject) -> str:
    """`cost $0.0535, PROVIDER says $0.0347`: Steno's cost and the provider's; empty for a free run on this machine."""
    figure = None if run.provider == "local" else run.provider_cost_usd
    if not costs(run):
        return "" if figure is None else f"{run.provider} says it cost {words.money(figure)}"
    ours = f"cost {words.short(run.cost_usd)}"
    return ours if figure is None else f"{ours}, {run.provider} says {words.money(figure)}"


def costs(run: RunObject) -> bool:
    """True if Steno knows the cost; a zero cost on this machine does not count."""
    return run.cost_usd is not None and (run.provider != "local" or float(run.cost_usd) != 0)


def cost_cell(run: RunObject) -> str:
    """Steno's cost; if unknown, the provider's figure in brackets."""
    if costs(run):
        return words.short(run.cost_usd)
    if run.provider_cost_usd is None or run.provider == "local":
        return "–"
    return paint.dim(f"({words.money(run.provider_cost_usd)})")


def called(run: RunObject) -> str:
    return paint.plain(run.name or run.provider_id or run.run_id)


def identity(run: RunObject) -> list[str]:
    """The lines `PROVIDER <its id>` and `run id <Steno's>`; one line if the provider has no other id."""
    ours = f"run id {run.run_id}"
    if run.provider_id in (None, run.run_id):
        return [paint.dim(f"{run.provider}  {ours}")]
    return [paint.dim(f"{run.provider} {run.provider_id}"), paint.dim(ours)]


def listing(
    runs: Sequence[RunObject],
    now: int,
    columns: int,
    *,
    waiting: "Mapping[str, Queued]",
    machines: Mapping[str, str],
    unfold: bool = False,
    executed: Mapping[str, RanObject] | None = None,
) -> str:
    """The table of `ps`, in the given order; a narrow terminal shows fewer columns. `unfold` shows each run of a group;
    `waiting` maps run ids to places in Steno's queue, `machines` machine ids to names. With `executed`, by run id,
    every column is shown.
    """
    head = ("RUN", "VERDICT", "WHERE", "MACHINE", "START", "SUBMITTED", "RAN", "COST", "ID")
    groups: dict[tuple[str, str], list[RunObject]] = {}
    for run in runs:
        whole = run.group or (run.provider_id if run.tasks else None)
        groups.setdefault((run.provider, run.run_id if unfold or whole is None else whole), []).append(run)
    rows = [
        _group(group, now)
        if len(group) > 1
        else (
            paint.cut(called(run), 40),
            verdict(run)
            + (f" · attempt {run.attempts}" if run.attempts > 1 else "")
            + (f" · {place(waiting[run.run_id], now)}" if run.run_id in waiting else "")
            + ("" if run.waits is None else f" · {paint.cut(_waits(run.waits), 48)}"),
            run.provider if run.archive is None else f"{run.provider}, archive",
            "–" if run.vm_id is None else machines.get(run.vm_id, run.vm_id[:8]),
            run.start or "–",
            words.ago(parse_time(run.submitted_at), now) if run.submitted_at else "–",
            ran(run),
            cost_cell(run),
            paint.dim(run.run_id[:8]),
        )
        for group in groups.values()
        for run in group[:1]
    ]
    if executed is not None:
        rows = [(*row, *_executes(executed[group[0].run_id])) for row, group in zip(rows, groups.values(), strict=True)]
        return paint.table((*head, "USER", "GPU", "COMMAND"), rows, right=(6, 7))
    names = Counter(called(group[0]) for group in groups.values())
    # Only the id tells apart what has one name: it is left out last.
    spare = (8, 2, 3, 5, 4, 7, 6) if max(names.values(), default=0) < 2 else (2, 3, 5, 4, 7, 6, 8)
    return paint.fitted(head, rows, columns, right=(6, 7), spare=spare)


def _executes(ran: RanObject) -> tuple[str, str, str]:
    gpu = ran.gpu_got or ran.gpu_asked
    command = paint.plain((ran.command or "–").replace("\n", "; "))
    user = paint.plain(ran.submitter or ran.user or "–")
    return user, "–" if gpu in (None, "none") else paint.plain(str(gpu)), paint.cut(command, 200)


def _group(group: Sequence[RunObject], now: int) -> tuple[str, ...]:
    """The line of an array: its tasks by state, and what they cost together."""
    runs = [run for run in group if not run.tasks]
    states = Counter(run.state for run in runs)
    waits = dict.fromkeys(_waits(run.waits) for run in runs if run.waits is not None)
    # The tasks of one submission have no order of their own; how some ended comes first.
    verdicts = [paint.state(state, f"{states[state]} {state}") for state in reversed(State) if state in states]
    submitted = [parse_time(run.submitted_at) for run in runs if run.submitted_at]
    paid_for = [float(run.cost_usd) for run in runs if run.cost_usd is not None]
    machines = {run.vm_id for run in runs if run.vm_id is not None}
    return (
        f"{paint.cut(called(runs[0]), 28)} {paint.dim(f'[{len(runs)} runs]')}",
        " · ".join([*verdicts, *(paint.cut(why, 48) for why in [*waits][:1])]),
        runs[0].provider if runs[0].archive is None else f"{runs[0].provider}, archive",
        words.count(len(machines), "machine") if machines else "–",
        "–",
        words.ago(min(submitted), now) if submitted else "–",
        "–",
        words.short(f"{sum(paid_for):.6f}") if paid_for else "–",
        paint.dim(runs[0].group or ""),
    )


def _waits(waits: Waits) -> str:
    """Short; `show` says what to do about it."""
    return f"never runs: {waits.why}" if waits.never else waits.why


def place(queued: "Queued", now: int) -> str:
    """`#2 in the queue, in about 3 m`: place and estimated start, or what the provider answered."""
    rank = f"#{queued.position} in the queue"
    if queued.why == "offer":
        return f"{rank}, {paint.cut(queued.detail, 48)}"
    if queued.estimated_start is None:
        return rank
    return f"{rank}, in about {duration(max(0, queued.estimated_start - now))}"


def ran(run: RunObject) -> str:
    """The duration; `–` if unknown."""
    return words.lasted(run.execution_seconds)


def in_full(
    run: RunObject,
    now: int,
    *,
    why: str,
    columns: int,
    executed: RanObject,
    like: "Like",
    queued: "Queued | None" = None,
    machine: str | None = None,
    tasks: "Sequence[RunRow]" = (),
) -> str:
    """A run in full: the cause in a sentence, the verdict, and separately the provider's words. `machine` is its
    machine's name, `tasks` are an array's, or the firings of a schedule.
    """
    cost = words.short(run.cost_usd) + (f" ({run.unpriced})" if run.unpriced else "")
    facts = [
        ("verdict", verdict(run)),
        *([] if run.archive is None else [("archive", run.archive)]),
        ("rule", run.rule or "–"),
        ("evidence", _evidence(run, ", ")),
        *_reported(run),
        *([] if queued is None else [("waits", f"{place(queued, now)}: {queued.detail or queued.why}")]),
        *([] if run.waits is None else [("waits", str(run.waits))]),
        *_what_ran(executed),
        ("machine", "–" if run.vm_id is None else f"{machine or run.vm_id}, {run.start or 'unknown'} start"),
        ("attempts", str(run.attempts)),
        *([] if run.strategy is None else [("strategy", run.strategy)]),
        *([] if run.group is None else [("part of", run.group)]),
        *([] if run.schedule is None else [("firing of", run.schedule)]),
        ("submitted", words.moment(run.submitted_at)),
        *([(f"at {run.provider}", words.moment(run.provider_submitted_at))] if run.provider_submitted_at else []),
        ("started", words.moment(run.started_at)),
        ("finished", words.moment(run.finished_at)),
        ("ran", ran(run)),
        *([("cost", cost + words.idle(run.busy))] if costs(run) or run.provider != "local" else []),
        *([] if run.provider == "local" else [("provider's cost", words.money(run.provider_cost_usd))]),
        *([] if tasks else _beside(like)),
        ("run id", run.run_id),
        ("provider's id", run.provider_id or "–"),
        *([("same id", ", ".join(run.same_provider_id))] if run.same_provider_id else []),
    ]
    head = [paint.bold(called(run)) + paint.dim(f"  {run.provider}"), *paint.wrapped(why, min(columns, 100)), ""]
    lines = [*head, *paint.facts(facts)]
    if run.attempt_list:
        lines += ["", attempt_table(run)]
    if tasks:
        lines += ["", _task_table(tasks)]
    moves = []
    for move in run.transitions:
        origin = "" if move.origin is None else f"{move.origin} → "
        at = words.hour(parse_time(move.at))
        moves.append((str(move.position), at, f"{origin}{paint.state(move.target)}", move.rule or "–"))
    if moves:
        lines += ["", paint.table(("POSITION", "AT", "TRANSITION", "RULE"), moves, right=(0,))]
    return "\n".join(lines)


def _task_table(tasks: "Sequence[RunRow]") -> str:
    """The tasks of an array, or the firings of a schedule, the first of them in full."""
    answers = [task.public for task in tasks[:_TASKS]]
    rows = [
        (
            f"[{row.task}]" if run.schedule is None else f"#{(run.provider_id or '').partition('#')[2]}",
            verdict(run),
            ran(run),
            cost_cell(run),
            paint.dim(run.run_id[:8]),
        )
        for row, run in zip(tasks, answers, strict=False)
    ]
    head = "TASK" if answers[0].schedule is None else "FIRING"
    table = paint.table((head, "VERDICT", "RAN", "COST", "ID"), rows, right=(2, 3))
    more = len(tasks) - len(rows)
    return f"{table}\n… and {more} more: `steno ps --unfold`" if more else table


def _beside(like: "Like") -> Iterator[tuple[str, str]]:
    """The medians of the runs with its name."""
    took = next(phase.median_seconds for phase in like.phases if phase.phase == "running")
    ran = None if took is None else f"ran {words.lasted(took)}"
    known = [ran, f"cost {words.short(like.median_cost_usd)}" if like.median_cost_usd else None]
    if like.runs and any(known):
        others = words.count(like.runs, "other run")
        yield "same name", f"median of {others}: {', '.join(filter(None, known))}"


def _what_ran(ran: RanObject) -> Iterator[tuple[str, str]]:
    lines = (ran.command or "").split("\n")
    yield "command", paint.plain(lines[0]) or "–"
    yield from (("", paint.plain(line)) for line in lines[1:])
    gpu = ran.gpu_got if ran.gpu_asked is None else ran.gpu_asked
    if gpu is not None and ran.gpu_got not in (None, gpu):
        gpu = f"{ran.gpu_got}, asked for {gpu}"
    user = ran.submitter or ran.user
    if None not in (ran.submitter, ran.user) and ran.submitter != ran.user:
        user = f"{ran.submitter}, as {ran.user}"
    kind = None if ran.type == "task" else ran.type
    facts = {"type": kind, "image": ran.image, "GPU": gpu, "submitted by": user, "project": ran.project}
    yield from ((label, paint.plain(value)) for label, value in facts.items() if value is not None)
    yield "source", ran.source


def attempt_table(run: RunObject) -> str:
    """A line for each attempt that the provider dates: where it ran, and how long it waited."""
    rows = [
        (
            str(attempt.number),
            _said(attempt.status, None, attempt.exit_status),
            attempt.hosts or "–",
            words.moment(attempt.submitted_at),
            words.lasted(attempt.waited_seconds),
            words.moment(attempt.started_at),
            words.moment(attempt.finished_at),
        )
        for attempt in run.attempt_list
    ]
    return paint.table(
        ("ATTEMPT", "PROVIDER SAYS", "ON", "SUBMITTED", "WAITED", "STARTED", "FINISHED"), rows, right=(4,)
    )


def _evidence(run: RunObject, between: str) -> str:
    return between.join(f"#{position}" for position in run.evidence) or "–"


def replayed(runs: Sequence[RunObject], columns: int) -> str:
    """The table of `replay`: each verdict with its evidence polls; a narrow terminal shows fewer columns."""
    head = ("RUN", "VERDICT", "ATTEMPTS", "START", "RAN", "COST", "EVIDENCE", "RULE")
    rows = [
        (
            paint.cut(called(run), 40),
            verdict(run),
            str(run.attempts),
            run.start or "–",
            ran(run),
            cost_cell(run),
            _evidence(run, " "),
            paint.dim(run.rule or "–"),
        )
        for run in runs
    ]
    return paint.fitted(head, rows, columns, right=(2, 4, 5), spare=(7, 2, 3, 5, 4))


def side_by_side(names: tuple[str, str], pairs: Sequence[tuple[RunObject | None, RunObject | None]]) -> str:
    """Each run's verdict under two rule sets; `≠` where they differ."""
    rows = []
    for left, right in pairs:
        run = left or right
        assert run is not None  # noqa: S101 - a pair has one side at least
        same = left is not None and right is not None and _outcome(left) == _outcome(right)
        mark = " " if same else paint.bold("≠")
        rows.append((mark, paint.cut(called(run), 32), _settled(left), _settled(right)))
    return paint.table((" ", "RUN", *names), rows)


def _outcome(run: RunObject) -> tuple[str, str | None, int | None]:
    return run.state, run.reason, run.exit_status


def _settled(run: RunObject | None) -> str:
    if run is None:
        return paint.dim("not seen")
    by = paint.dim(f"  #{run.evidence[-1]}") if run.evidence else ""
    return verdict(run) + by


def _reported(run: RunObject) -> list[tuple[str, str]]:
    if run.reported is None:
        return [("provider says", "–")]
    jobs = run.reported.jobs
    names = [f"  job {number}" for number in range(len(jobs))] if len(jobs) > 1 else ["  its job"]
    statuses = [_said(job.status, job.reason, job.exit_status) for job in jobs]
    return [
        ("provider says", _said(run.reported.status, run.reported.reason, None)),
        *zip(names, statuses, strict=False),
    ]


def _said(status: str | None, reason: str | None, exit_status: int | None) -> str:
    words_said = paint.plain(f"{status or '–'} / {reason}" if reason else status or "–")
    return words_said if exit_status is None else f"{words_said}, exit_status {exit_status}"


def anomaly_table(anomalies: Sequence[Anomaly]) -> str:
    rows = [(f"#{each.position}", *_about(each)) for each in anomalies]
    return paint.table(("POLL", "ANOMALY", "WHAT"), rows, right=(0,))


def dated_anomaly_table(anomalies: "Sequence[DatedAnomaly]") -> str:
    rows = [(f"#{each.position}", words.moment(each.at), *_about(each)) for each in anomalies]
    return paint.table(("POLL", "AT", "ANOMALY", "WHAT"), rows, right=(0,))


def _about(anomaly: "Anomaly | DatedAnomaly") -> tuple[str, str]:
    return anomaly.kind, f"{anomaly.detail} {paint.dim(f'({anomaly.subject})')}"


def gap_table(gaps: Sequence[BlindObject]) -> str:
    rows = []
    for gap in gaps:
        length = "still" if gap.end is None else duration(parse_time(gap.end) - parse_time(gap.start))
        rows.append((gap.source, gap.kind.words, words.moment(gap.start), words.moment(gap.end), length))
    return paint.table(("NOT SEEN", "WHY", "SINCE", "UNTIL", "FOR"), rows, right=(4,))
