"""Facts from the answers of the warm machines' listeners, which `KernelsProvider.poll` puts together."""

from collections.abc import Iterator
from typing import Final, TypeVar

import msgspec

from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.engine.state.kernel_mark import KERNELS as NAME
from steno.engine.state.reading import Listing, Reading, Scope
from steno.engine.state.run import Requirements
from steno.engine.state.states import Reason, State, VmReason, VmState
from steno.events.shape.shape import BodyShape

T = TypeVar("T")
TASKS: Final = "/kernels/tasks"
MACHINES: Final = "/kernels/machines"
_LISTINGS: Final = {TASKS: Listing.RUNS, MACHINES: Listing.VMS}
_SHAPES: Final = {TASKS: BodyShape(kind="run", items="[]"), MACHINES: BodyShape(kind="vm", items="[]")}
_STATES: Final = {"queued": State.QUEUED, "running": State.RUNNING}
_ENDS: Final = {"cancelled": Reason.STOPPED_BY_USER, "lost": Reason.UNREACHABLE, "timed_out": Reason.TIMED_OUT}
_VM_STATES: Final = {
    "starting": VmState.PROVISIONING,
    "idle": VmState.IDLE,
    "busy": VmState.BUSY,
    "gone": VmState.TERMINATED,
    "unknown": None,  # its listener has not answered this process yet
}


class WarmTask(msgspec.Struct, kw_only=True):
    """A kernel in an answer. Times are microseconds, UTC, by the machine's clock."""

    id: str
    run: str  # our run id
    name: str | None = None  # None: only its id is known
    project: str
    machine: str
    state: str  # the listener's word; `lost`: its machine ended first
    code: int | None = None
    submitted_at: int | None = None  # of the first kernel of a machine: when that machine was requested
    started_at: int | None = None
    ended_at: int | None = None


class WarmMachine(msgspec.Struct, kw_only=True):
    id: str  # the run id of its listener
    name: str
    project: str
    gpu: str | None
    slot: str
    state: str
    created: int  # microseconds, UTC: when it was requested
    silent: bool = False  # its listener does not answer
    failed: bool = False  # it ended without a request to stop
    forgotten: bool = False  # its listener ended it: it had no requests for too long
    message: str | None = None


class _Resources(msgspec.Struct):
    gpu: str | None = None


class KernelTask(msgspec.Struct, kw_only=True):
    """The part of a request that names the machine it needs."""

    resources: _Resources = msgspec.field(default_factory=_Resources)
    max_duration: int | None = None  # seconds


class KernelsReading(Reading):
    makes_all_vms = True

    def scope(self, path: str, req: bytes) -> Scope | None:
        if path not in _LISTINGS:
            return None
        try:
            project = msgspec.json.decode(req, type=dict[str, str])["project"]
        except (msgspec.MsgspecError, KeyError):
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
        row = _decoded(WarmTask, item)
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
        row = _decoded(WarmTask, item)
        yield ".state", row.state
        yield ".code", row.code

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        row = _decoded(WarmMachine, item)
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
            task = msgspec.json.decode(configuration, type=KernelTask)
        except msgspec.MsgspecError:
            return Requirements(submitter=submitter, creation="reuse")
        gpu = () if task.resources.gpu is None else (task.resources.gpu,)
        limit = None if task.max_duration is None else task.max_duration * 1_000_000
        return Requirements(submitter=submitter, gpu=gpu, creation="reuse", max_duration=limit)


def _decoded(kind: type[T], item: bytes) -> T:
    try:
        return msgspec.json.decode(item, type=kind)
    except msgspec.MsgspecError as error:
        raise ValueError(f"not an item of the listeners' answers: {error}") from error
