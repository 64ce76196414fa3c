"""Slurm's answers as facts. Its sources know different things at different times, so each is a witness of its own: the
controller (squeue, scontrol) knows what waits and runs, accounting (sacct) what has ended and how.

Rules, from a real cluster: only accounting's record of an end ends an attempt; an attempt's end is not the job's while
the controller still lists the job; a source's silence proves nothing. Without accounting (`STENO_ACCOUNTING=none` in
the command) the controller's end counts, with the exit status that our job script writes.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from steno.engine.providers.slurm import rows as read
from steno.engine.providers.slurm import witnesses
from steno.engine.providers.slurm.allocation import allocation, hostname, mismatch, price_in, report_in
from steno.engine.providers.slurm.jobs import chains_of, is_same_job
from steno.engine.providers.slurm.query import ENDS, PREFIX, REPORTS, Question, question_of
from steno.engine.providers.slurm.rows import Row, RowCache
from steno.engine.providers.slurm.spec import MARK, spec_of
from steno.engine.providers.slurm.words import LIVE, PAUSED, REQUEUED, UNKNOWN_JOB, cause, ending, exit_status, waits
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts, Waits
from steno.engine.state.reading import Listing, Reading, Scope
from steno.engine.state.run import ANY, Range, Requirements
from steno.engine.state.states import PROGRESS, Reason, State
from steno.events.clock import SECOND, format_time
from steno.events.errors import StenoError
from steno.events.shape.shape import LINES, BodyShape

CLUSTER_NAME: Final = "STENO_CLUSTER_NAME"  # in a question: the cluster's own name; STENO_CLUSTER is its source's
REPORT: Final = "report"
_WITNESSES: Final = {
    "squeue": witnesses.CONTROLLER, "scontrol": witnesses.CONTROLLER, "sacct": witnesses.ACCOUNTING,
    ENDS: witnesses.SCRIPT, REPORTS: REPORT,
}  # fmt: skip
_TEXT: Final = BodyShape(kind="run", items=LINES, identity="0")
_WHOLE: Final = BodyShape(kind="run", items="")
_SLURM: Final = "by Slurm"  # accounting names no user who cancelled it
_UNNAMED: Final = "allocation"  # accounting's word for a job before it has its name

_PRIVATE: Final = {
    **dict.fromkeys(("JobName", "Account", "user_name", "account", "user"), "names"),
    **dict.fromkeys(("Command", "WorkDir", "StdErr", "StdIn", "StdOut", "SubmitLine"), "commands"),
    **dict.fromkeys(("command", "current_working_directory", "standard_error", "standard_output"), "commands"),
    **dict.fromkeys(("commands", "submit_line", "script", "working_dir"), "commands"),
    **dict.fromkeys(("NodeList", "BatchHost", "ReqNodeList", "batch_host", "nodes"), "hosts"),
}


class SlurmReading(Reading):
    """Answers of Slurm 22.05 to 25.x, text or JSON."""

    makes_all_vms = True
    own_machines = True
    joins_items = True
    ids_recur = True
    private = _PRIVATE

    def __init__(self) -> None:
        self._rows = RowCache()

    def scope(self, path: str, req: bytes) -> Scope | None:
        return _scope(req) if path.startswith(PREFIX) else None

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        question = question_of(req)
        if question.tool not in _WITNESSES:
            return None
        return _WHOLE if question.json else _TEXT

    def answered(self, path: str, req: bytes, status: int | None, body: bytes | None, error: str | None = None) -> bool:
        """Exit code 0 without JSON `errors` (`squeue --json` exits 0 if the controller is down), or no such jobs."""
        question = question_of(req)
        if question.tool == ENDS:
            return body is not None and error is None
        if status != 0 or body is None:
            return status == 1 and body is not None and UNKNOWN_JOB.search(error or "") is not None
        if not question.json:
            return _is_answer(question, _text(body))
        answer = read.decode(_text(body))
        return answer is not None and not answer.get("errors")

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        question = question_of(scope.asked)
        if question.tool == REPORTS:
            return _reported(_text(item), scope)
        by_job: dict[str, list[RunFacts]] = {}
        for row in self.rows(scope.asked, _text(item)):
            if question.tool == ENDS and row.state in LIVE:
                continue  # a script that has begun does not keep a job alive
            by_job.setdefault(_whole(row), []).append(_facts(row, question, scope))
        chains = (chain for rows in by_job.values() for chain in self.by_run(rows))
        return tuple(self.joined(chain) if len(chain) > 1 else chain[0] for chain in chains)

    def rows(self, req: bytes, line: str) -> tuple[Row, ...]:
        """The rows of one item of the answer to a request, parsed once. Raises ValueError if it is unreadable."""
        return self._rows.get(req, line)

    def by_run(self, rows: Sequence[RunFacts]) -> Iterable[Sequence[RunFacts]]:
        return chains_of(rows)

    def joined(self, rows: Sequence[RunFacts]) -> RunFacts:
        """The attempts that one answer lists, in order of submission; the newest counts. A het job has the attempts of
        each component: the most advanced that goes on counts, and it has ended when all have.
        """
        parts: dict[int, list[RunFacts]] = {}
        for row in _without_lists(rows):
            for job in row.jobs:
                parts.setdefault(job.job_num, []).append(row)
        if not parts:
            phases = sorted(dict.fromkeys(phase for row in rows for phase in row.phases), key=lambda phase: phase[1])
            differs = next((row.mismatch for row in rows if row.mismatch), None)
            return replace(max(rows, key=_counts), phases=tuple(phases), mismatch=differs)
        newest = [max(of, key=_counts) for _, of in sorted(parts.items())]
        going = [row for row in newest if not row.final]
        # Of those that ended the first that failed, else the first that was stopped.
        worst = max(newest, key=lambda row: (row.failed, row.cause is not Reason.EXIT_ZERO))
        counts = max(going, key=_counts) if going else worst
        first = min((row.submitted_at for row in rows if row.submitted_at is not None), default=None)
        jobs = tuple(JobFacts(job_num=num, attempts=_attempts(parts[num])) for num in sorted(parts))
        mark = next((row.mark for row in rows if row.mark is not None), None)
        return replace(counts, jobs=jobs, submitted_at=first, mark=mark)

    is_same_run = staticmethod(is_same_job)

    def together(self, before: RunFacts, views: Mapping[str, RunFacts | None], *, back: bool) -> RunFacts:
        report = views.get(REPORT)
        others = {witness: facts for witness, facts in views.items() if witness != REPORT}
        facts = witnesses.together(before, others, back=back) if others else before
        return facts if report is None else replace(facts, phases=report.phases, mismatch=report.mismatch)

    def testimony(self, views: Mapping[str, RunFacts | None]) -> tuple[str, ...]:
        return tuple(witnesses.testimony(views))

    def title(self, path: str, req: bytes) -> str:
        """The tool and its jobs: `sacct 17, 18, 19 and 40 more`."""
        question = question_of(req)
        jobs = sorted(question.jobs or (), key=lambda job: (len(job), job))
        more = f" and {len(jobs) - 3} more" if len(jobs) > 3 else ""
        tool = "exit statuses of scripts" if question.tool == ENDS else question.tool
        return f"{tool} {', '.join(jobs[:3])}{more}".rstrip()

    def machines(self, item: bytes, scope: Scope) -> tuple[VmFacts, ...]:
        """A job is a machine of its own from its start to its end."""
        question = question_of(scope.asked)
        if question.tool in ("squeue", REPORTS) or (question.tool == "scontrol" and _accounted(question)):
            return ()
        return tuple(
            vm for row in self.rows(scope.asked, _text(item)) if (vm := allocation(row, question, scope)) is not None
        )

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        raise ValueError("Slurm has no list of machines")

    def quotes(self, item: bytes) -> Iterator[tuple[str, object]]:
        yield ".", _text(item)

    def alternatives(self, facts: RunFacts) -> Iterable[tuple[str, RunFacts]]:
        newest = facts.jobs[0].newest if facts.jobs else None
        if newest is None or not newest.over:
            return
        for change, word, code in (
            ("had it exited 0", "COMPLETED", 0),
            ("had it exited 1", "FAILED", 1),
            ("had it been cancelled", "CANCELLED", None),
        ):
            if word != newest.status:
                why = cause(word, None)
                other = replace(newest, status=word, cause=_fault(why), exit_status=code, failed=_fails(why))
                first, *others = facts.jobs
                jobs = (replace(first, attempts=(*first.attempts[:-1], other)), *others)
                yield change, replace(facts, status=word, cause=why, failed=_fails(why), jobs=jobs)

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        """A job's machine is for this job alone and never idles. All its nodes are one allocation."""
        requirements = Requirements(submitter=submitter, fallback=fallback, any_machine=True, idle=0)
        try:
            task = msgspec.json.decode(configuration, type=dict[str, Any])
            spec = spec_of({**task, "commands": ("true",), "env": {}})
        except (msgspec.MsgspecError, ValueError, TypeError, StenoError):
            return requirements
        lasts = spec.total or spec.time
        race, strategy = task.get("race"), task.get("strategy")
        return replace(
            requirements,
            gpu=() if spec.gpu is None else (spec.gpu,),
            gpu_count=spec.gpus * spec.nodes,
            memory=ANY if spec.memory is None else Range(size := spec.memory * spec.nodes / 1024, size),
            first_node_only=spec.nodes > 1,
            tasks=1 if spec.array is None else max(1, len(read.expand(f"_[{spec.array}]")[0])),
            cpus=Range(cpus := (spec.cpus or 1) * spec.nodes, cpus),
            max_duration=None if lasts is None else lasts * 60 * SECOND,
            race=race if isinstance(race, str) else None,
            strategy=strategy if isinstance(strategy, str) else None,
        )


