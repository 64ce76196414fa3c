"""The machines of this host in dstack's words, so that one reading serves both providers (fields of 0.22.5)."""

import logging
import platform
from collections.abc import Collection, Iterable, Mapping

import msgspec

from engine.providers.local.machines import close_lost_machine, machine_ids, read_machine
from engine.providers.local.placement import MachineSpec, gpu_memory_mib
from engine.providers.local.state import RunState, StateDamaged
from engine.providers.local.store import RunFolders
from events.clock import Clock, foreign_run_id, format_time

SHORT = 100
"""Ended things in a listing that is not the whole history: as many as a page of dstack's has at most."""
WHOLE = 1_000_000
"""The `limit` that says: all of them."""


class AnswerPage(msgspec.Struct, frozen=True, kw_only=True):
    """One answer."""

    req: bytes
    body: bytes
    complete: bool
    """Nothing was left out."""


def page(host: str, items: list[bytes], *, limit: int, complete: bool) -> AnswerPage:
    """The answer made of these items, each JSON text."""
    return AnswerPage(req=question(host, limit), body=b"[" + b",".join(items) + b"]", complete=complete)


def question(host: str, limit: int) -> bytes:
    """What is asked, as JSON text."""
    return msgspec.json.encode({"project_name": host, "limit": limit})


_log = logging.getLogger(__name__)
_DOLLAR = 1_000_000


class Past(msgspec.Struct, frozen=True):
    """A machine that is gone."""

    run_id: str | None
    """The run it was there for, where it was there for one only."""
    created: int
    ended: int
    item: bytes


