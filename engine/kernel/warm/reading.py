"""What the listeners of the warm machines said, as facts. `KernelsProvider.poll` puts their answers together."""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from engine.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from engine.kernel.listener_run import KERNELS as NAME
from engine.providers.reading import Listing, Reading, Scope
from engine.requirements import Requirements
from engine.states import Reason, State, VmReason, VmState
from events.shape.shape import BodyShape

T = TypeVar("T")
TASKS: Final = "/kernels/tasks"
MACHINES: Final = "/kernels/machines"
_LISTINGS: Final = {TASKS: Listing.RUNS, MACHINES: Listing.VMS}
_SHAPES: Final = {
    TASKS: BodyShape(kind="run", items="[]"),
    MACHINES: BodyShape(kind="vm", items="[]"),
}
_STATES: Final = {"queued": State.QUEUED, "running": State.RUNNING}
_ENDS: Final = {"cancelled": Reason.STOPPED_BY_USER, "lost": Reason.UNREACHABLE, "timed_out": Reason.TIMED_OUT}
_VM_STATES: Final = {
    "starting": VmState.PROVISIONING,
    "idle": VmState.IDLE,
    "busy": VmState.BUSY,
    "gone": VmState.TERMINATED,
    "unknown": None,  # its listener has not answered this process yet
}


class _Asked(msgspec.Struct, kw_only=True):
    project: str


class WarmTask(msgspec.Struct, kw_only=True):
    """One kernel in an answer. Times are microseconds, UTC, by the machine's clock."""

    id: str
    run: str  # our run id
    name: str | None = None  # None: only its id is known
    project: str
    machine: str
    state: str  # as the listener says; `lost`: its machine ended first
    code: int | None = None
    submitted_at: int | None = None  # of the first kernel of a machine: when that machine was asked for
    started_at: int | None = None
    ended_at: int | None = None


class WarmMachine(msgspec.Struct, kw_only=True):
    id: str  # the run id of its listener
    name: str
    project: str
    gpu: str | None
    slot: str
    state: str
    created: int  # microseconds, UTC: when it was asked for
    silent: bool = False  # its listener does not answer
    failed: bool = False  # it is gone, and was not told to go
    forgotten: bool = False  # its listener ended it: nobody asked for it for too long
    message: str | None = None


class KernelTask(msgspec.Struct, kw_only=True):
    """The part of a request that says what machine it needs."""

    class Resources(msgspec.Struct):
        gpu: str | None = None

    resources: Resources = msgspec.field(default_factory=Resources)
    max_duration: int | None = None  # seconds


_task: Final = msgspec.json.Decoder(WarmTask)
_machine: Final = msgspec.json.Decoder(WarmMachine)
_asked: Final = msgspec.json.Decoder(_Asked)
_request: Final = msgspec.json.Decoder(KernelTask)


class KernelsReading(Reading):
    makes_all_vms = True

    def scope(self, path: str, req: bytes) -> Scope | None:
        if path not in _LISTINGS:
            return None
        try:
            project = _asked.decode(req).project
        except msgspec.MsgspecError:
            project = None
        return Scope(
            provider=NAME,
            source=NAME if project is None else f"{NAME}/{project}",
            listing=_LISTINGS[path],
            endpoint=_LISTINGS[path],
            project=project,
            watched=True,
            filtered=path == TASKS,  # a machine that does not answer leaves out its kernels
        )

    def shape(self, path: str, req: bytes) -> BodyShape | None:
        return _SHAPES.get(path)

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        row = _decoded(_task, item)
        over = row.state not in _STATES
        cause = _ENDS.get(row.state)
        if over and cause is None:
            cause = Reason.EXIT_ZERO if row.code == 0 else Reason.EXIT_NONZERO
        failed = over and cause not in (Reason.EXIT_ZERO, Reason.STOPPED_BY_USER)
        attempt = AttemptFacts(
            status=row.state,
            state=_STATES.get(row.state),
            over=over,
            failed=failed,
            cause=cause if failed else None,
            cut_off=row.state == "lost",
            exit_status=row.code,
            submitted_at=row.submitted_at,
            started_at=row.started_at,
            finished_at=row.ended_at,
            hostname=row.machine,
        )
        facts = RunFacts(
            provider_id=row.id,
            name=row.name,
            project=row.project,
            mark=row.run,
            status=row.state,
            state=attempt.state,
            final=over,
            failed=failed,
            cause=cause if over else None,
            submitted_at=row.submitted_at,
            jobs=(JobFacts(attempts=(attempt,)),),
            latest_exit_status=row.code,
            drift=() if row.state in {*_STATES, *_ENDS, "ended"} else (f"state: unknown word {row.state!r}",),
        )
        return (facts,)

    def quotes(self, item: bytes) -> Iterator[tuple[str, object]]:
        row = _decoded(_task, item)
        yield ".state", row.state
        yield ".code", row.code

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        row = _decoded(_machine, item)
        cause = VmReason.STOPPED_BY_POLICY if row.forgotten else VmReason.STOPPED_BY_USER
        return VmFacts(
            provider_id=row.id,
            name=row.name,
            project=row.project,
            fleet=row.slot,
            hostname=row.name,
            status=row.state,
            message=row.message,
            state=_VM_STATES.get(row.state),
            cause=VmReason.UNREACHABLE if row.failed else cause,
            by_request=not (row.failed or row.forgotten),
            unreachable=row.silent,
            created=row.created,
            gives_end=False,
            price=0,  # the task of its listener is billed
            instance_type="listener",
            gpu=row.gpu,
            gpu_count=0 if row.gpu is None else 1,
            drift=() if row.state in _VM_STATES else (f"state: unknown word {row.state!r}",),
        )

    def terms(self, configuration: bytes, submitter: str, fallback: tuple[str, ...] = ()) -> Requirements:
        try:
            asked = _request.decode(configuration)
        except msgspec.MsgspecError:
            return Requirements(submitter=submitter, creation="reuse")
        gpu = () if asked.resources.gpu is None else (asked.resources.gpu,)
        limit = None if asked.max_duration is None else asked.max_duration * 1_000_000
        return Requirements(submitter=submitter, gpu=gpu, creation="reuse", max_duration=limit)


def _decoded(decoder: msgspec.json.Decoder[T], item: bytes) -> T:
    try:
        return decoder.decode(item)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an item of the listeners' answers: {error}") from error
