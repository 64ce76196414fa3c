"""The providers that the contract runs against, each with what is theirs: how to start it, and how to trouble it."""

from __future__ import annotations

import os
import shutil
import socket
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest

from engine.errors import ProviderError, ProviderRefused, ProviderUnreachable
from engine.fold.run import Run
from engine.fold.vm import Vm
from engine.providers import registry
from engine.providers.base import Provider, StopTarget, Submission
from engine.providers.dstack.provider import DstackProvider
from engine.providers.dstack.settings import address
from engine.providers.local.placement import LocalOffer
from engine.providers.local.provider import LocalProvider
from engine.providers.local.tree import kill_marked
from engine.providers.readings import READINGS
from engine.providers.slurm.provider import SlurmProvider
from engine.providers.slurm.settings import Site as SlurmPlace
from engine.replay.record import world_of
from events.clock import RandomIds, SystemClock
from events.store.record import Record
from stenolab.bad import Bad, respond
from stenolab.lab import GPU, IMAGE, Lab
from stenolab.slurm import Cluster
from stenolab.sshd import SshServer
from stenolab.waiting import StillWaiting, wait

LOADED_S = 240.0
"""For one step that takes seconds, on a machine that is busy with other tests."""


class Site(ABC):
    """One provider, and the record of what it says."""

    troubles: ClassVar[dict[str, Callable[[ExitStack, Path], tuple[Provider, type[Exception]]]]]
    """Ways for its system to fail, each with a provider that meets it and the error of a call."""

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
        """One round of polls, recorded and folded: runs by the provider's id, and machines."""
        self.record.append_polls(list(self.provider.poll(dict.fromkeys(self.ids, 0), since=None)))
        state = world_of(self.record).state
        return {run.provider_id: run for run in state.runs.values() if run.provider_id}, tuple(state.vms.values())

    def until(self, provider_id: str, *states: str) -> Run:
        """The run as soon as the fold has it in one of these states."""

        def reached() -> Run | None:
            run = self.look()[0].get(provider_id)
            return run if run is not None and run.state.value in states else None

        try:
            return wait(reached, seconds=LOADED_S, what=f"the run to be {' or '.join(states)}", pause=0.05)
        except StillWaiting as error:
            error.add_note(f"it is {self.look()[0].get(provider_id)}")
            raise

    def ended(self, provider_id: str) -> tuple[str, str | None, int | None]:
        """Verdict, reason and exit status of a run at its end."""
        run = self.until(provider_id, "succeeded", "failed", "stopped")
        return run.state.value, None if run.reason is None else run.reason.value, run.exit_status

    def stopping(self, provider_id: str, name: str, abort: bool) -> StopTarget:
        """The stop of a run that was sent, with its mark."""
        mark = next((one.run_id for one in reversed(self.sent) if one.name == name), None)
        return StopTarget(provider_id=provider_id, name=name, abort=abort, mark=mark)

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Ask the provider to stop a run."""
        self.provider.stop(self.stopping(provider_id, name, abort))

    def machine_of(self, provider_id: str) -> Vm:
        """The machine that the run is on, as soon as both are known."""

        def found() -> Vm | None:
            runs, vms = self.look()
            return next((vm for vm in vms if runs[provider_id].run_id in vm.runs), None)

        return wait(found, seconds=LOADED_S, what="the run's machine", pause=0.05)

    unique_names = True
    """Of two active runs of one name it refuses the second."""

    tells_abort = True
    """Its answers tell a run that was aborted from one that was stopped."""

    def free(self, name: str) -> None:
        """Wait until no active run has that name: a provider may call a run active after its exit status is known."""
        wait(
            lambda: all(one.ended for one in self.provider.find(name, 0)),
            seconds=LOADED_S,
            what=f"the name {name} to be free",
            pause=0.05,
        )

    def of_nobody(self) -> Provider | None:
        """The same place, for a project that is not there; None: it has no projects."""
        return None

    @abstractmethod
    def count(self) -> int:
        """Runs that the provider has, asked without Steno."""

    def close(self) -> None:
        """End what still runs."""
        for wanted in self.sent:
            for one in self.provider.find(wanted.name, 0):
                if not one.ended:
                    self.provider.stop(
                        StopTarget(provider_id=one.provider_id, name=wanted.name, abort=True, mark=one.mark)
                    )
        self.provider.close()
        self.record.close()


def _unreadable(folder: Path) -> Path:
    """A file where a folder should be."""
    path = folder / "not-a-folder"
    path.write_text("")
    return path


def _damaged(folder: Path) -> Path:
    """The folder of a run whose file was cut."""
    path = folder / "damaged"
    (path / "some-run").mkdir(parents=True)
    (path / "some-run" / "accepted.json").write_text('{"run_id":')
    return path


class LocalSite(Site):
    """Processes of this machine."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self.over(folder / "record.db.local"))

    @staticmethod
    def over(state: Path) -> LocalProvider:
        return LocalProvider(
            state,
            clock=SystemClock(),
            ids=RandomIds(),
            host="here",
            environment=os.environ,
            offer=LocalOffer(price=3_600_000),
        )

    troubles: ClassVar = {
        "unreachable": lambda _, folder: (LocalSite.over(_unreadable(folder)), ProviderError),
        "damaged": lambda _, folder: (LocalSite.over(_damaged(folder)), ProviderError),
    }

    def count(self) -> int:
        return len(list((self.folder / "record.db.local").glob("[!.]*/accepted.json")))

    def close(self) -> None:
        super().close()
        for wanted in self.sent:
            kill_marked(wanted.run_id)


