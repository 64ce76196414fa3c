"""A run of a dstack answer as facts (servers 0.19.37 to 0.22.5). Unknown words and types never raise."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from operator import attrgetter
from typing import Annotated, Any, ClassVar, Final

import msgspec

from steno.engine.providers.dstack import words
from steno.engine.providers.dstack.endings import GENERAL, ending
from steno.engine.providers.dstack.firings import by_firing
from steno.engine.providers.dstack.lenient import Identified, LenientDecoder, at, mapping, shared
from steno.engine.state.facts import AttemptFacts, Carrier, Finding, JobFacts, RunFacts, Schedule
from steno.engine.state.states import Reason
from steno.engine.wire import DOLLAR
from steno.events.clock import parse_time

_GREATEST: Final = 1_000_000_000  # dollars; no real amount is larger
_EARLIEST: Final = parse_time("2000-01-01T00:00:00Z")
_LATEST: Final = parse_time("2200-01-01T00:00:00Z")
_NEVER_RETRIED: Final = frozenset[str]()
_ORDER: Final = attrgetter("replica_num", "job_num")
_NUM: Final = attrgetter("num")

_Whole = Annotated[int, msgspec.Meta(ge=-(2**53), le=2**53)]  # as in `lenient`; more does not fit read models


class MachineWire(msgspec.Struct):
    backend: str | None = None
    instance_id: str | None = None
    hostname: str | None = None
    price: float | None = None


class OfferWire(msgspec.Struct):
    """`job_runtime_data.offer`: the job's part of a machine."""

    blocks: _Whole | None = None


class RuntimeWire(msgspec.Struct):
    offer: OfferWire | None = None


class LatestWire(msgspec.Struct):
    """The newest submission, as given beside the jobs."""

    submission_num: _Whole | None = None
    status: str | None = None
    termination_reason: str | None = None
    termination_reason_message: str | None = None
    exit_status: _Whole | None = None
    submitted_at: str | None = None
    finished_at: str | None = None
    job_provisioning_data: MachineWire | None = None
    job_runtime_data: RuntimeWire | None = None


class SubmissionWire(LatestWire):
    unread: ClassVar[dict[str, Any]] = {}


class RetryWire(msgspec.Struct, frozen=True):
    """A retry policy; an unreadable one covers everything."""

    on_events: tuple[str, ...]
    unread: ClassVar[dict[str, Any]] = {"on_events": tuple(sorted(words.RETRY_EVENTS))}


class SpecWire(msgspec.Struct, frozen=True):
    replica_num: _Whole = 0
    job_num: _Whole = 0
    retry: RetryWire | None = None


class JobWire(msgspec.Struct, kw_only=True):
    job_spec: SpecWire = SpecWire(retry=RetryWire(**RetryWire.unread))
    job_submissions: list[SubmissionWire]
    unread: ClassVar[dict[str, Any]] = {}


class TagsWire(msgspec.Struct, frozen=True):
    mark: str | None = msgspec.field(default=None, name=words.MARK)


class ScheduleWire(msgspec.Struct, frozen=True):
    cron: tuple[str, ...] = ()


class ProfileWire(msgspec.Struct, frozen=True):
    stop_criteria: str | None = None
    schedule: ScheduleWire | None = None


class ConfigurationWire(ProfileWire, frozen=True):
    type: str | None = None
    tags: TagsWire | None = None


class RunSpecWire(msgspec.Struct, frozen=True):
    configuration: ConfigurationWire = ConfigurationWire()
    profile: ProfileWire | None = None
    run_name: str | None = None


class RunWire(Identified, kw_only=True):
    """A run as dstack sends it, as far as we read it, without volatile values."""

    run_spec: RunSpecWire = RunSpecWire()
    jobs: list[JobWire]
    project_name: str | None = None
    user: str | None = None
    status: str | None = None
    termination_reason: str | None = None
    submitted_at: str | None = None
    latest_job_submission: LatestWire | None = None
    next_triggered_at: str | None = None


class _CostWire(Identified):
    cost: float | None = None


RUNS: Final = LenientDecoder(RunWire, "a run")
_cost = msgspec.json.Decoder(_CostWire)


def read_cost(item: bytes) -> dict[str, int | None]:
    """dstack's own `cost` in micro-dollars, under the run's id; None if absent."""
    try:
        wire = _cost.decode(item)
    except msgspec.DecodeError:
        return {}
    return {wire.id: _micro(wire.cost)}


def read_configuration(item: bytes) -> dict[str, bytes]:
    """The run's configuration as JSON text, under its id; empty if it shows none."""
    run = mapping(item)
    configuration = at(run, "run_spec", "configuration")
    is_run = isinstance(run.get("id"), str) and isinstance(configuration, dict)
    return {run["id"]: msgspec.json.encode(configuration)} if is_run else {}


_QUOTED: Final = ("status", "status_message", "termination_reason")
_QUOTED_OF_A_JOB: Final = ("submission_num", *_QUOTED, "termination_reason_message", "exit_status")
_ALWAYS: Final = ("status", "termination_reason", "exit_status")