def _scope(req: bytes) -> Scope:
    question = question_of(req)
    source = question.environment.get("STENO_CLUSTER")
    name = f"slurm/{source}" if source else "slurm"
    witness = _WITNESSES.get(question.tool)
    if witness is None or not (question.json or question.columns or question.tool in ("scontrol", ENDS, REPORTS)):
        return Scope(provider="slurm", source=name, listing=Listing.OTHER, endpoint=question.tool or "other")
    return Scope(
        provider="slurm",
        source=name,
        project=source,
        listing=Listing.RUNS,
        endpoint=question.tool,
        watched=True,
        filtered=True,  # no single source lists every job
        asked=req,
        witness=witnesses.ACCOUNTING_JSON if question.tool == "sacct" and question.json else witness,
        covers=None
        if question.filtered or witness in (witnesses.SCRIPT, REPORT)
        else (question.jobs or frozenset({"*"})),
    )


def _text(item: bytes) -> str:
    text = msgspec.json.decode(item)
    return text if isinstance(text, str) else item.decode()


def _is_answer(question: Question, text: str) -> bool:
    """True if an answer is empty or has one readable line: a proxy's page or a notice is not an empty list."""
    if question.tool == "sinfo" and "STENO_CLUSTER" in question.environment:
        return "|" in text or read.is_silent(text)
    if question.tool != "scontrol" and not question.columns:
        return True
    if any(line.startswith(read.NONE) or read.is_row(question, line) for line in text.splitlines()):
        return True
    return read.is_silent(text)