class DstackSite(Site):
    """A project of a genuine server."""

    def __init__(self, folder: Path, lab: Lab) -> None:
        self.lab = lab
        where = address(lab.url, lab.token, lab.project())
        super().__init__(folder, DstackProvider(where, clock=SystemClock(), ids=RandomIds(), read_timeout=LOADED_S))

    def configuration(self, *commands: str) -> dict[str, object]:
        return {
            "type": "task",
            "commands": list(commands),
            "image": IMAGE,
            "resources": {"gpu": GPU},
            "idle_duration": "20s",
        }

    @staticmethod
    def _at(url: str, read_timeout: float = LOADED_S) -> DstackProvider:
        where = address(url, "a-token", "main")
        return DstackProvider(where, clock=SystemClock(), ids=RandomIds(), read_timeout=read_timeout)

    @staticmethod
    def _nobody(stack: ExitStack, _: Path) -> tuple[Provider, type[Exception]]:
        taken = stack.enter_context(socket.socket())
        taken.bind(("127.0.0.1", 0))
        return DstackSite._at(f"http://127.0.0.1:{taken.getsockname()[1]}"), ProviderUnreachable

    @staticmethod
    def _bad(stack: ExitStack, status: int, body: bytes) -> str:
        server = Bad(respond(status, body))
        stack.callback(server.close)
        return server.url

    @staticmethod
    def _silent(stack: ExitStack, _: Path) -> tuple[Provider, type[Exception]]:
        server = Bad(lambda *_: server.over.wait())
        stack.callback(server.close)
        return DstackSite._at(server.url, read_timeout=0.2), ProviderUnreachable

    troubles: ClassVar = {
        "unreachable": _nobody.__func__,
        "refused": lambda stack, _: (
            DstackSite._at(DstackSite._bad(stack, 403, b'{"detail":"Invalid token"}')),
            ProviderRefused,
        ),
        "garbage": lambda stack, _: (DstackSite._at(DstackSite._bad(stack, 200, b"<html>no")), ProviderError),
        "broken": lambda stack, _: (DstackSite._at(DstackSite._bad(stack, 500, b"")), ProviderError),
        "slow": _silent.__func__,
    }

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Ask until it has stopped: a busy 0.22.5 can forget a stop (`Lab.stopped`)."""
        self.lab.stopped(
            self.provider.project,
            name,
            lambda: self.provider.stop(self.stopping(provider_id, name, abort)),
        )

    def of_nobody(self) -> Provider:
        where = address(self.lab.url, self.lab.token, "nobodys-project")
        return DstackProvider(where, clock=SystemClock(), ids=RandomIds(), read_timeout=LOADED_S)

    def count(self) -> int:
        return len(self.lab.runs(self.provider.project))


_GARBAGE = "echo '<html>no'"
_BROKEN = "echo 'fatal: no such plugin' >&2; exit 1"


class SlurmSite(Site):
    """Jobs of a genuine cluster; without accounting, too."""

    unique_names = False
    tells_abort = False  # both are CANCELLED

    def __init__(self, folder: Path, cluster: Cluster, patch: pytest.MonkeyPatch) -> None:
        self.cluster = cluster
        for name, value in cluster.environment.items():
            patch.setenv(name, value)
        self.before = set(self._jobs())
        super().__init__(folder, self.over(cluster.folder / "jobs" / folder.name))

    @staticmethod
    def over(folder: Path, **more: Any) -> SlurmProvider:
        rates = {"a6000": 100.0, "cpu": 1.0, "usd": 0.01}
        return SlurmProvider(SlurmPlace(cluster="lab", folder=str(folder), rates=rates, **more), clock=SystemClock())

    def configuration(self, *commands: str) -> dict[str, object]:
        return {
            "type": "task",
            "commands": list(commands),
            "env": {},
            "partition": "gpu-a6000",
            "resources": {"gpu": "a6000:1", "memory": "500M"},
        }

    @staticmethod
    def _among(script: str | None, **more: Any) -> Callable[[ExitStack, Path], tuple[Provider, type[Exception]]]:
        """Where all of Slurm's commands are this script; None: there are none."""

        def meet(stack: ExitStack, folder: Path) -> tuple[Provider, type[Exception]]:
            tools = Path(stack.enter_context(TemporaryDirectory(dir=folder)))
            for name in ("env", "sh", "mkdir", "id", "date", "ln", "readlink"):
                (tools / name).symlink_to(shutil.which(name))
            for name in ("squeue", "sacct", "scontrol", "sinfo", "sbatch", "scancel"):
                if script is not None:
                    (tools / name).write_text(f"#!/bin/sh\n{script}\n")
                    (tools / name).chmod(0o755)
            stack.enter_context(pytest.MonkeyPatch.context()).setenv("PATH", str(tools))
            error = ProviderError if script in (_GARBAGE, _BROKEN) else ProviderUnreachable
            return SlurmSite.over(folder / "jobs", **more), error

        return meet

    @staticmethod
    def _refused(stack: ExitStack, folder: Path) -> tuple[Provider, type[Exception]]:
        server = stack.enter_context(SshServer.running())
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("PATH", server.path(key=server.stranger))
        return SlurmSite.over(folder / "jobs", host=server.host), ProviderRefused

    troubles: ClassVar = {
        "missing": _among.__func__(None),
        "garbage": _among.__func__(_GARBAGE),
        "broken": _among.__func__(_BROKEN),
        "down": _among.__func__("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1"),
        # It ends by itself: one that a script called outlives the script that is killed.
        "slow": _among.__func__(f"exec {shutil.which('sleep')} 20", timeout=0.2),
        "refused": _refused.__func__,
    }

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Once its script has begun: see `Cluster.begun`."""
        wait(lambda: self.cluster.begun(provider_id), seconds=LOADED_S, what="the job's script")
        super().stop(provider_id, name, abort)

    def _jobs(self) -> list[str]:
        return self.cluster.run("squeue", "-h", "-t", "all", "-o", "%A").split()

    def count(self) -> int:
        return len({*self._jobs()} - self.before)


class ExampleSite(Site):
    """The third provider."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, self.over(folder / "jobs"))

    @staticmethod
    def over(folder: Path) -> Provider:
        settings = registry.load_settings(
            flags={"provider": "example", "example.folder": str(folder), "example.price": "3.60"},
            environ={},
            cwd=folder.parent,
            home=folder.parent,
            config=folder.parent,
            data=folder.parent,
        )
        return registry.kind("example").open(settings, clock=SystemClock(), ids=RandomIds(), record=None)

    @staticmethod
    def _closed(stack: ExitStack, folder: Path) -> tuple[Provider, type[Exception]]:
        path = folder / ("long" * 100)
        return ExampleSite.over(path), ProviderUnreachable

    troubles: ClassVar = {"unreachable": _closed.__func__}

    def count(self) -> int:
        return len(list((self.folder / "jobs").glob("*/started")))
