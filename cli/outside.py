"""What only a provider can do, for the HTTP service: each call with a provider of its own, wired from the settings."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from engine.errors import Conflict, NotConfigured, TaskInvalid

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from cli.wiring.app import App
    from engine.fold.run import Run
    from events.clock import Clock
    from projections.api.outside import Completed


class Provided:
    """The provider that the settings name."""

    def __init__(self, app: App, record: Path) -> None:
        self._app = app
        self._record = record

    @property
    def provider(self) -> str:
        """`dstack` or `local`."""
        return self._app.settings.provider

    def project(self) -> str:
        """Whose runs these are at the provider.

        Raises:
            NotConfigured, ProjectNotFound: the settings name none.
        """
        from engine.providers import registry

        return registry.kind(self.provider).project(self._app.settings)

    def complete(self, configuration: Mapping[str, object], *, run_id: str, where: str) -> Completed:
        """The task, valid and named, as `steno submit -f` would make it; nothing of this machine is in it.

        Raises:
            TaskInvalid: dstack would refuse it, or it takes something from this machine.
        """
        from cli.task import apply_profile
        from engine.providers.dstack.task import complete_task
        from engine.providers.naming import check_name, choose_name
        from projections.api.outside import Completed as Done

        task = copy.deepcopy(dict(configuration))
        backend = self._app.settings.value("dstack.backend")
        if self.provider == "dstack" and backend:
            task.setdefault("backends", [backend])
        task = complete_task(task, {}, where)
        apply_profile(task, {}, None, self._app.settings.value("profile"))
        given = task.get("name")
        name = check_name(str(given)) if given else choose_name(run_id)
        task["name"] = name
        return Done(name=name, configuration=task)

    def logs(self, run: Run, *, follow: bool, clock: Clock) -> Iterator[bytes]:
        """The run's output, asked of its own provider.

        Raises:
            Conflict: the run has not reached its provider.
            RunNotFound, NotConfigured, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        if run.provider_id is None:
            raise Conflict(f"{run.name} has not reached its provider, so there is no output yet")
        from cli.providers import of_run

        provider = of_run(self._app.copied(clock), run, self._record)  # the run's project is set on the copy
        try:
            yield from provider.logs(run.provider_id, run.name or "", follow=follow)
        finally:
            provider.close()


def warm_up() -> None:
    """Import what validates a task (0.9 s), so that the first submission does not wait for it."""
    from engine.providers.dstack.task import complete_task

    try:
        complete_task({"type": "task", "commands": ["true"]}, {}, "nothing")
    except (TaskInvalid, NotConfigured):  # what matters is that it was imported
        return
