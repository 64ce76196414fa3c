"""What only a provider can do, for the HTTP service: each call with a provider of its own, wired from the settings."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from engine.errors import Conflict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from cli.wiring.app import App
    from engine.fold.run import Run
    from engine.providers.task import Completed
    from events.clock import Clock
    from events.store.store import Store


class Provided:
    """The provider that the settings name."""

    def __init__(self, app: App, record: Store) -> None:
        self._app = app
        self._record = record

    @property
    def provider(self) -> str:
        """Its name."""
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
            TaskInvalid: the provider would refuse it, or it takes something from this machine.
        """
        from cli.wiring.task import apply_profile
        from engine.providers import registry
        from engine.providers.naming import check_name, choose_name
        from engine.providers.task import Completed, Draft

        settings = self._app.settings
        draft = Draft(configuration=copy.deepcopy(dict(configuration)), where=where, environ={})
        task = registry.kind(self.provider).complete(draft, settings)
        apply_profile(task, {}, None, settings.value("profile"))
        given = task.get("name")
        name = check_name(str(given)) if given else choose_name(run_id)
        task["name"] = name
        return Completed(name=name, configuration=task)

    def logs(self, run: Run, *, follow: bool, clock: Clock) -> Iterator[bytes]:
        """The run's output, asked of its own provider.

        Raises:
            Conflict: the run has not reached its provider.
            RunNotFound, NotConfigured, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        if run.provider_id is None:
            raise Conflict(f"{run.name} has not reached its provider, so there is no output yet")
        from cli.wiring.providers import of_run

        provider = of_run(self._app.copied(clock), run, self._record)  # the run's project is set on the copy
        try:
            yield from provider.logs(run.provider_id, run.name or "", follow=follow)
        finally:
            provider.close()
