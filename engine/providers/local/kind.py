"""The local provider, as the registry knows it."""

from __future__ import annotations

import os
import platform
from typing import TYPE_CHECKING

from engine.errors import NotConfigured
from engine.providers.kind import ProviderKind

if TYPE_CHECKING:
    from pathlib import Path

    from engine.providers.local.provider import LocalProvider
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids


class LocalKind(ProviderKind):
    """Processes of this machine."""

    name = "local"
    summary = "processes of this machine"

    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Path | None) -> LocalProvider:
        """See `ProviderKind.open`; its runs are kept in a folder beside the record."""
        from engine.providers.local.provider import LocalProvider
        from engine.settings.values import duration, price

        gpu, count = _label(settings)
        return LocalProvider(
            runs_folder(record),
            clock=clock,
            ids=ids,
            host=platform.node() or "localhost",
            environment=os.environ,
            price=price(settings.value("local.price") or "0"),
            boot=duration(settings.value("local.boot") or "0"),
            gpu=gpu,
            gpu_count=count,
        )


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
