"""The local provider, as the registry knows it, and its settings."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from engine.errors import NotConfigured
from engine.providers.kind import ProviderKind
from engine.settings.known import Block, Known
from engine.settings.values import duration, price

if TYPE_CHECKING:
    from pathlib import Path

    from engine.providers.local.provider import LocalProvider
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids


def _hourly(settings: Settings) -> int:
    return price(settings.value("local.price") or "0")


_SETTINGS = Block(
    provider="local",
    known=(
        Known(
            name="local.price",
            variables=("STENO_LOCAL_PRICE",),
            default="0",
            help="what this machine is taken to cost, dollars an hour, so that all of this can be tried for nothing",
            parse=price,
        ),
        Known(
            name="local.boot",
            variables=("STENO_LOCAL_BOOT",),
            default="0",
            help="how long a machine of the local provider is taken to need to start",
            parse=duration,
        ),
        Known(
            name="local.gpu",
            variables=("STENO_LOCAL_GPU",),
            help="GPU model machines of the local provider are given",
        ),
    ),
    hourly=_hourly,
)


class LocalKind(ProviderKind):
    """Processes of this machine."""

    name = "local"
    summary = "processes of this machine"
    settings = _SETTINGS

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Path | None) -> LocalProvider:
        """See `ProviderKind.open`; its runs are kept in a folder beside the record."""
        from engine.providers.local.provider import LocalProvider

        gpu, count = _label(settings)
        return LocalProvider(
            runs_folder(record),
            clock=clock,
            ids=ids,
            host=self.project(settings),
            environment=os.environ,
            price=_hourly(settings),
            boot=duration(settings.value("local.boot") or "0"),
            gpu=gpu,
            gpu_count=count,
        )

    def project(self, settings: Settings) -> str:  # noqa: ARG002 - the same whatever they say
        """The name of this machine."""
        return platform.node() or "localhost"


def runs_folder(record: Path | None) -> Path:
    """Where runs are kept: beside the record, or in the user's data folder if the record is not a file."""
    if record is not None:
        return record.with_name(record.name + ".local")
    from platformdirs import user_data_path

    return user_data_path("steno") / "local"


def _label(settings: Settings) -> tuple[str | None, int]:
    from engine.providers.local.spec import gpu_label

    setting = settings.find("local.gpu")
    if not setting.value:
        return None, 0
    try:
        return gpu_label(setting.value)
    except ValueError as error:
        raise NotConfigured(f"local.gpu is {setting.value!r} ({setting.source}); it must be {error}") from None


KIND = LocalKind()
