"""All runs of this machine: one folder each, shared by any number of processes."""

import getpass
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import msgspec

from steno.engine.errors import NameInUse, ProviderError, RunNotFound, VmInUse, VmNotFound
from steno.engine.providers.local.durable import BUSY, LIFE, MACHINES, lock, sync_folder, write_json
from steno.engine.providers.local.placement import LocalOffer, MachineSpec, NoCapacity, Standing, Wanted, place
from steno.engine.providers.local.state import (
    NO_CAPACITY,
    Accepted,
    Command,
    Ended,
    RunState,
    read_machine,
    read_state,
)
from steno.engine.providers.local.task import LocalTask
from steno.events.clock import SECOND, Clock, foreign_run_id

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")  # a run's id and folder name

_TIMEOUT = 60 * SECOND  # longer than the one slow step, a start in `launch`
_PAUSE = 5_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedRun:
    accepted: Accepted
    machine: Path | None  # the folder of its warm machine; None: the run's supervisor is the machine
    locks: dict[str, int]  # descriptors: `run`; of a machine `busy`, and `life` until its process starts
    held: ExitStack  # closes our copies of the locks: started processes have their own


class RunFolders:
    """The folder of run folders, made at the first submission, private to its owner."""

    def __init__(self, root: Path, clock: Clock) -> None:
        # absolute: the supervisor works in another folder
        self.root = root.absolute()
        self.gate = self.root / ".gate"  # its lock: to take a name, place a run, or end a machine
        self._clock = clock

    def folder(self, run_id: str) -> Path:
        return self.root / run_id

    def machine_folder(self, machine_id: str) -> Path:
        return self.root / MACHINES / machine_id

    def run_ids(self) -> list[str]:
        return _names(self.root)

    def machine_ids(self) -> list[str]:
        return _names(self.root / MACHINES)

    def take(self, run_id: str, name: str, task: LocalTask, wanted: Wanted, offer: LocalOffer) -> ClaimedRun | RunState:
        """Place the run, write what is asked and hold its locks; or return a run that was started before.

        Without a place the run has ended with that reason; the same id asked again is a new attempt. Raises NameInUse
        if an active run has the name, ProviderError if another process holds the folder.
        """
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._alone(), ExitStack() as held:
            attempt, before = self._newest(run_id)
            if before is not None and before.known:
                return before
            active = self._active(name, other_than=attempt)
            folder = self.folder(attempt)
            folder.mkdir(mode=0o700, exist_ok=True)
            locks = {"run": self._hold(folder, held)}
            now = self._clock.now()
            there = self._standing(active)
            existing = place(wanted, offer, there)
            placed = existing or self._new_machine(attempt, wanted, offer, there, now)
            machine = None
            if isinstance(placed, MachineSpec) and placed.kept:
                machine = self.machine_folder(placed.id)
                if existing is None:  # folder and lock come first
                    machine.parent.mkdir(mode=0o700, exist_ok=True)
                    machine.mkdir(mode=0o700)
                    locks["life"] = self._hold(machine, held)
                    write_json(machine / "made.json", msgspec.structs.asdict(placed))
                locks["busy"] = self._hold(machine, held, BUSY)
            accepted = Accepted(
                **{field: getattr(task, field) for field in Command.__struct_fields__},
                run_id=attempt,
                mark=run_id,
                name=name,
                user=getpass.getuser(),
                at=now,
                machine=placed if isinstance(placed, MachineSpec) else None,
            )
            write_json(folder / "accepted.json", msgspec.to_builtins(accepted))
            sync_folder(self.root)
            if isinstance(placed, NoCapacity):
                ended = Ended(reason=NO_CAPACITY, message="no capacity", at=now, detail=placed.why)
                write_json(folder / "ended.json", msgspec.structs.asdict(ended))
                return RunState(accepted=accepted, ended=ended)
            return ClaimedRun(accepted=accepted, machine=machine, locks=locks, held=held.pop_all())

    def end_machine(self, machine_id: str) -> None:
        """Tell a machine to end, unless it is ending or gone; a run's own supervisor ends only with the run.

        Raises VmInUse if a run is on it, VmNotFound if it does not exist.
        """
        if not RUN_ID.fullmatch(machine_id) or not self.root.is_dir():
            raise VmNotFound(f"there is no local machine {machine_id!r} on this host")
        with self._alone():
            folder = self.machine_folder(machine_id)
            state = read_machine(folder)
            if state is not None and not state.known:
                state = None
            if state is not None and (state.ended is not None or state.stopping is not None):
                return
            for run in self._active():
                if (spec := run.accepted.machine) is not None and spec.id == machine_id:
                    what = "is there for {} only; stop that run" if state is None else "runs {}; stop that run first"
                    raise VmInUse(f"{spec.name} {what.format(run.accepted.name)}")
            if state is None:
                if not self._went_with_its_run(machine_id):
                    raise VmNotFound(f"there is no local machine {machine_id} on this host")
            elif not state.lost:
                write_json(folder / "stop.json", {"at": self._clock.now()})

    def settled(self, run_id: str) -> RunState | None:
        """A run that was accepted; waits while it is being started: that takes moments."""
        deadline = self._clock.now() + _TIMEOUT
        while (state := read_state(self.folder(run_id))) is not None and state.active and not state.started:
            if self._clock.now() > deadline:
                break
            self._clock.sleep(_PAUSE)
        return state if state is not None and state.known else None

    def known(self, run_id: str, name: str) -> RunState:
        """The run of this id. Raises RunNotFound, or ProviderError if its files are unreadable."""
        try:
            state = read_state(self.folder(run_id)) if RUN_ID.fullmatch(run_id) else None
        except OSError as error:
            raise ProviderError(f"cannot read local run {run_id}: {error.strerror}") from None
        if state is None or not state.known:
            raise RunNotFound(f"there is no local run {name} ({run_id}) on this machine")
        return state

    def samples(self, run_id: str) -> Iterator[bytes]:
        """The content of the files that the sampler of a run wrote, the older first."""
        for name in ("samples.old", "samples"):
            with suppress(OSError):
                yield (self.folder(run_id) / name).read_bytes()

    def _newest(self, run_id: str) -> tuple[str, RunState | None]:
        """The folder name and state of the newest attempt; a new name if that one found no place."""
        attempt = run_id
        for number in count(2):
            state = read_state(self.folder(attempt))
            if state is None or state.ended is None or state.ended.reason != NO_CAPACITY:
                return attempt, state
            attempt = f"{run_id}-{number}"
        raise AssertionError("unreachable")

    def _active(self, name: str | None = None, *, other_than: str | None = None) -> list[RunState]:
        """Every run that may still go on, except `other_than`; NameInUse if one of them has the name."""
        active = []
        for run_id in self.run_ids():
            folder = self.folder(run_id)
            if run_id == other_than or (folder / "ended.json").exists():
                continue
            state = read_state(folder)
            if state is None or not state.active:
                continue
            if state.accepted.name == name:
                raise NameInUse(f"{name} is the name of an active run ({run_id}); stop it or choose another name")
            active.append(state)
        return active

    def _went_with_its_run(self, machine_id: str) -> bool:
        runs = (read_state(self.folder(run_id)) for run_id in self.run_ids())
        machines = (run.accepted.machine for run in runs if run is not None and run.ended is not None)
        return any(spec is not None and spec.id == machine_id for spec in machines)

    def _standing(self, active: Sequence[RunState]) -> list[Standing]:
        """Every machine that exists: supervisors of runs, and warm machines."""
        taken = [run.accepted.machine for run in active if run.accepted.machine is not None]
        there = [Standing(spec=spec, free=False) for spec in taken if not spec.kept]
        busy = {spec.id for spec in taken}
        for machine_id in self.machine_ids():
            folder = self.machine_folder(machine_id)
            if (folder / "ended.json").exists():
                continue
            state = read_machine(folder)
            if state is not None and state.lives:
                there.append(Standing(spec=state.spec, free=state.stopping is None and machine_id not in busy))
        return there

    def _new_machine(
        self, attempt: str, wanted: Wanted, offer: LocalOffer, there: Sequence[Standing], now: int
    ) -> MachineSpec:
        used = {machine.spec.num for machine in there if machine.spec.slot == wanted.slot}
        number = next(number for number in count() if number not in used)
        ids = (foreign_run_id("local-machine", f"{attempt}/{again}") for again in count())
        machine_id = next(candidate for candidate in ids if not self.machine_folder(candidate).exists())
        disk = os.statvfs(self.root)
        return MachineSpec(
            id=machine_id,
            name=f"{wanted.slot or 'local'}-{number}",
            num=number,
            slot=wanted.slot,
            hostname=f"local-{machine_id[:13]}",
            created=now,
            idle=wanted.idle,
            **msgspec.structs.asdict(offer),
            cpus=os.cpu_count() or 1,
            memory_mib=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20,
            disk_mib=disk.f_frsize * disk.f_blocks >> 20,
        )

    def _alone(self) -> ExitStack:
        """Excludes other processes between looking for a name and taking it; a start is not waited for."""
        self.gate.mkdir(mode=0o700, exist_ok=True)
        stack = ExitStack()
        self._hold(self.gate, stack)
        return stack

    def _hold(self, folder: Path, locks: ExitStack, name: str = LIFE) -> int:
        """The descriptor of a lock, which `locks` closes."""
        deadline = self._clock.now() + _TIMEOUT
        while (held := lock(folder, name)) is None:  # a reader holds a lock for a moment
            if self._clock.now() > deadline:
                raise ProviderError(f"{folder} is held by another process; wait for it or end it")
            self._clock.sleep(_PAUSE)
        locks.callback(os.close, held)
        return held


def _names(folder: Path) -> list[str]:
    """The folders in it, except those with a leading dot."""
    try:
        return [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    except FileNotFoundError:
        return []  # nothing was ever submitted here
