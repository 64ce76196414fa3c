"""The providers that the contract runs against, each with what is theirs: how to start it, and how to trouble it."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import pytest
from stenotest.waiting import wait

from steno.engine.errors import ProviderError, ProviderRefused, ProviderUnreachable
from steno.engine.providers.base import Provider
from steno.engine.providers.dstack.provider import DstackProvider
from steno.engine.providers.dstack.settings import address
from steno.engine.providers.local.placement import LocalOffer
from steno.engine.providers.local.provider import LocalProvider
from steno.engine.providers.local.tree import kill_marked
from steno.engine.providers.slurm.provider import SlurmProvider
from steno.engine.providers.slurm.settings import Site as SlurmPlace
from steno.events.clock import RandomIds, SystemClock
from steno.testing import ProviderSite
from stenolab.faulty_server import FaultyServer, respond
from stenolab.lab import GPU, IMAGE, Lab
from stenolab.slurm import Cluster
from stenolab.sshd import SshServer

LOADED_S = 240.0
"""For one step that takes seconds, on a machine that is busy with other tests."""


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


class LocalSite(ProviderSite):
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


class DstackSite(ProviderSite):
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
        server = FaultyServer(respond(status, body))
        stack.callback(server.close)
        return server.url

    @staticmethod
    def _silent(stack: ExitStack, _: Path) -> tuple[Provider, type[Exception]]:
        server = FaultyServer(lambda *_: server.over.wait())
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
            self.provider.project, name, lambda: self.provider.stop(self.stopping(provider_id, name, abort))
        )

    def of_nobody(self) -> Provider:
        where = address(self.lab.url, self.lab.token, "nobodys-project")
        return DstackProvider(where, clock=SystemClock(), ids=RandomIds(), read_timeout=LOADED_S)

    def count(self) -> int:
        return len(self.lab.runs(self.provider.project))


_GARBAGE = "echo '<html>no'"
_BROKEN = "echo 'fatal: no such plugin' >&2; exit 1"


class SlurmSite(ProviderSite):
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
        # It ends by itself: a process that a script called outlives the script that is killed.
        "slow": _among.__func__(f"exec {shutil.which('sleep')} 20", timeout=0.2),
        "refused": _refused.__func__,
    }

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Once its script has begun: see `Cluster.begun`."""
        wait(lambda: self.cluster.begun(provider_id), what="the job's script")
        super().stop(provider_id, name, abort)

    def _jobs(self) -> list[str]:
        return self.cluster.run("squeue", "-h", "-t", "all", "-o", "%A").split()

    def count(self) -> int:
        return len({*self._jobs()} - self.before)
