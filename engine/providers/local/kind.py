"""The local provider, as the registry knows it, and its settings."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from typing import TYPE_CHECKING

from steno.engine.errors import NotConfigured
from steno.engine.providers import registry
from steno.engine.providers.kind import Check, CheckState, Checkup, KernelRights, ProviderKind
from steno.engine.providers.task import Draft, complete_plain
from steno.engine.settings.values import Block, price, setting
from steno.events.clock import duration, parse_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from steno.engine.providers.local.placement import LocalOffer
    from steno.engine.providers.local.provider import LocalProvider
    from steno.engine.providers.local.reading import LocalReading
    from steno.engine.settings.settings import Settings
    from steno.events.clock import Clock, Ids
    from steno.events.store.store import Store


_DOCKER = ("DOCKER_HOST", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH")
_OF_MACHINES = frozenset({"resources", "image", "backends", "spot_policy", "creation_policy", "idle_duration"})
"""Fields that the provider whose language it is judges."""


_SETTINGS = Block(
    provider="local",
    known=(
        setting("local.price", "STENO_LOCAL_PRICE", default="0", parse=price)(
            help="Price of this machine in dollars per hour, to try bills and budgets. 0: free."
        ),
        setting("local.boot", "STENO_LOCAL_BOOT", default="0", parse=parse_duration)(
            help="Simulated start-up time of a machine of the provider local."
        ),
        setting("local.gpu", "STENO_LOCAL_GPU")(help="Simulated GPU model of machines of the provider local."),
    ),
    hourly="local.price",
)


class LocalKind(ProviderKind):
    name = "local"
    summary = "processes of this machine"
    ends_idle = True
    settings = _SETTINGS
    kernels = KernelRights.AS_USER

    def reading(self) -> LocalReading:
        from steno.engine.providers.local.reading import LocalReading

        return LocalReading(registry.task_language().reading())

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> LocalProvider:
        from steno.engine.providers.local.provider import LocalProvider

        return LocalProvider(
            runs_folder(record),
            clock=clock,
            ids=ids,
            host=self.project(settings),
            environment=os.environ,
            offer=_offer(settings),
        )

    def complete(self, draft: Draft, settings: Settings) -> dict[str, object]:
        if draft.bare and not set(draft.configuration) & _OF_MACHINES:
            return complete_plain(draft)
        return registry.task_language().check(draft)

    def kept_here(self, record: Store) -> Callable[[str], bool] | None:
        """The machines that have, or had, a process of their own."""
        from steno.engine.providers.local.durable import MACHINES

        folder = runs_folder(record)
        return (lambda machine_id: (folder / MACHINES / machine_id).is_dir()) if folder.is_dir() else None

    def holding(self, program: str, env: Mapping[str, str], gpu: str | None) -> dict[str, object]:
        """A process of this host, by our own Python; it uses the Docker engine that we would use."""
        engine = {name: os.environ[name] for name in _DOCKER if name in os.environ}
        return {
            "type": "task",
            "commands": [f"exec {shlex.quote(sys.executable)} -c {shlex.quote(program)}"],
            "env": {**engine, **env},
        }

    def machine_size(self) -> Mapping[str, float]:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return {"cpu": os.cpu_count() or 1, "memory": memory / 2**30, "disk": shutil.disk_usage(".").total / 2**30}

    def warm_up(self) -> None:
        registry.task_language().warm_up()

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool, trial: bool = False) -> Checkup:
        from steno.engine.settings.settings import policy_from
        from steno.engine.wire import rate

        shell = shutil.which("bash") or shutil.which("sh")
        message = f"commands run here with {shell}" if shell else "there is neither bash nor sh; install one"
        here = Check(name="local", state=CheckState.OK if shell else CheckState.FAILED, message=message)
        try:
            policy = policy_from(settings, self.name)
        except NotConfigured as error:
            machines = Check(name="machines", state=CheckState.FAILED, message=str(error), error=error)
        else:
            ends = "idle for ever" if policy.idle_timeout is None else f"end after {duration(policy.idle_timeout)} idle"
            whose = settings.find("vms.idle_timeout").source
            message = f"machines here cost {rate(settings.parsed('local.price'))} and {ends} ({whose})"
            if policy.free:
                message = "machines here are free: each goes with its run, unless the task says idle_duration"
            machines = Check(name="machines", message=message)
        return Checkup(checks=(here, machines))

    def project(self, settings: Settings) -> str:
        return platform.node() or "localhost"


def runs_folder(record: Store | None) -> Path:
    """Where runs are kept: beside the record, or in the user's data folder without one."""
    if record is not None:
        return record.folder("local")
    from platformdirs import user_data_path

    return user_data_path("steno") / "local"


def _offer(settings: Settings) -> LocalOffer:
    from steno.engine.providers.local.placement import LocalOffer, gpu_label

    gpu = settings.find("local.gpu")
    try:
        model, count = gpu_label(gpu.value) if gpu.value else (None, 0)
    except ValueError as error:
        raise NotConfigured(f"local.gpu is {gpu.value!r} ({gpu.source}); it must be {error}") from None
    price, boot = settings.parsed("local.price"), settings.parsed("local.boot")
    return LocalOffer(price=price, boot=boot, gpu=model, gpu_count=count)


KIND = LocalKind()
