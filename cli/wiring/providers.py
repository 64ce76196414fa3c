"""The providers of this call, opened as its settings have them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cli.wiring.app import App
    from engine.fold.run import Run
    from engine.providers.base import Provider
    from events.store.store import Store


def named(app: App, provider: str, record: Store | None, *, project: str | None = None) -> Provider:
    """The provider of that name, in the project of the settings or in the one given.

    Raises:
        NotConfigured, ProjectNotFound: there is no such provider, or a setting it needs is missing or wrong.
    """
    from engine.providers import registry

    kind, app = registry.kind(provider), app.copied(app.clock)
    if all(block.provider != provider for block in app.settings.blocks):
        app.set_flag("provider", provider)  # its settings are read only where it is named
    if project is not None and project != app.settings.value("project"):
        app.set_flag("project", project)
    return kind.open(app.settings, clock=app.clock, ids=app.ids, record=record)


def of_run(app: App, run: Run, record: Store | None) -> Provider:
    """The provider that has a run, in the run's own project."""
    return named(app, run.provider, record, project=run.project)