def quotes(item: bytes) -> Iterator[tuple[str, object]]:
    """The words of the run, and of the newest submission of every job, with their paths in the item."""
    run = mapping(item)
    if not run:
        return
    yield from _quoted("", run, (*_QUOTED, "next_triggered_at"))
    jobs = run.get("jobs")
    for number, job in enumerate(jobs if isinstance(jobs, list) else ()):
        submissions = at(job, "job_submissions")
        if isinstance(submissions, list) and submissions:
            newest = max(range(len(submissions)), key=lambda index: _number(submissions[index]))
            yield from _quoted(f".jobs[{number}].job_submissions[{newest}]", submissions[newest], _QUOTED_OF_A_JOB)


def _quoted(path: str, values: object, names: tuple[str, ...]) -> Iterator[tuple[str, object]]:
    if not isinstance(values, dict):
        return
    for name in names:
        value = values.get(name)
        if (value in (None, "") and name not in _ALWAYS) or (name == "submission_num" and value == 0):
            continue
        if name != "status_message" or value != values.get("status"):
            yield f"{path}.{name}", value


def _number(submission: object) -> int:
    number = at(submission, "submission_num")
    return number if isinstance(number, int) else 0


def facts_in(run: dict[str, object]) -> RunFacts:
    """The facts of a run in an answer that was decoded already."""
    return facts_of(*RUNS.decode(msgspec.json.encode(run)))


def facts_of(wire: RunWire, drift: tuple[str, ...] = ()) -> RunFacts:
    """The facts of a decoded run; adds unknown words and unreadable times to `drift`."""
    odd = list(drift)
    spec, profile = wire.run_spec, wire.run_spec.profile or ProfileWire()
    with_master = (spec.configuration.stop_criteria or profile.stop_criteria) == words.MASTER_DONE
    schedule = spec.configuration.schedule or profile.schedule
    jobs = [_job(job, odd, with_master=with_master, fires=schedule is not None) for job in wire.jobs]
    if len(jobs) > 1:
        jobs.sort(key=_ORDER)
    if schedule is not None:
        jobs = by_firing(jobs, schedule.cron)
    latest, configuration = wire.latest_job_submission, wire.run_spec.configuration
    tags, next_at = configuration.tags, read_time(wire.next_triggered_at, "next_triggered_at", odd)
    _known(wire.status, words.RUN_STATUSES, "status", odd)
    _known(wire.termination_reason, words.RUN_REASONS, "termination_reason", odd)
    return RunFacts(
        provider_id=wire.id,
        name=wire.run_spec.run_name,
        project=shared(wire.project_name),
        user=shared(wire.user),
        finite=configuration.type == "task",
        **_run_words(wire.status, wire.termination_reason),
        ending=_ending(wire),
        mark=None if tags is None else tags.mark,
        submitted_at=read_time(wire.submitted_at, "submitted_at", odd),
        jobs=tuple(jobs),
        latest_exit_status=_latest(jobs) if latest is None else latest.exit_status,
        drift=tuple(dict.fromkeys(odd)) if odd else (),
        schedule=None if schedule is None else Schedule(next_at=next_at),
    )


def _ending(wire: RunWire) -> Finding | None:
    """Why it ended, where dstack says more than reason and exit status: of the job that decides, else its own word."""
    newest: list[LatestWire] = [
        max(job.job_submissions, key=lambda row: row.submission_num or 0) for job in wire.jobs if job.job_submissions
    ]
    if not newest and wire.latest_job_submission is not None:
        newest = [wire.latest_job_submission]
    failed = next((last for last in newest if words.job_cause(last.termination_reason) is not None), None)
    if failed is None and any(last.exit_status for last in newest):
        return None
    failed = failed or next((last for last in newest if last.termination_reason not in words.NO_FAILURE), None)
    if failed is None or wire.termination_reason in words.STOPS:
        return ending(wire.termination_reason, None)
    explains = failed.termination_reason != words.BY_SERVER or failed.termination_reason_message
    if not explains and wire.termination_reason not in GENERAL:
        return ending(wire.termination_reason, None)
    if failed.exit_status is not None and words.job_cause(failed.termination_reason) is Reason.EXIT_NONZERO:
        return None
    return ending(failed.termination_reason, failed.termination_reason_message)


def _run_words(status: str | None, reason: str | None) -> dict[str, Any]:
    return {
        "status": shared(status),
        "reason": shared(reason),
        "state": None if status is None else words.RUN_STATE.get(status),
        "requeued": status == "pending",
        "final": status in words.FINAL_RUN_STATUSES,
        "failed": status == "failed",
        "cause": words.run_cause(status, reason),
    }


def with_run_words(facts: RunFacts, status: str | None, reason: str | None, jobs: tuple[JobFacts, ...]) -> RunFacts:
    """The run, had dstack given these words and shown these jobs."""
    return msgspec.structs.replace(facts, jobs=jobs, latest_exit_status=_latest(jobs), **_run_words(status, reason))


