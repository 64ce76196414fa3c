"""The providers of this call, wired from its settings."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.wiring.app import App
    from engine.fold.run import Run
    from engine.providers.dstack.provider import DstackProvider
    from engine.providers.local.provider import LocalProvider
    from engine.settings.settings import Setting


def dstack(app: App) -> DstackProvider:
    """dstack, as the settings have it.

    Raises:
        NotConfigured: server, token or project is missing.
    """
    from engine.providers.dstack.provider import DstackProvider

    settings = app.settings
    return DstackProvider(settings.dstack_address(), clock=app.clock, ids=app.ids, fleet_nodes=settings.fleet_nodes)


def local(app: App, record: Path | None) -> LocalProvider:
    """Processes of this machine; what it keeps of them lies beside the record, so that they go together.

    Raises:
        NotConfigured: `local.gpu` is no GPU.
    """
    from engine.providers.local.provider import LocalProvider
    from engine.settings.values import duration, price

    settings = app.settings
    gpu, count = _label(settings.find("local.gpu"))
    return LocalProvider(
        runs_folder(record),
        clock=app.clock,
        ids=app.ids,
        host=platform.node() or "localhost",
        environment=os.environ,
        price=price(settings.value("local.price") or "0"),
        boot=duration(settings.value("local.boot") or "0"),
        gpu=gpu,
        gpu_count=count,
    )


def _label(setting: Setting) -> tuple[str | None, int]:
    from engine.errors import NotConfigured
    from engine.providers.local.spec import gpu_label

    if not setting.value:
        return None, 0
    try:
        return gpu_label(setting.value)
    except ValueError as error:
        raise NotConfigured(f"local.gpu is {setting.value!r} ({setting.source}); it must be {error}") from None


def named(app: App, provider: str, record: Path | None) -> DstackProvider | LocalProvider:
    """The provider of that name."""
    return dstack(app) if provider == "dstack" else local(app, record)


def of_run(app: App, run: Run, record: Path | None) -> DstackProvider | LocalProvider:
    """The provider that has a run, in the run's own project."""
    if run.provider == "dstack" and run.project is not None and run.project != app.settings.value("project"):
        app.set_flag("project", run.project)
    return named(app, run.provider, record)


def runs_folder(record: Path | None) -> Path:
    """Where the local provider keeps its runs: beside the record, or in the user's data folder if it is no file."""
    if record is not None:
        return record.with_name(record.name + ".local")
    from platformdirs import user_data_path

    return user_data_path("steno") / "local"