def _accounted(question: Question) -> bool:
    return question.environment.get("STENO_ACCOUNTING") != "none"


def _reported(line: str, scope: Scope) -> tuple[RunFacts, ...]:
    """A job's report of its machine, or that it began a phase."""
    known = report_in(line)
    if known is None:
        return ()
    job, report = known
    phases = () if report.phase is None else ((report.phase, report.at * SECOND),)
    differs = mismatch(report) if report.phase is None else None
    return (RunFacts(provider_id=job, project=scope.project, phases=phases, mismatch=differs),)


def _whole(row: Row) -> str:
    """The run of a row: a het job is one run with several jobs, its components."""
    return row.job.partition("+")[0]


def _counts(row: RunFacts) -> tuple[int, bool, int, bool]:
    """The order of rows of which the greatest counts: the newest, then any that goes on, then the most advanced; of
    components that wait, a component that never runs.
    """
    going = row.state is not None and row.state is not State.FINISHING
    progress = PROGRESS.index(row.state) if going and row.state in PROGRESS else -1
    return witnesses.newest_of(row), not row.final, progress, row.waits is not None and row.waits.never


def _without_lists(rows: Sequence[RunFacts]) -> Sequence[RunFacts]:
    """Accounting keeps a task in the list of those that wait after it has a row of its own: the row counts."""
    if rows[0].group is None:
        return rows
    own = {row.submitted_at for row in rows if _has_nodes(row)}
    return [row for row in rows if row.submitted_at not in own or _has_nodes(row)]


def _has_nodes(row: RunFacts) -> bool:
    return any(attempt.hosts is not None for attempt in row.newest)


def _attempts(rows: Iterable[RunFacts]) -> tuple[AttemptFacts, ...]:
    """The attempts of one component, in order of submission."""
    attempts = [attempt for row in rows for job in row.jobs for attempt in job.attempts]
    attempts.sort(key=lambda attempt: attempt.submitted_at or 0)
    return tuple(replace(attempt, num=num) for num, attempt in enumerate(attempts))


