"""The runs and machines of this host, as polls list them. What is over is read once."""

import logging
from collections.abc import Collection
from typing import Any, Final

import msgspec

from engine.providers.local.placement import MachineSpec, gpu_memory_mib
from engine.providers.local.reading import Asked, ListedMachine, ListedRun, RunMachine
from engine.providers.local.state import (
    RunState,
    StateDamaged,
    close_lost,
    close_lost_machine,
    machine_ids,
    read_machine,
    read_state,
)
from engine.providers.local.store import RunFolders
from events.clock import SECOND, Clock

SHORT: Final = 100
"""Ended things in a listing that is not the whole history."""
WHOLE: Final = 1_000_000
"""The `limit` that says: all of them."""
_HOUR: Final = 3600 * SECOND
_log = logging.getLogger(__name__)


class AnswerPage(msgspec.Struct, frozen=True, kw_only=True):
    req: bytes
    body: bytes
    complete: bool
    """Nothing was left out."""


class _Past(msgspec.Struct, frozen=True, kw_only=True):
    """A run that has ended, or a machine that is gone."""

    id: str
    run_id: str | None
    """The run itself, or the one that the machine was there for alone."""
    at: int
    """When it came to be; the newest is listed first."""
    until: int
    """A first contact that reads history back to a later time leaves it out."""
    item: bytes


class _History:
    """What is over, and how much of it was listed: all of it at first contact, later the newest and what is new."""

    def __init__(self) -> None:
        self.past: dict[str, _Past] = {}
        self._listed: set[str] = set()
        self._begun = False

    def add(self, one: _Past) -> None:
        self.past[one.id] = one

    def page(
        self,
        host: str,
        there: list[tuple[int, bytes]],
        follow: Collection[str],
        since: int | None,
        *,
        whole: bool,
        damaged: bool,
    ) -> AnswerPage:
        """The answer: what is there, and what is to be shown of the past. `whole`: show the history once more."""
        newest = sorted(self.past.values(), key=lambda one: (one.at, one.id), reverse=True)
        short, self._begun = self._begun and not whole, True
        shown = [
            one
            for rank, one in enumerate(newest)
            if one.run_id in follow
            or (rank < SHORT or one.id not in self._listed if short else since is None or one.until >= since)
        ]
        self._listed.update(self.past)
        left_out = len(shown) < len(newest)
        items = sorted((*there, *((one.at, one.item) for one in shown)), reverse=True)
        return AnswerPage(
            req=question(host, SHORT if short and left_out else WHOLE),
            body=b"[" + b",".join([item for _, item in items]) + b"]",
            complete=not left_out and not damaged,
        )


def question(host: str, limit: int = WHOLE) -> bytes:
    return msgspec.json.encode(Asked(host=host, limit=limit))


