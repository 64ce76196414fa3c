"""The kernels' machines, as the registry knows them. They belong to the provider of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from steno.engine.errors import NotConfigured, TaskInvalid
from steno.engine.kernel.executor import VARIABLE
from steno.engine.providers import registry
from steno.engine.providers.kind import Checkup, KernelRights, ProviderKind
from steno.engine.settings.values import Block
from steno.engine.state.kernel_mark import KERNELS as NAME

if TYPE_CHECKING:
    from steno.engine.kernel.warm_provider.provider import KernelsProvider
    from steno.engine.kernel.warm_provider.reading import KernelsReading
    from steno.engine.providers.task import Draft
    from steno.engine.settings.settings import Settings
    from steno.events.clock import Clock, Ids
    from steno.events.store.store import Store


class KernelsKind(ProviderKind):
    name = NAME
    summary = "kernels in containers, on machines kept warm by another provider"
    settings = Block(provider=NAME, hosted=True)
    repeats_names = True
    kernels = KernelRights.ISOLATED

    def reading(self) -> KernelsReading:
        from steno.engine.kernel.warm_provider.reading import KernelsReading

        return KernelsReading()

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> KernelsProvider:
        from steno.engine.kernel.warm_provider.provider import KernelsProvider

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
        raise NotConfigured("kernels run on machines of another provider: name that provider, and set kernel.warm = on")
    return settings.provider


def is_warm(settings: Settings) -> bool:
    """True if kernels of the provider of these settings go to warm machines."""
    wanted = settings.value("kernel.warm")
    if wanted == "off" or registry.kind(settings.provider).no_kernels() is not None:
        return False
    return wanted == "on" or settings.provider != "local" or settings.value("kernel.unsafe_local") != "true"


KIND = KernelsKind()
