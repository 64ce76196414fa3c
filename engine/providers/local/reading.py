"""What this machine says of its runs and machines, as facts. Older records have its answers in other words: they are
polls of other paths, and another reading reads them.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from engine.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from engine.providers.reading import Listing, Reading, Scope
from engine.requirements import Requirements
from engine.states import Reason, State, VmReason, VmState
from events.clock import parse_time
from events.shape.shape import BodyShape

T = TypeVar("T")
RUNS: Final = "/local/runs"
MACHINES: Final = "/local/machines"
_LISTINGS: Final = {RUNS: Listing.RUNS, MACHINES: Listing.VMS}
_SHAPES: Final = {
    RUNS: BodyShape(
        kind="run",
        items="[]",
        volatile=("cost",),
        cold=("task", "command", "machine"),
        secret=("task.env", "task.registry_auth"),
    ),
    MACHINES: BodyShape(kind="vm", items="[]"),
}

STATES: Final = {
    "queued": State.QUEUED,
    "provisioning": State.PROVISIONING,
    "running": State.RUNNING,
    "stopping": State.FINISHING,
    "ended": None,
}
"""A run's `status` → where it is before its end."""
CAUSES: Final = {
    "exited": None,
    "stopped": Reason.STOPPED_BY_USER,
    "killed": Reason.ABORTED_BY_USER,
    "timed_out": Reason.TIMED_OUT,
    "not_started": Reason.PROVIDER_ERROR,
    "supervisor_lost": Reason.NODE_FAILED,
    "machine_lost": Reason.UNREACHABLE,
    "no_capacity": Reason.NO_CAPACITY,
}
"""A run's `reason` → ours; after `exited` the exit status says it."""
_STOPS: Final = ("stopped", "killed")
VM_STATES: Final = {
    "provisioning": VmState.PROVISIONING,
    "idle": VmState.IDLE,
    "busy": VmState.BUSY,
    "stopping": VmState.TERMINATING,
    "gone": VmState.TERMINATED,
}
VM_CAUSES: Final = {
    "idle_timeout": VmReason.IDLE_TIMEOUT,
    "stopped": VmReason.STOPPED_BY_USER,
    "unreachable": VmReason.UNREACHABLE,
}
_DOLLAR: Final = 1_000_000


class Asked(msgspec.Struct, kw_only=True):
    """The request of a poll."""

    host: str | None = None
    limit: int = 1 << 62


class RunMachine(msgspec.Struct, kw_only=True):
    """What a run says of its machine."""

    id: str
    hostname: str | None
    """None until it is up."""
    price: int
    """Micro-dollars an hour."""


class ListedRun(msgspec.Struct, kw_only=True):
    """One run in an answer. Times are RFC 3339 text."""

    id: str
    name: str
    host: str
    user: str
    mark: str | None
    submitted_at: str
    status: str
    reason: str | None = None
    message: str | None = None
    detail: str | None = None
    exit_status: int | None = None
    ended_at: str | None = None
    cost: float = 0
    """Dollars, waiting included and idling left out."""
    machine: RunMachine | None
    command: tuple[str, ...]
    folder: str
    max_duration: int | None
    grace: int | None
    ignored: tuple[str, ...]
    task: dict[str, Any]


class ListedMachine(msgspec.Struct, kw_only=True):
    """One machine in an answer."""

    id: str
    name: str
    host: str
    slot: str | None
    number: int
    hostname: str | None = None
    status: str
    reason: str | None = None
    message: str | None = None
    busy: bool = False
    """A run is on it."""
    lost: bool = False
    """Its process died without a word."""
    created: str
    ended_at: str | None = None
    price: int
    """Micro-dollars an hour."""
    gpu: str | None
    gpu_count: int
    gpu_memory_mib: int
    cpus: int
    memory_mib: int
    disk_mib: int


_run: Final = msgspec.json.Decoder(ListedRun)
_machine: Final = msgspec.json.Decoder(ListedMachine)


