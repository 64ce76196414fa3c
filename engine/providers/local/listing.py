"""The runs and machines of this host, as polls list them. What has ended is read once."""

import logging
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

import msgspec

from steno.engine.providers.local.placement import MachineSpec, gpu_memory_mib
from steno.engine.providers.local.reading import ListedMachine, ListedRun, ListQuestion
from steno.engine.providers.local.state import Ended, RunState, StateDamaged, close_lost, read_machine, read_state
from steno.engine.providers.local.store import RunFolders
from steno.engine.state.policy import HOUR
from steno.events.clock import Clock

SHORT: Final = 100  # ended things in a partial listing
WHOLE: Final = 1_000_000  # the `limit` that means: the whole history
_log = logging.getLogger(__name__)


class AnswerPage(msgspec.Struct, frozen=True, kw_only=True):
    req: bytes
    body: bytes
    complete: bool  # nothing was left out


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    run_id: str | None  # the run itself, or the only one the machine was for
    at: int  # when it came to be; newest first
    until: int | None  # its end; a first contact from a later `since` skips it; None: not over
    item: bytes


class _Rows:
    """Rows that exist, rows that have ended, and which of these were listed: all at first contact, later the newest."""

    def __init__(self) -> None:
        self.past: dict[str, _Row] = {}
        self._there: list[_Row] = []
        self._damaged = False
        self._listed: set[str] = set()
        self._begun = False

    def read(self, ids: Iterable[str], look: Callable[[str], _Row | None]) -> None:
        """Look at everything that is not over."""
        self._there, self._damaged = [], False
        for folder_name in ids:
            if folder_name not in self.past:
                try:
                    self.add(look(folder_name))
                except StateDamaged as error:
                    self._damaged = True  # one bad file must not hide the others
                    _log.warning("%s", error)

    def add(self, row: _Row | None) -> None:
        if row is not None and row.until is None:
            self._there.append(row)
        elif row is not None:
            self.past[row.id] = row

    def page(self, host: str, follow: Collection[str], since: int | None, *, whole: bool = False) -> AnswerPage:
        """The answer: what exists, and the part of the past to be shown; `whole`: all of it again."""
        newest = sorted(self.past.values(), key=lambda row: (row.at, row.id), reverse=True)
        short, self._begun = self._begun and not whole, True
        listed = [
            row
            for rank, row in enumerate(newest)
            if row.run_id in follow
            or (rank < SHORT or row.id not in self._listed if short else since is None or (row.until or 0) >= since)
        ]
        self._listed.update(self.past)
        left_out = len(listed) < len(newest)
        items = sorted(((row.at, row.item) for row in (*self._there, *listed)), reverse=True)
        return AnswerPage(
            req=question(host, SHORT if short and left_out else WHOLE),
            body=b"[" + b",".join([item for _, item in items]) + b"]",
            complete=not left_out and not self._damaged,
        )


def question(host: str, limit: int = WHOLE) -> bytes:
    return msgspec.json.encode(ListQuestion(host=host, limit=limit))


