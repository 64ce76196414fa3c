"""The warm machines as a provider: its runs are kernels, its machines are those that listeners keep."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from engine.errors import ProviderError, ProviderUnreachable, RunNotFound, TaskInvalid, VmInUse, VmNotFound
from engine.kernel.executor import VARIABLE
from engine.kernel.held_machine import HeldMachine, port_of, token_of
from engine.kernel.listener_run import KERNELS as NAME
from engine.kernel.warm.connection import WAIT, Connection, Watcher
from engine.kernel.warm.reading import MACHINES, TASKS, WarmMachine, WarmTask
from engine.providers.base import Named, Provider, StopTarget, Submission, Submitted
from engine.states import State
from events import types
from events.clock import Clock
from events.errors import StenoError
from events.poll import Poll
from events.store.record import Record
from events.store.store import Store

KEPT: Final = 100  # ended kernels whose output a listener keeps
_GOING: Final = frozenset({"queued", "running"})
_UNKNOWN: Final = "it is on no machine that is known"


class KernelsProvider(Provider):
    """Kernels go to a machine each, one at a time. `machines` says which there are; the engine sets it."""

    name = NAME
    nearby = True

    def __init__(self, beneath: Provider, record: Store, clock: Clock) -> None:
        """`beneath` keeps the machines."""
        self.project = beneath.project
        self.source = f"{NAME}/{beneath.project}"
        self.beneath = beneath
        self.keeper = beneath.source
        self.machines: Callable[[], Sequence[HeldMachine]] = tuple
        self.changes = 0  # grows whenever a listener says something new
        self.wake: Callable[[], None] = lambda: None  # called then, in another thread
        self._store = record
        self._clock = clock
        self._connections: dict[str, Connection] = {}
        self._watchers: dict[str, Watcher] = {}

    # -- what is seen

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """What the listeners said last: they are followed beside, so that this asks nobody."""
        held = self.machines()
        yield self._answer(MACHINES, [self._row(one) for one in held])
        rows = [row for one in held for row in self._tasks(one, follow)]
        lost = set(follow) - {row.id for row in rows}
        there = {one.run_id for one in held if not one.over}
        rows += [self._lost(one) for one in sorted(lost) if one.partition(".")[2] not in there]
        yield self._answer(TASKS, rows)

    def _row(self, machine: HeldMachine) -> WarmMachine:
        watcher = self._watched(machine)
        state = "starting"
        if machine.over:
            state = "gone"
        elif watcher is not None and watcher.heard:
            state = "busy" if any(one["state"] in _GOING for one in watcher.tasks) else "idle"
        elif machine.listened:
            state = "unknown"
        silent = state != "starting" and not machine.over and watcher is not None and watcher.silent
        return WarmMachine(
            id=machine.run_id,
            name=machine.name,
            project=self.project,
            gpu=machine.gpu,
            slot=machine.slot,
            state=state,
            created=machine.created,
            silent=silent,
            failed=machine.failed_at is not None and not machine.forgotten,
            forgotten=machine.forgotten,
            message=machine.why or (watcher.trouble if silent and watcher is not None else None),
        )

    def _tasks(self, machine: HeldMachine, follow: Collection[str]) -> Iterator[WarmTask]:
        watcher = self._watched(machine)
        found = () if watcher is None else watcher.tasks
        first = min((one["queued_at"] for one in found), default=None)
        for one in found[-KEPT:]:
            identity = f"{one['task_id']}.{machine.run_id}"
            over = machine.over and one["state"] in _GOING
            yield WarmTask(
                id=identity,
                run=one["task_id"],
                name=one["name"],
                project=self.project,
                machine=machine.name,
                state="lost" if over else one["state"],
                code=one["code"],
                submitted_at=machine.created if one["queued_at"] == first else one["queued_at"],
                started_at=one["started_at"],
                ended_at=one["ended_at"],
            )
        for one in () if machine.over else found[:-KEPT]:
            if f"{one['task_id']}.{machine.run_id}" not in follow:
                with suppress(StenoError):  # asked again with the next list
                    self._connection(machine).ask("DELETE", f"/tasks/{one['task_id']}")

    def _lost(self, provider_id: str) -> WarmTask:
        run, _, machine = provider_id.partition(".")
        found = self._found(machine)
        where = machine if found is None else found.name
        return WarmTask(id=provider_id, run=run, project=self.project, machine=where, state="lost")

    def _answer(self, path: str, rows: Sequence[msgspec.Struct]) -> Poll:
        now = self._clock.now()
        return Poll(
            source=self.source,
            path=path,
            req=msgspec.json.encode({"project": self.project}),
            started_at=now,
            observed_at=now,
            status=200,
            body=msgspec.json.encode(rows),
            answered=True,
            complete=True,
        )

    def _watched(self, machine: HeldMachine) -> Watcher | None:
        """Its watcher; None: it cannot answer yet."""
        watcher = self._watchers.get(machine.run_id)
        if watcher is None and machine.state is State.RUNNING and not machine.over:
            watcher = self._watchers[machine.run_id] = Watcher(self._connection(machine), self._clock, self._changed)
        elif watcher is not None and machine.over:
            watcher.end()
        return watcher

    def _changed(self) -> None:
        self.changes += 1
        self.wake()

    # -- what is asked for

    def submit(self, submission: Submission) -> Submitted:
        machine = next((one for one in self.machines() if one.slot == submission.slot and not one.over), None)
        if machine is None:
            raise ProviderUnreachable(f"the machine {submission.slot} is gone", sent=False)
        env = submission.configuration.get("env")
        text = env.get(VARIABLE) if isinstance(env, dict) else None
        if not isinstance(text, str):
            raise TaskInvalid("only kernels go to the kernels' machines: `steno kernel submit`")
        body = {"task_id": submission.run_id, "name": submission.name, "job": json.loads(text)}
        status, said = self._connection(machine).ask("POST", "/execute", body, again=True)
        if status == 400:
            raise TaskInvalid(f"the machine {machine.name} refuses it: {said.get('detail')}")
        if status != 202:
            raise ProviderError(f"the machine {machine.name} takes no kernel now: {said.get('detail')}")
        return Submitted(provider_id=f"{submission.run_id}.{machine.run_id}", name=submission.name)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        found = []
        for machine in self.machines():
            if machine.over or machine.state is not State.RUNNING:
                continue
            _, said = self._connection(machine).ask("GET", "/tasks", again=True)
            found += [
                Named(
                    provider_id=f"{one['task_id']}.{machine.run_id}",
                    mark=one["task_id"],
                    ended=one["ended_at"] is not None,
                    submitted_at=one["queued_at"],
                )
                for one in said["tasks"]
                if one["name"] == name and one["queued_at"] >= since
            ]
        return tuple(sorted(found, key=lambda one: one.submitted_at or 0, reverse=True))

    def stop(self, stop: StopTarget) -> None:
        task, machine = self._at(stop.provider_id)
        status, said = self._connection(machine).ask("POST", f"/cancel/{task}", again=True)
        if status == 404:
            raise RunNotFound(f"the machine {machine.name} does not know {stop.name}: {said.get('detail')}")

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        task, machine = self._at(provider_id)
        connection, read = self._connection(machine), 0
        while True:
            wait = WAIT if follow else 0
            path = f"/tasks/{task}?after={read}&wait={wait:g}"
            status, said = connection.ask("GET", path, wait=wait, again=True)
            if status == 404:
                raise RunNotFound(
                    f"the machine {machine.name} has no output of {name} any more; see `steno kernel show`"
                )
            lines = said["lines"]
            read += len(lines)
            if lines:
                yield "".join(f"{line}\n" for line in lines).encode()
            if not follow or (said["state"] not in _GOING and not lines):
                return

    def stop_vm(self, provider_id: str) -> None:
        """Give a machine back: its listener ends, and with it the task that keeps the machine."""
        machine = self._found(provider_id)
        if machine is None:
            raise VmNotFound(f"{_UNKNOWN}: {provider_id}")
        if machine.over:
            return
        if machine.provider_id is not None and not self._heard(machine):
            self.beneath.stop(StopTarget(provider_id=machine.provider_id, name=machine.name, mark=machine.run_id))
            return
        status, said = self._connection(machine).ask("POST", "/shutdown")
        if status == 409:
            raise VmInUse(f"{machine.name}: {said.get('detail')}")

    def close(self) -> None:
        for watcher in self._watchers.values():
            watcher.end()
        for connection in self._connections.values():
            connection.close()
        self.beneath.close()

    # -- which machine

    def _heard(self, machine: HeldMachine) -> bool:
        watcher = self._watchers.get(machine.run_id)
        return watcher is not None and watcher.heard

    def _at(self, provider_id: str) -> tuple[str, HeldMachine]:
        task, _, machine_id = provider_id.partition(".")
        machine = self._found(machine_id)
        if machine is None:
            raise RunNotFound(_UNKNOWN)
        if machine.over:
            raise RunNotFound(f"its machine {machine.name} is gone; `steno kernel show` has what it reported")
        return task, machine

    def _found(self, run_id: str) -> HeldMachine | None:
        """The machine of that listener, as the engine knows it; in another process, by the record."""
        found = next((one for one in self.machines() if one.run_id == run_id), None)
        return found or self._recorded(run_id)

    def _recorded(self, run_id: str) -> HeldMachine | None:
        name, created, provider_id = "", 0, None
        with Record.open(self._store, clock=self._clock, check=False) as record:
            for stored in record.read(stream=f"run/{run_id}", types={"RunRequested", "SubmitSucceeded"}):
                match stored.data:
                    case types.RunRequested() as asked:
                        name, created = asked.name, stored.observed_at
                    case types.SubmitSucceeded() as taken:
                        provider_id, name = taken.provider_id, taken.name
        if provider_id is None:
            return None
        state = State.RUNNING
        return HeldMachine(
            run_id=run_id, name=name, gpu=None, created=created, provider_id=provider_id, state=state, over=False
        )

    def _connection(self, machine: HeldMachine) -> Connection:
        found = self._connections.get(machine.run_id)
        if found is None:
            if machine.provider_id is None:
                raise ProviderUnreachable(f"the machine {machine.name} is not there yet", sent=False)
            beneath, provider_id, port = self.beneath, machine.provider_id, port_of(machine.run_id)
            token = token_of(self._store, machine.run_id)
            found = Connection(machine, token, lambda: beneath.reach(provider_id, port))
            self._connections[machine.run_id] = found
        return found
