"""The warm machines as a provider: its runs are kernels, its machines are those that listeners keep."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from math import inf
from typing import Final

import msgspec

from steno.engine.errors import ProviderError, ProviderUnreachable, RunNotFound, TaskInvalid, VmInUse, VmNotFound
from steno.engine.kernel.executor import VARIABLE
from steno.engine.kernel.kept_machine import KeptMachine, port_of, token_of
from steno.engine.kernel.warm_provider.connection import WAIT, Connection
from steno.engine.kernel.warm_provider.reading import MACHINES, TASKS, WarmMachine, WarmTask
from steno.engine.providers.base import Named, Provider, StopTarget, Submission, Submitted
from steno.engine.providers.sample_text import samples_of
from steno.engine.state.kernel_mark import KERNELS as NAME
from steno.engine.state.samples import Sample
from steno.engine.state.states import State
from steno.events import types
from steno.events.clock import Clock
from steno.events.errors import StenoError
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.store.store import Store

KEPT: Final = 100  # ended kernels whose output a listener keeps
_GOING: Final = frozenset({"queued", "running"})
_UNKNOWN: Final = "it is on no machine that is known"


class KernelsProvider(Provider):
    """Kernels go to a machine each, one at a time. The engine sets `machines`; `beneath` keeps them."""

    name = NAME
    nearby = True

    def __init__(self, beneath: Provider, record: Store, clock: Clock) -> None:
        self.project = beneath.project
        self.source = f"{NAME}/{beneath.project}"
        self.beneath = beneath
        self.keeper = beneath.source
        self.machines: Callable[[], Sequence[KeptMachine]] = tuple
        self.changes = 0  # grows whenever a listener says something new
        self.wake: Callable[[], None] = lambda: None  # called then, in another thread
        self._store = record
        self._clock = clock
        self._connections: dict[str, Connection] = {}

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """The listeners' last answers: threads follow them, so this sends no request."""
        watched = [(machine, self._watched(machine)) for machine in self.machines()]
        yield self._answer(MACHINES, [self._row(machine, listener) for machine, listener in watched])
        rows = [row for machine, listener in watched for row in self._tasks(machine, listener, follow)]
        there = {machine.run_id for machine, _ in watched if not machine.over}
        lost = sorted(set(follow) - {row.id for row in rows})
        rows += [self._lost(provider_id) for provider_id in lost if provider_id.partition(".")[2] not in there]
        yield self._answer(TASKS, rows)

    def _row(self, machine: KeptMachine, listener: Connection | None) -> WarmMachine:
        state = "unknown" if machine.listened else "starting"
        if machine.over:
            state = "gone"
        elif listener is not None and listener.heard:
            state = "busy" if any(task["state"] in _GOING for task in listener.tasks) else "idle"
        silent = state not in ("starting", "gone") and listener is not None and listener.silent
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
            message=machine.why or (listener.trouble if silent and listener is not None else None),
        )

    def _tasks(self, machine: KeptMachine, listener: Connection | None, follow: Collection[str]) -> Iterator[WarmTask]:
        if listener is None:
            return
        first = min((task["queued_at"] for task in listener.tasks), default=None)
        for number, task in enumerate(listener.tasks):
            identity = f"{task['task_id']}.{machine.run_id}"
            if number < len(listener.tasks) - KEPT:
                if not machine.over and identity not in follow:
                    with suppress(StenoError):  # tried again with the next list
                        listener.ask("DELETE", f"/tasks/{task['task_id']}")
                continue
            yield WarmTask(
                id=identity,
                run=task["task_id"],
                name=task["name"],
                project=self.project,
                machine=machine.name,
                state="lost" if machine.over and task["state"] in _GOING else task["state"],
                code=task["code"],
                submitted_at=machine.created if task["queued_at"] == first else task["queued_at"],
                started_at=task["started_at"],
                ended_at=task["ended_at"],
            )

    def _lost(self, provider_id: str) -> WarmTask:
        run, _, machine = provider_id.partition(".")
        kept = self._kept(machine)
        where = machine if kept is None else kept.name
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

    def _watched(self, machine: KeptMachine) -> Connection | None:
        """Its listener, which is followed from now on; None: it cannot answer yet, or never did."""
        connection = self._connections.get(machine.run_id)
        if machine.over and connection is not None:
            connection.end()
        elif machine.state is State.RUNNING and not machine.over:
            connection = self._connection(machine)
            connection.watch(self._clock, self._changed)
        return connection

    def _changed(self) -> None:
        self.changes += 1
        self.wake()

    def submit(self, submission: Submission) -> Submitted:
        here = (machine for machine in self.machines() if machine.slot == submission.slot and not machine.over)
        machine = next(here, None)
        if machine is None:
            raise ProviderUnreachable(f"the machine {submission.slot} is gone", sent=False)
        env = submission.configuration.get("env")
        text = env.get(VARIABLE) if isinstance(env, dict) else None
        if not isinstance(text, str):
            raise TaskInvalid("only kernels go to the kernels' machines: `steno kernel submit`")
        body = {"task_id": submission.run_id, "name": submission.name, "job": json.loads(text)}
        status, answer = self._connection(machine).ask("POST", "/execute", body, again=True)
        if status == 400:
            raise TaskInvalid(f"the machine {machine.name} refuses it: {answer.get('detail')}")
        if status != 202:
            raise ProviderError(f"the machine {machine.name} takes no kernel now: {answer.get('detail')}")
        return Submitted(provider_id=f"{submission.run_id}.{machine.run_id}", name=submission.name)

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        named = [
            Named(
                provider_id=f"{task['task_id']}.{machine.run_id}",
                mark=task["task_id"],
                ended=task["ended_at"] is not None,
                submitted_at=task["queued_at"],
            )
            for machine in self.machines()
            if machine.state is State.RUNNING and not machine.over
            for task in self._connection(machine).ask("GET", "/tasks", again=True)[1]["tasks"]
            if task["name"] == name and task["queued_at"] >= since
        ]
        return tuple(sorted(named, key=lambda task: task.submitted_at or 0, reverse=True))

    def stop(self, stop: StopTarget) -> None:
        task, machine = self._at(stop.provider_id)
        status, answer = self._connection(machine).ask("POST", f"/cancel/{task}", again=True)
        if status == 404:
            raise RunNotFound(f"the machine {machine.name} does not know {stop.name}: {answer.get('detail')}")

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        task, machine = self._at(provider_id)
        connection, read = self._connection(machine), 0
        while True:
            wait = WAIT if follow else 0
            path = f"/tasks/{task}?after={read}&wait={wait:g}"
            status, answer = connection.ask("GET", path, wait=wait, again=True)
            if status == 404:
                raise RunNotFound(
                    f"the machine {machine.name} has no output of {name} any more; see `steno kernel show`"
                )
            lines = answer["lines"]
            read += len(lines)
            if lines:
                yield "".join(f"{line}\n" for line in lines).encode()
            if not follow or (answer["state"] not in _GOING and not lines):
                return

    def samples(self, provider_id: str, name: str, *, since: int) -> tuple[str, list[Sample]] | None:
        """The samples of its machine's GPUs from its start to its end, by the machine's clock."""
        task_id, machine = self._at(provider_id)
        connection = self._connection(machine)
        task = next((task for task in connection.tasks if task["task_id"] == task_id), None)
        if task is None or task["started_at"] is None:
            return None
        status, answer = connection.ask("GET", "/samples", again=True)
        if status != 200:  # a listener of an older version
            return None
        measured = samples_of([str(answer.get("text", "")).encode()], max(since, task["started_at"]))
        until = task["ended_at"] or inf
        return None if measured is None else (measured[0], [each for each in measured[1] if each.at <= until])

    def stop_vm(self, provider_id: str) -> None:
        """Give a machine back: its listener ends, and with it the task that keeps the machine."""
        machine = self._kept(provider_id)
        if machine is None:
            raise VmNotFound(f"{_UNKNOWN}: {provider_id}")
        if machine.over:
            return
        listener = self._connections.get(machine.run_id)
        if machine.provider_id is not None and (listener is None or not listener.heard):
            self.beneath.stop(StopTarget(provider_id=machine.provider_id, name=machine.name, mark=machine.run_id))
            return
        status, answer = self._connection(machine).ask("POST", "/shutdown")
        if status == 409:
            raise VmInUse(f"{machine.name}: {answer.get('detail')}")

    def close(self) -> None:
        for connection in self._connections.values():
            connection.end()
        self.beneath.close()

    def _at(self, provider_id: str) -> tuple[str, KeptMachine]:
        task, _, machine_id = provider_id.partition(".")
        machine = self._kept(machine_id)
        if machine is None:
            raise RunNotFound(_UNKNOWN)
        if machine.over:
            raise RunNotFound(f"its machine {machine.name} is gone; `steno kernel show` has what it reported")
        return task, machine

    def _kept(self, run_id: str) -> KeptMachine | None:
        """The machine of that listener, as the engine knows it; in another process, by the record."""
        machine = next((machine for machine in self.machines() if machine.run_id == run_id), None)
        if machine is not None:
            return machine
        with Record.open(self._store, clock=self._clock, check=False) as record:
            for stored in record.read(stream=f"run/{run_id}", types={"SubmitSucceeded"}):
                match stored.data:
                    case types.SubmitSucceeded(provider_id=provider_id, name=name):
                        machine = KeptMachine(
                            run_id=run_id, name=name, provider_id=provider_id, state=State.RUNNING, over=False
                        )
        return machine

    def _connection(self, machine: KeptMachine) -> Connection:
        connection = self._connections.get(machine.run_id)
        if connection is None:
            if machine.provider_id is None:
                raise ProviderUnreachable(f"the machine {machine.name} is not there yet", sent=False)
            reach = partial(self.beneath.reach, machine.provider_id, port_of(machine.run_id))
            connection = Connection(machine.name, token_of(self._store, machine.run_id), reach)
            self._connections[machine.run_id] = connection
        return connection