class Lister:
    """Reads the folders of the runs, then of the machines; ends what lost its process. OSError: unreadable state."""

    def __init__(self, store: RunFolders, host: str, clock: Clock) -> None:
        self._store = store
        self._host = host
        self._clock = clock
        self._runs = _Rows()
        self._machines = _Rows()
        self._active: dict[str, RunState] = {}  # at the last reading
        self._ended: list[RunState] = []  # found ended since machines were last read

    def runs(self, follow: Collection[str], since: int | None) -> AnswerPage:
        """Every active and followed run, and the newest of those that ended; all if a followed run is unknown."""
        self._active = {}
        self._runs.read(self._store.run_ids(), self._run)
        unknown = any(run_id not in self._active and run_id not in self._runs.past for run_id in follow)
        return self._runs.page(self._host, follow, since, whole=unknown)

    def machines(self, follow: Collection[str], since: int | None) -> AnswerPage:
        """Every machine that exists, those of followed runs, and the newest that are gone."""
        busy = {run.accepted.machine.id for run in self._active.values() if run.accepted.machine is not None}
        self._machines.read(self._store.machine_ids(), lambda machine_id: self._kept(machine_id, busy))
        for run in (*self._ended, *self._active.values()):
            self._machines.add(self._supervisor(run))
        self._ended.clear()
        return self._machines.page(self._host, follow, since)

    def _run(self, run_id: str) -> _Row | None:
        folder = self._store.folder(run_id)
        state = read_state(folder)
        if state is None or not state.known:
            return None
        state = close_lost(folder, state, self._clock.now())
        if state.ended is None:
            self._active[run_id] = state
        else:
            self._ended.append(state)
        at = state.accepted.at
        return _Row(id=run_id, run_id=run_id, at=at, until=at if state.ended else None, item=self._run_item(state))

    def _kept(self, machine_id: str, busy: set[str]) -> _Row | None:
        folder = self._store.machine_folder(machine_id)
        state = read_machine(folder)
        if state is None or not state.known:
            return None
        if machine_id not in busy:  # a lost one with a run is about to be ended by the run's supervisor
            state = close_lost(folder, state, self._clock.now())
        stopping, taken = state.stopping is not None, machine_id in busy
        return self._machine(
            state.spec,
            "stopping" if stopping else "provisioning" if not state.up else "busy" if taken else "idle",
            state.ended,
            up=state.up,
            reason="stopped" if stopping else None,
            runs=int(taken),
            lost=state.lost,
        )

    def _supervisor(self, run: RunState) -> _Row | None:
        spec, ended = run.accepted.machine, run.ended
        if spec is None or spec.kept:
            return None
        if ended is not None:
            lost = ended.reason == "supervisor_lost"
            reason, message = ("unreachable", ended.message) if lost else ("idle_timeout", "idle for 0s")
            ended = Ended(reason=reason, message=message, at=ended.at)
        status = "busy" if run.running else "provisioning"
        return self._machine(spec, status, ended, up=run.running, run_id=run.accepted.run_id, runs=1)

    def _run_item(self, state: RunState) -> bytes:
        accepted, ended, spec = state.accepted, state.ended, state.accepted.machine
        end = self._clock.now() if ended is None else ended.at
        row = msgspec.structs.asdict(accepted) | {
            "id": accepted.run_id,
            "host": self._host,
            "submitted_at": accepted.at,
            "started_at": state.began,
            "status": state.status,
            "reason": state.reason,
            "cost": 0 if spec is None else spec.price * (end - accepted.at) // HOUR,
            "command": accepted.argv,
            "task": accepted.configuration,
        }
        if spec is not None:
            row["machine"] = msgspec.structs.asdict(spec) | {"hostname": spec.hostname if state.running else None}
        if ended is not None:
            row |= {"message": ended.message, "detail": ended.detail, "exit_status": ended.exit_status}
            row["ended_at"] = ended.at
        return msgspec.json.encode(msgspec.convert(row, ListedRun))

    def _machine(
        self, spec: MachineSpec, status: str, ended: Ended | None, *, up: bool, run_id: str | None = None, **words: Any
    ) -> _Row:
        if ended is not None:
            status = "gone"
            words = {"reason": ended.reason, "message": ended.message, "ended_at": ended.at}
        row = msgspec.structs.asdict(spec) | {
            "host": self._host,
            "number": spec.num,
            "hostname": spec.hostname if up else None,
            "status": status,
            "instance_type": "process" if spec.gpu is None else f"process-{spec.gpu.lower()}x{spec.gpu_count}",
            "gpu_memory_mib": None if spec.gpu is None else gpu_memory_mib(spec.gpu),
        }
        item = msgspec.json.encode(msgspec.convert(row | words, ListedMachine))
        until = None if ended is None else ended.at
        return _Row(id=spec.id, run_id=run_id, at=spec.created, until=until, item=item)