class MachineLister:
    """Reads the machines, those that are gone only once."""

    def __init__(self, store: RunFolders, host: str, clock: Clock) -> None:
        self._store = store
        self._host = host
        self._clock = clock
        self._past: dict[str, Past] = {}
        self._told: set[str] = set()
        self._history_told = False

    def read(
        self, active: Mapping[str, RunState], ended: Iterable[RunState], follow: Collection[str], since: int | None
    ) -> AnswerPage:
        """The machines, newest first, as they stand with these runs.

        The first answer has every machine that is there and those gone since `since`; the others leave out machines
        that were told as gone before and are beyond the newest hundred. One whose process was lost is brought to its
        end here.

        Args:
            active: the runs that go on, by id.
            ended: runs that were found ended since the last call.
            follow: runs whose machines are told in any case.

        Raises:
            OSError: the state cannot be read.
        """
        there: dict[str, tuple[int, bytes]] = {}
        for run in ended:
            self._look_at_run(run, there)
        for run in active.values():
            self._look_at_run(run, there)
        busy = {run.accepted.machine.id for run in active.values() if run.accepted.machine is not None}
        damaged = False
        for machine_id in machine_ids(self._store.root):
            if machine_id not in self._past:
                try:
                    self._look_at(machine_id, there, busy=machine_id in busy)
                except StateDamaged as error:
                    damaged = True
                    _log.warning("%s", error)
        past = sorted(self._past, key=lambda machine_id: (self._past[machine_id].created, machine_id), reverse=True)
        short, self._history_told = self._history_told, True
        shown = [
            machine_id
            for rank, machine_id in enumerate(past)
            if (one := self._past[machine_id]).run_id in follow
            or (rank < SHORT or machine_id not in self._told if short else since is None or one.ended >= since)
        ]
        self._told.update(past)
        left_out = len(shown) < len(past)
        items = sorted((*there.values(), *((one.created, one.item) for one in map(self._past.get, shown) if one)))
        return page(
            self._host,
            [item for _, item in reversed(items)],
            limit=SHORT if short and left_out else WHOLE,
            complete=not left_out and not damaged,
        )

    def question(self) -> bytes:
        """What is asked, as JSON text."""
        return question(self._host, WHOLE)

    def _look_at_run(self, run: RunState, there: dict[str, tuple[int, bytes]]) -> None:
        """The machine that is the run's own supervisor."""
        spec, ended = run.accepted.machine, run.ended
        if spec is None or spec.kept:
            return
        if ended is None:
            item = self._item(spec, "busy" if run.running else "provisioning", busy=True)
            there[spec.id] = (spec.created, item)
            return
        lost = ended.reason == "supervisor_lost"
        item = self._item(
            spec,
            "terminated",
            reason="unreachable" if lost else "idle_timeout",
            message=ended.message if lost else "Instance idle for 0s",
            finished_at=ended.at,
            up=run.running,
        )
        self._past[spec.id] = Past(run.accepted.run_id, spec.created, ended.at, item)

    def _look_at(self, machine_id: str, there: dict[str, tuple[int, bytes]], *, busy: bool) -> None:
        """One that is kept warm."""
        folder = self._store.machine_folder(machine_id)
        state = read_machine(folder)
        if state is None or not state.known:
            return
        spec = state.spec
        if not busy:  # while a run is on a lost one, its supervisor is about to end that
            state = close_lost_machine(folder, state, self._clock.now())
        if (gone := state.gone) is not None:
            item = self._item(
                spec, "terminated", reason=gone.reason, message=gone.message, finished_at=gone.at, up=state.up
            )
            self._past[machine_id] = Past(None, spec.created, gone.at, item)
            return
        status = "terminating" if state.told else "provisioning" if not state.up else "busy" if busy else "idle"
        item = self._item(
            spec,
            status,
            busy=busy,
            up=state.up,
            lost=state.lost,
            reason="terminated_by_user" if state.told else None,
        )
        there[machine_id] = (spec.created, item)

    def _item(
        self,
        spec: MachineSpec,
        status: str,
        *,
        busy: bool = False,
        up: bool = True,
        lost: bool = False,
        reason: str | None = None,
        message: str | None = None,
        finished_at: int | None = None,
    ) -> bytes:
        return msgspec.json.encode(
            {
                "id": spec.id,
                "project_name": self._host,
                "backend": "local",
                "instance_type": instance_type(spec),
                "name": spec.name,
                "fleet_id": None if spec.slot is None else foreign_run_id("local-fleet", f"{self._host}/{spec.slot}"),
                "fleet_name": spec.slot,
                "instance_num": spec.num,
                "job_name": None,
                "hostname": spec.hostname if up and status != "provisioning" else None,
                "status": status,
                "unreachable": lost,
                "health_status": "healthy",
                "termination_reason": reason,
                "termination_reason_message": message,
                "created": format_time(spec.created),
                "finished_at": None if finished_at is None else format_time(finished_at),
                "region": self._host,
                "availability_zone": None,
                "price": spec.price / _DOLLAR,
                "total_blocks": 1,
                "busy_blocks": int(busy),
                "gpu_driver": None,
            }
        )


def instance_type(spec: MachineSpec) -> dict[str, object]:
    """What the machine is like."""
    vendor = "amd" if (spec.gpu or "").upper().startswith("MI") else "nvidia"
    gpu = {"name": spec.gpu, "memory_mib": gpu_memory_mib(spec.gpu or ""), "vendor": vendor}
    return {
        "name": "process" if spec.gpu is None else f"process-{spec.gpu.lower()}x{spec.gpu_count}",
        "resources": {
            "cpus": spec.cpus,
            "memory_mib": spec.memory_mib,
            "gpus": [] if spec.gpu is None else [gpu] * spec.gpu_count,
            "spot": False,
            "disk": {"size_mib": spec.disk_mib},
            "cpu_arch": _ARCHITECTURES.get(platform.machine()),
            "description": "a process of this host",
        },
    }


_ARCHITECTURES = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm", "arm64": "arm"}


def provisioning_data(spec: MachineSpec, host: str, *, up: bool) -> dict[str, object]:
    """What a run's submission says of its machine."""
    return {
        "backend": "local",
        "instance_type": instance_type(spec),
        "instance_id": spec.id,
        "hostname": spec.hostname if up else "",
        "region": host,
        "price": spec.price / _DOLLAR,
    }