def _facts(row: Row, question: Question, scope: Scope) -> RunFacts:
    if question.tool in ("sacct", ENDS) or (question.tool == "scontrol" and not _accounted(question)):
        return _ended_or_not(row, question, scope)
    state = LIVE.get(row.state)
    known = state is not None or cause(row.state, None) is not None
    return RunFacts(
        **_common(row, question, scope),
        # Accounting decides the end: the controller forgets it in seconds.
        state=State.FINISHING if state is None and known else state,
        requeued=state is State.QUEUED,
        drift=() if known else (f"state: unknown word {row.state!r}",),
    )


def _ended_or_not(row: Row, question: Question, scope: Scope) -> RunFacts:
    detail = _canceller(row, question) or row.exit_code
    why = Reason.UNKNOWN_REASON if detail == _SLURM else cause(row.state, row.derived, row.exit_code)
    # sacct before 25.11 subtracts 128; our own script ends by the signal instead, and none has the number 127.
    exact = question.json or question.tool != "sacct" or (MARK in (row.comment or "") and detail != "127:0")
    component = int(row.job.partition("+")[2] or 0)
    known = why is not None or row.state in LIVE
    status = exit_status(row.state, row.exit_code)
    # 22.05's JSON has no exit code of a failed job.
    over = why is not None and not (question.json and row.state == "FAILED" and status is None)
    # The start of a pending job is a prediction, that of one cancelled there the moment of the cancelling.
    without_nodes = row.nodes is None and (question.json or question.tool == "scontrol" or "nodes" in question.columns)
    waiting = LIVE.get(row.state) is State.QUEUED or (over and without_nodes)
    attempt = AttemptFacts(
        num=row.restarts or 0,
        status=row.state,
        reason=row.reason,
        state=LIVE.get(row.state) if "+" in row.job else None,
        over=over,
        failed=over and _fails(why),
        cause=_fault(why) if over else None,
        retried=row.state in REQUEUED,
        cut_off=over and row.state == "NODE_FAIL",
        exit_status=status if over else None,
        submitted_at=row.submitted,
        started_at=None if waiting else row.started,
        finished_at=row.ended if over else None,
        hosts=None if waiting else row.nodes,
        unpriced=None if waiting else price_in(row, question)[1],
        hostname=hostname(row) if row.started is not None else None,
    )
    return RunFacts(
        **_common(row, question, scope),
        state=State.FINISHING if why is not None else LIVE.get(row.state),
        final=over and not (question.tool == "scontrol" and row.state == "REQUEUED"),
        failed=attempt.failed,
        cause=why if over and why is not Reason.UNKNOWN_REASON else None,
        ending=ending(row.state, detail, exact=exact, job=row.job, nodes=row.nodes, by=row.by) if over else None,
        jobs=(JobFacts(job_num=component, attempts=(attempt,)),),
        drift=() if known else (f"state: unknown word {row.state!r}",),
    )


def _canceller(row: Row, question: Question) -> str | None:
    """The canceller of a job, as a word of `ENDINGS`; None: nobody, its owner, or it is not known."""
    if question.tool != "sacct" or question.json or row.by is None:
        return None
    if not row.by:
        return _SLURM
    if row.by == "0":
        return None if row.user == "root" else "by root"
    return None if row.uid in (None, row.by) else "by another user"


def _common(row: Row, question: Question, scope: Scope) -> dict[str, Any]:
    comment, (array, _, task) = row.comment or "", row.job.partition("_")
    closed = question.environment.get("STENO_MAINTENANCE", "")
    return {
        "provider_id": _whole(row),
        "project": scope.project,
        "realm": question.environment.get(CLUSTER_NAME),
        "name": None if row.name == _UNNAMED else row.name,
        "user": row.user,
        "status": row.state,
        "reason": row.reason,
        "mark": comment.removeprefix(MARK) if comment.startswith(MARK) else None,
        "submitted_at": row.submitted,
        "group": array if task else None,
        "task": int(task) if task.isdecimal() else None,
        "group_cut": row.cut,
        "waits": _waits(row, closed) if LIVE.get(row.state) is State.QUEUED else PAUSED.get(row.state),
    }


def _waits(row: Row, closed: str) -> Waits:
    """The start of a pending job is the scheduler's estimate, as `sbatch --test-only` gives it."""
    why = waits(row.reason, row.job, closed)
    return why if row.started is None or why.never else replace(why, starts_by=format_time(row.started))


def _fails(why: Reason | None) -> bool:
    return why not in (None, Reason.EXIT_ZERO, Reason.STOPPED_BY_USER, Reason.UNKNOWN_REASON)


def _fault(why: Reason | None) -> Reason | None:
    """The cause of a failed attempt, except for an exit status."""
    return why if _fails(why) and why is not Reason.EXIT_NONZERO else None
