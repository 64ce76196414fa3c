"""The kernels' machines, as the registry knows them. They belong to the provider of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine.errors import NotConfigured, TaskInvalid
from engine.kernel.executor import VARIABLE
from engine.kernel.listener_run import KERNELS as NAME
from engine.providers import registry
from engine.providers.kind import Checkup, KernelRights, ProviderKind
from engine.settings.known import Block

if TYPE_CHECKING:
    from engine.kernel.warm.provider import KernelsProvider
    from engine.kernel.warm.reading import KernelsReading
    from engine.providers.task import Draft
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids
    from events.store.store import Store


class KernelsKind(ProviderKind):
    name = NAME
    summary = "kernels in containers, on machines kept warm by another provider"
    settings = Block(provider=NAME, hosted=True)
    repeats_names = True
    kernels = KernelRights.ISOLATED

    def reading(self) -> KernelsReading:
        from engine.kernel.warm.reading import KernelsReading

        return KernelsReading()

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> KernelsProvider:
        from engine.kernel.warm.provider import KernelsProvider

        if record is None:
            raise NotConfigured("kernels need a record")
        beneath = registry.kind(_beneath(settings)).open(settings, clock=clock, ids=ids, record=record)
        return KernelsProvider(beneath, record, clock)

    def project(self, settings: Settings) -> str:
        return registry.kind(_beneath(settings)).project(settings)

    def complete(self, draft: Draft, settings: Settings) -> dict[str, object]:
        env = draft.configuration.get("env")
        if not isinstance(env, dict) or VARIABLE not in env:
            raise TaskInvalid("the provider kernels takes kernels only: `steno kernel submit FILE --problem NAME`")
        return dict(draft.configuration)

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool, trial: bool = False) -> Checkup:
        return Checkup()


def _beneath(settings: Settings) -> str:
    if settings.provider == NAME:
        raise NotConfigured("kernels run on machines of another provider: name that one, and set kernel.warm = on")
    return settings.provider


def is_warm(settings: Settings) -> bool:
    """Whether kernels of the provider of these settings go to warm machines."""
    if (wanted := settings.value("kernel.warm")) != "auto":
        return wanted == "on" and registry.kind(settings.provider).no_kernels() is None
    return settings.provider == "local" and settings.value("kernel.unsafe_local") != "true"


KIND = KernelsKind()