def _latest(jobs: Sequence[JobFacts]) -> int | None:
    newest = jobs[0].newest if jobs else None
    return None if newest is None else newest.exit_status


def _attempt_words(
    status: str | None, reason: str | None, exit_status: int | None, retry_on: frozenset[str]
) -> dict[str, Any]:
    return {
        "status": shared(status),
        "reason": shared(reason),
        "state": None if status is None else words.JOB_STATE.get(status),
        "over": status in words.ENDED_JOB_STATUSES,
        "failed": status == "failed",
        "cause": words.job_cause(reason),
        "retried": words.is_retried(reason, exit_status, retry_on),
        "cut_off": reason in words.MACHINE_LOST,
        "exit_status": exit_status,
    }


def with_attempt_words(
    facts: AttemptFacts, status: str | None, reason: str | None, exit_status: int | None, retry_on: frozenset[str]
) -> AttemptFacts:
    """The attempt, had dstack given these words."""
    return msgspec.structs.replace(facts, **_attempt_words(status, reason, exit_status, retry_on))


def _job(wire: JobWire, odd: list[str], *, with_master: bool, fires: bool) -> JobFacts:
    retry_on = _NEVER_RETRIED if wire.job_spec.retry is None else _covered(wire.job_spec.retry.on_events)
    given: list[AttemptFacts] = []
    num = 0
    for submission in wire.job_submissions:
        # One without a number belongs to the one before: it can delay a verdict, not open an attempt.
        num = submission.submission_num if submission.submission_num is not None else num
        attempt = _submission(submission, num, retry_on, odd)
        exited = attempt.cause is Reason.EXIT_NONZERO and attempt.exit_status is not None
        if fires and attempt.cause is not None and not exited:
            why = ending(attempt.reason, submission.termination_reason_message)
            attempt = msgspec.structs.replace(attempt, ending=why)
        given.append(attempt)
    return JobFacts(
        replica_num=wire.job_spec.replica_num,
        job_num=wire.job_spec.job_num,
        retry_on=retry_on,
        decides=not with_master or wire.job_spec.job_num == 0,
        attempts=tuple(given) if len(given) == 1 else tuple(sorted(given, key=_NUM)),
    )


@lru_cache(maxsize=256)
def _covered(events: tuple[str, ...]) -> frozenset[str]:
    return frozenset(events)


def _submission(wire: SubmissionWire, num: int, retry_on: frozenset[str], odd: list[str]) -> AttemptFacts:
    _known(wire.status, words.JOB_STATUSES, "job status", odd)
    _known(wire.termination_reason, words.RETRY_EVENT_OF, "job termination_reason", odd)
    machine, runtime = wire.job_provisioning_data or _NO_MACHINE, wire.job_runtime_data or _NO_RUNTIME
    blocks = None if runtime.offer is None else runtime.offer.blocks
    carrier = _carrier(machine)
    return AttemptFacts(
        num=num,
        **_attempt_words(wire.status, wire.termination_reason, wire.exit_status, retry_on),
        submitted_at=read_time(wire.submitted_at, "job submitted_at", odd),
        finished_at=read_time(wire.finished_at, "job finished_at", odd),
        hostname=shared(machine.hostname or None) if carrier is None else None,
        carrier=carrier,
        price=_micro(machine.price),
        unrun=words.never_ran(wire.termination_reason, wire.termination_reason_message),
        blocks=blocks if blocks is not None and 0 < blocks < 1 << 31 else None,
    )


def _carrier(machine: MachineWire) -> Carrier | None:
    """The job of dstack's own Slurm backend, whose `instance_id` is `<job name>:<job id>:<node>`."""
    parts = (machine.instance_id or "").split(":", 2)
    if machine.backend != words.SLURM or len(parts) < 3:
        return None
    return Carrier(provider=words.SLURM, provider_id=parts[1], name=parts[0])


_NO_MACHINE: Final = MachineWire()
_NO_RUNTIME: Final = RuntimeWire()


def _micro(dollars: float | None) -> int | None:
    return None if dollars is None or abs(dollars) > _GREATEST else round(dollars * DOLLAR)


def _known(word: str | None, known: frozenset[str] | dict[str, str | None], where: str, odd: list[str]) -> None:
    if word is not None and word not in known:
        odd.append(f"{where}: unknown word {word!r}")


def read_time(text: str | None, where: str, odd: list[str]) -> int | None:
    """The provider's time, microseconds; None, and named in `odd`, if impossible: Go's zero time is the year 1."""
    moment = None if text is None else _moment(text)
    if moment is None and text is not None:
        odd.append(f"{where}: not a time: {text[:80]!r}")
    return moment


@lru_cache(maxsize=1024)
def _moment(text: str) -> int | None:
    """The moment of a time; None if impossible. Every answer about a run repeats its times."""
    with suppress(ValueError):
        moment = parse_time(text)
        if _EARLIEST <= moment <= _LATEST:
            return moment
    return None