class LocalReading(Reading):
    """Reads the listings of this machine."""

    makes_all_vms = True

    def __init__(self, language: Reading) -> None:
        """`language` reads what a task asks of its machine."""
        self._language = language

    def scope(self, path: str, req: bytes) -> Scope | None:
        """As `Reading.scope`."""
        if path not in _LISTINGS:
            return None
        try:
            asked = msgspec.json.decode(req, type=Asked)
        except msgspec.MsgspecError:
            asked = Asked()
        return Scope(
            provider="local",
            source="local" if asked.host is None else f"local/{asked.host}",
            listing=_LISTINGS[path],
            endpoint=_LISTINGS[path],
            project=asked.host,
            watched=True,
            limit=asked.limit,
        )

    def shape(self, path: str, req: bytes) -> BodyShape | None:  # noqa: ARG002 - the path says it
        """As `Reading.shape`."""
        return _SHAPES.get(path)

    def runs(self, item: bytes) -> tuple[RunFacts, ...]:
        """As `Reading.runs`."""
        row = _decoded(_run, item)
        submitted_at, machine = parse_time(row.submitted_at), row.machine
        attempt = AttemptFacts(
            submitted_at=submitted_at,
            finished_at=None if row.ended_at is None else parse_time(row.ended_at),
            hostname=None if machine is None else machine.hostname,
            price=None if machine is None else machine.price,
        )
        facts = RunFacts(
            provider_id=row.id,
            name=row.name,
            project=row.host,
            user=row.user,
            mark=row.mark,
            submitted_at=submitted_at,
            jobs=(JobFacts(newest=attempt),),
            drift=_unknown(status=(row.status, STATES), reason=(row.reason, CAUSES)),
        )
        return (_worded(facts, row.status, row.reason, row.exit_status),)

    def costs(self, item: bytes) -> Mapping[str, int | None]:
        """As `Reading.costs`."""
        try:
            row = _run.decode(item)
        except msgspec.MsgspecError:
            return {}
        return {row.id: round(row.cost * _DOLLAR)}

    def quotes(self, item: bytes) -> Iterator[tuple[str, object]]:
        """As `Reading.quotes`."""
        row = _decoded(_run, item)
        for name in ("status", "reason", "exit_status", "message", "detail"):
            value = getattr(row, name)
            if value is not None or name == "exit_status":
                yield f".{name}", value

    def alternatives(self, facts: RunFacts) -> Iterable[tuple[str, RunFacts]]:
        """As `Reading.alternatives`."""
        newest = facts.jobs[0].newest
        if newest is None or (newest.exit_status is None and newest.hostname is None):
            return
        stopped = newest.reason in _STOPS
        before = " before the stop" if stopped else ""
        if newest.exit_status != 0:
            yield f"had the job exited 0{before}", _worded(facts, "ended", "exited", 0)
        if not newest.exit_status:
            yield f"had the job exited 1{before}", _worded(facts, "ended", "exited", 1)
        if newest.ended:
            yield "had the job still been running", _worded(facts, "running", None, None)
        if not stopped:
            yield "had the run been stopped before its end", _worded(facts, "ended", "stopped", None)

    def vm(self, item: bytes) -> VmFacts:
        """As `Reading.vm`."""
        row = _decoded(_machine, item)
        return VmFacts(
            provider_id=row.id,
            name=row.name,
            project=row.host,
            fleet=row.slot,
            instance_num=row.number,
            hostname=row.hostname,
            backend="local",
            region=row.host,
            status=row.status,
            reason=row.reason,
            message=row.message,
            state=VM_STATES.get(row.status),
            cause=VM_CAUSES.get(row.reason or "", VmReason.UNKNOWN_REASON),
            by_request=row.reason in (None, "stopped"),
            unreachable=row.lost,
            created=parse_time(row.created),
            finished_at=None if row.ended_at is None else parse_time(row.ended_at),
            price=row.price,
            spot=False,
            instance_type="process" if row.gpu is None else f"process-{row.gpu.lower()}x{row.gpu_count}",
            gpu=row.gpu,
            gpu_count=row.gpu_count,
            gpu_memory_mib=row.gpu_memory_mib if row.gpu is not None else None,
            cpus=row.cpus,
            memory_mib=row.memory_mib,
            disk_mib=row.disk_mib,
            total_blocks=1,
            busy_blocks=int(row.busy),
            drift=_unknown(status=(row.status, VM_STATES), reason=(row.reason, VM_CAUSES)),
        )

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        """As `Reading.terms`: a machine of this host takes every task, but for the GPU it is said to have."""
        return replace(self._language.terms(configuration, submitter, fallback), any_machine=True)


def _decoded(decoder: msgspec.json.Decoder[T], item: bytes) -> T:
    try:
        return decoder.decode(item)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an item of this machine's listings: {error}") from error


def _worded(facts: RunFacts, status: str, reason: str | None, exit_status: int | None) -> RunFacts:
    """The run, with these words for how it stands."""
    over = status == "ended"
    cause = CAUSES.get(reason or "")
    failure = Reason.EXIT_NONZERO if exit_status else None if reason in _STOPS else cause
    words: dict[str, Any] = {
        "status": status,
        "reason": reason,
        "state": STATES.get(status),
        "failed": over and failure is not None,
    }
    newest = facts.jobs[0].newest
    if newest is not None:
        newest = replace(
            newest,
            **words,
            over=over,
            cause=failure,
            cut_off=reason == "machine_lost",
            exit_status=exit_status,
        )
    ends = Reason.EXIT_ZERO if over and exit_status == 0 else failure or cause
    job = JobFacts(newest=newest, attempts=() if newest is None else (newest,))
    return replace(facts, **words, final=over, cause=ends, jobs=(job,), latest_exit_status=exit_status)


def _unknown(**words: tuple[str | None, Mapping[str, object]]) -> tuple[str, ...]:
    return tuple(
        f"{field}: unknown word {word!r}"
        for field, (word, known) in words.items()
        if word is not None and word not in known
    )
