"""Runs and machines of this host as facts. Another reading reads older records (other paths)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec
from msgspec.structs import replace

from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.engine.state.reading import Listing, Reading, Scope
from steno.engine.state.run import Requirements
from steno.engine.state.states import Reason, State, VmReason, VmState
from steno.events.shape.shape import BodyShape

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

STATES: Final = {  # a run's `status` → its state before its end
    "queued": State.QUEUED,
    "provisioning": State.PROVISIONING,
    "running": State.RUNNING,
    "stopping": State.FINISHING,
    "ended": None,
}
CAUSES: Final = {  # a run's `reason` → ours; after `exited` the exit status says it
    "exited": None,
    "stopped": Reason.STOPPED_BY_USER,
    "killed": Reason.ABORTED_BY_USER,
    "timed_out": Reason.TIMED_OUT,
    "not_started": Reason.PROVIDER_ERROR,
    "supervisor_lost": Reason.NODE_FAILED,
    "machine_lost": Reason.UNREACHABLE,
    "no_capacity": Reason.NO_CAPACITY,
}
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


_KEYS: Final = {  # facts of a machine with another name in an answer
    "provider_id": "id",
    "project": "host",
    "fleet": "slot",
    "instance_num": "number",
    "unreachable": "lost",
    "busy_blocks": "runs",
    "finished_at": "ended_at",
}


class ListQuestion(msgspec.Struct, kw_only=True):
    host: str | None = None
    limit: int = 1 << 62


class RunMachine(msgspec.Struct, kw_only=True):
    id: str
    hostname: str | None  # None until it is up
    price: int  # micro-dollars an hour


class ListedRun(msgspec.Struct, kw_only=True):
    """A run in an answer. Times are microseconds, UTC."""

    id: str
    name: str
    host: str
    user: str
    mark: str | None
    submitted_at: int
    started_at: int | None = None  # of its command; None: it has not started, or an older version listed it
    status: str
    reason: str | None = None
    message: str | None = None
    detail: str | None = None
    exit_status: int | None = None
    ended_at: int | None = None
    cost: int | None = 0  # micro-dollars, waiting included and idling left out; None: a fold of a record omits it
    machine: RunMachine | None
    command: tuple[str, ...]
    folder: str
    max_duration: int | None
    grace: int | None
    ignored: tuple[str, ...]
    task: dict[str, Any]


class ListedMachine(msgspec.Struct, kw_only=True, rename=_KEYS.get):
    """A machine in an answer, fields named as in `VmFacts`; units as in `ListedRun`."""

    provider_id: str
    name: str
    project: str
    fleet: str | None
    instance_num: int
    hostname: str | None = None
    status: str
    reason: str | None = None
    message: str | None = None
    unreachable: bool = False  # its process died without an end
    busy_blocks: int = 0  # runs on it
    created: int
    finished_at: int | None = None
    price: int  # micro-dollars an hour
    instance_type: str
    gpu: str | None
    gpu_count: int
    gpu_memory_mib: int | None
    cpus: int
    memory_mib: int
    disk_mib: int


_run: Final = msgspec.json.Decoder(ListedRun)
_machine: Final = msgspec.json.Decoder(ListedMachine)

_PRIVATE: Final = {
    **dict.fromkeys(("host", "hostname"), "hosts"),
    **dict.fromkeys(("command", "commands", "entrypoint", "folder", "image", "working_dir", "files"), "commands"),
    "user": "names",
}


class LocalReading(Reading):
    makes_all_vms = True
    private = _PRIVATE

    def __init__(self, language: Reading) -> None:
        """`language` reads what a task asks of its machine."""
        self._language = language

    def scope(self, path: str, req: bytes) -> Scope | None:
        if path not in _LISTINGS:
            return None
        try:
            request = msgspec.json.decode(req, type=ListQuestion)
        except msgspec.MsgspecError:
            request = ListQuestion()
        return Scope(
            provider="local",
            source="local" if request.host is None else f"local/{request.host}",
            listing=_LISTINGS[path],
            endpoint=_LISTINGS[path],
            project=request.host,
            watched=True,
            limit=request.limit,
        )

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        return _SHAPES.get(path)

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        row = _decoded(_run, item)
        attempt = AttemptFacts(submitted_at=row.submitted_at, started_at=row.started_at, finished_at=row.ended_at)
        if row.machine is not None:
            attempt = replace(attempt, hostname=row.machine.hostname, price=row.machine.price)
        facts = RunFacts(
            provider_id=row.id,
            name=row.name,
            project=row.host,
            user=row.user,
            mark=row.mark,
            submitted_at=row.submitted_at,
            jobs=(JobFacts(attempts=(attempt,)),),
            drift=_unknown(status=(row.status, STATES), reason=(row.reason, CAUSES)),
        )
        return (_worded(facts, row.status, row.reason, row.exit_status),)

    def costs(self, item: bytes) -> Mapping[str, int | None]:
        try:
            row = _run.decode(item)
        except msgspec.MsgspecError:
            return {}
        return {row.id: row.cost}

    def configurations(self, item: bytes) -> Mapping[str, bytes]:
        row = _decoded(_run, item)
        return {row.id: msgspec.json.encode(row.task)}

    def quotes(self, item: bytes) -> Iterator[tuple[str, object]]:
        row = _decoded(_run, item)
        for name in ("status", "reason", "exit_status", "message", "detail"):
            value = getattr(row, name)
            if value is not None or name == "exit_status":
                yield f".{name}", value

    def alternatives(self, facts: RunFacts) -> Iterable[tuple[str, RunFacts]]:
        (newest,) = facts.jobs[0].attempts
        if newest.exit_status is None and newest.hostname is None:
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

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        row = _decoded(_machine, item)
        return VmFacts(
            **msgspec.structs.asdict(row),
            backend="local",
            region=row.project,
            state=VM_STATES.get(row.status),
            cause=VM_CAUSES.get(row.reason or "", VmReason.UNKNOWN_REASON),
            by_request=row.reason in (None, "stopped"),
            spot=False,
            total_blocks=1,
            drift=_unknown(status=(row.status, VM_STATES), reason=(row.reason, VM_CAUSES)),
        )

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        # a machine of this host takes every task, except for its GPU label
        return replace(self._language.terms(configuration, submitter, fallback), any_machine=True, crons=())


def _decoded(decoder: msgspec.json.Decoder[T], item: bytes) -> T:
    try:
        return decoder.decode(item)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an item of this machine's listings: {error}") from error


def _worded(facts: RunFacts, status: str, reason: str | None, exit_status: int | None) -> RunFacts:
    over = status == "ended"
    cause = CAUSES.get(reason or "")
    failure = Reason.EXIT_NONZERO if exit_status else None if reason in _STOPS else cause
    words: dict[str, Any] = {
        "status": status,
        "reason": reason,
        "state": STATES.get(status),
        "failed": over and failure is not None,
    }
    (attempt,) = facts.jobs[0].attempts
    lost = reason == "machine_lost"
    attempt = replace(attempt, **words, over=over, cause=failure, cut_off=lost, exit_status=exit_status)
    ends = Reason.EXIT_ZERO if over and exit_status == 0 else failure or cause
    jobs = (JobFacts(attempts=(attempt,)),)
    return replace(facts, **words, final=over, cause=ends, jobs=jobs, latest_exit_status=exit_status)


def _unknown(**words: tuple[str | None, Mapping[str, object]]) -> tuple[str, ...]:
    return tuple(
        f"{field}: unknown word {word!r}"
        for field, (word, known) in words.items()
        if word is not None and word not in known
    )
