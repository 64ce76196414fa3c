"""What only a provider can do, handed to the service by whoever wires it: projections know no providers."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from engine.fold.run import Run
from engine.providers.task import Completed
from events.clock import Clock


class Outside(Protocol):
    """The provider that this service's settings name, as far as HTTP needs it; called from worker threads."""

    @property
    def provider(self) -> str:
        """Where a task that is requested here goes."""
        ...

    def project(self) -> str:
        """Whose runs these are at the provider (the host's name for this machine).

        Raises:
            NotConfigured: the settings name none.
        """
        ...

    def complete(self, configuration: Mapping[str, object], *, run_id: str, where: str) -> Completed:
        """The task, valid and named, as `steno submit -f` would make it, without anything of this machine's.

        Args:
            configuration: a task as JSON values.
            run_id: what a name is made of where the configuration has none.
            where: what to call the configuration in a message.

        Raises:
            TaskInvalid: the provider would refuse it, or it takes something from this machine.
        """
        ...

    def logs(self, run: Run, *, follow: bool, clock: Clock) -> Iterator[bytes]:
        """The run's output in order, piece by piece, asked of its own provider; with `follow`, until it has ended.

        Args:
            clock: what it waits by; its `sleep` raises once nobody listens any more.

        Raises:
            RunNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...
