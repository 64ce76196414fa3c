"""A provider that the contract runs against, and the record of its answers."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import ClassVar, TypeVar

from steno.engine.providers.base import Provider, StopTarget, Submission
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import world_of
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.events.clock import SystemClock
from steno.events.store.record import Record

T = TypeVar("T")


class ProviderSite(ABC):
    """A provider, and the record of what it says."""

    troubles: ClassVar[dict[str, Callable[[ExitStack, Path], tuple[Provider, type[Exception]]]]]
    """Ways for its system to fail, each with a provider that meets it and the error of a call."""

    patience: ClassVar[float] = 240.0
    """Seconds for a step that takes some seconds, on a busy machine."""

    def __init__(self, folder: Path, provider: Provider) -> None:
        self.folder = folder
        self.provider = provider
        self.record = Record.open(
            folder / "record.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock()
        )
        self.sent: list[Submission] = []
        self.ids: list[str] = []

    def submission(self, *commands: str, name: str | None = None, **fields: object) -> Submission:
        """A task of these commands under a run id of its own."""
        run_id = str(uuid.uuid4())
        self.sent.append(
            Submission(
                run_id=run_id,
                name=name or f"run-{run_id[:8]}",
                project=self.provider.project,
                configuration={**self.configuration(*commands), **fields},
                base=str(self.folder),
            )
        )
        return self.sent[-1]

    def configuration(self, *commands: str) -> dict[str, object]:
        """A valid task for this provider."""
        return {"type": "task", "commands": list(commands), "env": {}}

    def send(self, wanted: Submission) -> str:
        """As the engine does it: what has to be there first, then the task; its id at the provider."""
        preparation = self.provider.plan(wanted)
        if preparation is not None:
            self.provider.prepare(preparation)
        self.ids.append(self.provider.submit(wanted).provider_id)
        return self.ids[-1]

    def submit(self, *commands: str, name: str | None = None, **fields: object) -> str:
        """`send` of a new submission."""
        return self.send(self.submission(*commands, name=name, **fields))

    def look(self) -> tuple[dict[str, Run], tuple[Vm, ...]]:
        """A round of polls, recorded and folded: runs by the provider's id, and machines."""
        self.record.append_polls(list(self.provider.poll(dict.fromkeys(self.ids, 0), since=None)))
        state = world_of(self.record).state
        return {run.provider_id: run for run in state.runs.all() if run.provider_id}, tuple(state.vms.all())

    def until(self, provider_id: str, *states: str) -> Run:
        """The run as soon as the fold has it in one of these states."""

        def reached() -> Run | None:
            run = self.look()[0].get(provider_id)
            return run if run is not None and run.state.value in states else None

        return self._wait(reached, f"run {provider_id} to be {' or '.join(states)}")

    def ended(self, provider_id: str) -> tuple[str, str | None, int | None]:
        """Verdict, reason and exit status of a run at its end."""
        run = self.until(provider_id, "succeeded", "failed", "stopped")
        return run.state.value, None if run.reason is None else run.reason.value, run.exit_status

    def stopping(self, provider_id: str, name: str, abort: bool) -> StopTarget:
        """The stop of a run that was sent, with its mark."""
        mark = next((submission.run_id for submission in reversed(self.sent) if submission.name == name), None)
        return StopTarget(provider_id=provider_id, name=name, abort=abort, mark=mark)

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Ask the provider to stop a run."""
        self.provider.stop(self.stopping(provider_id, name, abort))

    def machine_of(self, provider_id: str) -> Vm:
        """The machine that the run is on, as soon as both are known."""

        def found() -> Vm | None:
            runs, vms = self.look()
            return next((vm for vm in vms if runs[provider_id].run_id in vm.runs), None)

        return self._wait(found, "the run's machine")

    unique_names = True
    """It refuses the second of two active runs of one name."""

    tells_abort = True
    """Its answers tell an aborted run from a stopped run."""

    def free(self, name: str) -> None:
        """Wait until no active run has that name: a provider may call a run active after its exit status is known."""
        self._wait(lambda: all(run.ended for run in self.provider.find(name, 0)), f"the name {name} to be free")

    def of_nobody(self) -> Provider | None:
        """The same place, for a project that is not there; None: it has no projects."""
        return None

    @abstractmethod
    def count(self) -> int:
        """Runs that the provider has, asked without Steno."""

    def close(self) -> None:
        """End what still runs."""
        for wanted in self.sent:
            for run in self.provider.find(wanted.name, 0):
                if not run.ended:
                    mark = run.mark or wanted.run_id  # a site may have rewritten where the provider keeps it
                    self.provider.stop(StopTarget(provider_id=run.provider_id, name=wanted.name, abort=True, mark=mark))
        self.provider.close()
        self.record.close()

    def _wait(self, condition: Callable[[], T | None], what: str) -> T:
        """The first true value of `condition()`."""
        end = time.monotonic() + self.patience
        while not (value := condition()):
            if time.monotonic() > end:
                raise AssertionError(f"after {self.patience:g} s still waiting for {what}")
            time.sleep(0.05)
        return value