class Lister:
    """Reads the folders of the runs, then those of the machines as they stand with these runs."""

    def __init__(self, store: RunFolders, host: str, clock: Clock) -> None:
        self._store = store
        self._host = host
        self._clock = clock
        self._runs = _History()
        self._machines = _History()
        self._active: dict[str, RunState] = {}
        """The runs that went on at the last reading."""
        self._ended: list[RunState] = []
        """Those found ended since machines were last read."""

    def runs(self, follow: Collection[str], since: int | None) -> AnswerPage:
        """Every active and followed run, and the newest ended ones; all of them where a followed one is not known.

        A run whose supervisor was lost is brought to its end here.

        Raises:
            OSError: the state cannot be read.
        """
        self._active = {}
        damaged = False
        for run_id in self._store.run_ids():
            if run_id not in self._runs.past:
                try:
                    self._look_at(run_id)
                except StateDamaged as error:
                    damaged = True  # one bad file must not hide the other runs
                    _log.warning("%s", error)
        there = [(state.accepted.at, self._run(state)) for state in self._active.values()]
        unknown = any(run_id not in self._active and run_id not in self._runs.past for run_id in follow)
        return self._runs.page(self._host, there, follow, since, whole=unknown, damaged=damaged)

    def machines(self, follow: Collection[str], since: int | None) -> AnswerPage:
        """Every machine that is there, those of followed runs, and the newest that are gone.

        A machine whose process was lost is brought to its end here.

        Raises:
            OSError: the state cannot be read.
        """
        there: list[tuple[int, bytes]] = []
        for run in (*self._ended, *self._active.values()):
            self._look_at_supervisor(run, there)
        busy = {run.accepted.machine.id for run in self._active.values() if run.accepted.machine is not None}
        damaged = False
        for machine_id in machine_ids(self._store.root):
            if machine_id not in self._machines.past:
                try:
                    self._look_at_kept(machine_id, there, busy=machine_id in busy)
                except StateDamaged as error:
                    damaged = True
                    _log.warning("%s", error)
        self._ended.clear()
        return self._machines.page(self._host, there, follow, since, whole=False, damaged=damaged)

    def _look_at(self, run_id: str) -> None:
        folder = self._store.folder(run_id)
        state = read_state(folder)
        if state is None or not state.known:
            return
        state = close_lost(folder, state, self._clock.now())
        if state.ended is None:
            self._active[run_id] = state
            return
        self._ended.append(state)
        at = state.accepted.at
        self._runs.add(_Past(id=run_id, run_id=run_id, at=at, until=at, item=self._run(state)))

    def _look_at_supervisor(self, run: RunState, there: list[tuple[int, bytes]]) -> None:
        """The machine that is the run's own supervisor."""
        spec, ended = run.accepted.machine, run.ended
        if spec is None or spec.kept:
            return
        if ended is None:
            there.append((spec.created, self._machine(spec, "busy" if run.running else "provisioning", busy_blocks=1)))
            return
        lost = ended.reason == "supervisor_lost"
        item = self._machine(
            spec,
            "gone",
            up=run.running,
            reason="unreachable" if lost else "idle_timeout",
            message=ended.message if lost else "idle for 0s",
            finished_at=ended.at,
        )
        one = _Past(id=spec.id, run_id=run.accepted.run_id, at=spec.created, until=ended.at, item=item)
        self._machines.add(one)

    def _look_at_kept(self, machine_id: str, there: list[tuple[int, bytes]], *, busy: bool) -> None:
        folder = self._store.machine_folder(machine_id)
        state = read_machine(folder)
        if state is None or not state.known:
            return
        spec = state.spec
        if not busy:  # while a run is on a lost one, its supervisor is about to end that
            state = close_lost_machine(folder, state, self._clock.now())
        if (gone := state.gone) is not None:
            why, message = gone.reason, gone.message
            item = self._machine(spec, "gone", up=state.up, reason=why, message=message, finished_at=gone.at)
            self._machines.add(_Past(id=machine_id, run_id=None, at=spec.created, until=gone.at, item=item))
            return
        status = "stopping" if state.told else "provisioning" if not state.up else "busy" if busy else "idle"
        reason = "stopped" if state.told else None
        item = self._machine(spec, status, up=state.up, reason=reason, busy_blocks=int(busy), unreachable=state.lost)
        there.append((spec.created, item))

    def _run(self, state: RunState) -> bytes:
        accepted, ended, spec = state.accepted, state.ended, state.accepted.machine
        end = self._clock.now() if ended is None else ended.at
        machine = None
        if spec is not None:
            machine = RunMachine(id=spec.id, hostname=spec.hostname if state.running else None, price=spec.price)
        row = ListedRun(
            id=accepted.run_id,
            name=accepted.name,
            host=self._host,
            user=accepted.user,
            mark=accepted.mark,
            submitted_at=accepted.at,
            status=state.status,
            reason=state.reason,
            cost=0 if spec is None else spec.price * (end - accepted.at) // _HOUR,
            machine=machine,
            command=accepted.argv,
            folder=accepted.folder,
            max_duration=accepted.max_duration,
            grace=accepted.grace,
            ignored=accepted.ignored,
            task=accepted.configuration,
        )
        if ended is not None:
            row.message, row.detail, row.exit_status = ended.message, ended.detail, ended.exit_status
            row.ended_at = ended.at
        return msgspec.json.encode(row)

    def _machine(self, spec: MachineSpec, status: str, *, up: bool = True, **words: Any) -> bytes:
        row = ListedMachine(
            provider_id=spec.id,
            name=spec.name,
            project=self._host,
            fleet=spec.slot,
            instance_num=spec.num,
            hostname=spec.hostname if up and status != "provisioning" else None,
            status=status,
            created=spec.created,
            price=spec.price,
            instance_type="process" if spec.gpu is None else f"process-{spec.gpu.lower()}x{spec.gpu_count}",
            gpu=spec.gpu,
            gpu_count=spec.gpu_count,
            gpu_memory_mib=None if spec.gpu is None else gpu_memory_mib(spec.gpu),
            cpus=spec.cpus,
            memory_mib=spec.memory_mib,
            disk_mib=spec.disk_mib,
            **words,
        )
        return msgspec.json.encode(row)
