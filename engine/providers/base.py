"""What every provider can do: be polled, take a task, find it, stop it, give its output.

The engine holds providers by this interface only, so that a run on a rented machine and a process on this one are
recorded, folded and explained by the same code.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Protocol

import msgspec

from events.poll import Poll


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider said when it took a task."""

    provider_id: str
    """The provider's own id of the run; names can be used again, ids cannot."""
    name: str
    submitted_at: int | None = None
    """The provider's time of the submission, where it says (microseconds, UTC)."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the provider has under a name."""

    provider_id: str
    mark: str | None
    """The run id it was submitted with (`Submission.run_id`); None: whoever submitted it gave none."""
    ended: bool
    submitted_at: int | None = None
    """Microseconds, UTC, by our clock."""


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One task to be run, complete: nothing is read from the environment at the call."""

    run_id: str
    """The provider keeps it with the run and gives it back in every answer: the proof that the run is ours."""
    name: str
    """Chosen before the call and unique among active runs, so that the same submission cannot run twice."""
    project: str
    configuration: dict[str, object]
    """A dstack task configuration as JSON values; secrets in clear, so it is held in memory only."""
    base: str | None = None
    """The folder that relative `files:` and `repos:` paths start from; None: the current one."""
    slot: str | None = None
    """The fleet of one machine it must go to; None: the provider chooses."""
    creation: str = "reuse-or-create"
    """`reuse` or `reuse-or-create`, whatever the configuration says."""
    gpu: str | None = None
    """The GPU model to ask for instead of the configuration's own."""
    idle: int | None = None
    """`idle_duration` where the configuration says none: microseconds, -1 for off; None: leave it to the provider."""


class FleetPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A fleet to be made before a task can run."""

    project: str
    name: str
    configuration: dict[str, object]
    """The provider's own fleet configuration; no secrets in it."""


class Provider(Protocol):
    """One place that runs tasks, as seen by one user in one project.

    Its methods may be called by several threads at once, but for `poll`: one round is read at a time.
    """

    @property
    def name(self) -> str:
        """`dstack` or `local`."""
        ...

    @property
    def source(self) -> str:
        """Whose answers these are: `dstack/<project>`, `local/<host>`."""
        ...

    @property
    def project(self) -> str:
        """Whose runs these are at the provider; the host's name for this machine."""
        ...

    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """One round of questions, each answer given as soon as it is here; trouble is a failed `Poll`, no exception.

        The caller records each poll before it asks for the next.

        Args:
            follow: provider ids of runs that have not ended; the round says something about each of them if it can.
            since: how far back a first contact reads history (microseconds, UTC); None: all of it.
        """
        ...

    def plan_fleet(self, configuration: Mapping[str, object], /, *, ahead: int = 0) -> FleetPlan | None:
        """The fleet to be made before this task can run; None where none is needed.

        Args:
            ahead: machines that runs being handed over at this moment need, which the provider may not list yet.

        Raises:
            ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def ensure_fleet(self, plan: FleetPlan, /) -> bool:
        """Make the fleet; True if it was there already.

        Raises:
            TaskInvalid: the provider refuses it.
            ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def submit(self, submission: Submission) -> Submitted:
        """Start the task.

        Raises:
            NameInUse: an active run has that name.
            TaskInvalid: the provider refuses the configuration.
            ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """The runs of that name submitted at or after `since`, ended or not, newest first.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: we could not look, so nothing is known.
        """
        ...

    def holder(self, name: str) -> Named | None:
        """The run that a new one of that name would collide with, or replace in the provider's lists; None: none.

        Raises:
            ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def is_same(self, submission: Submission, provider_id: str) -> bool:
        """Whether that run is in every field what this submission would be, and by the same user; False where unknown.

        For a run without a mark, of a call made before runs were marked.

        Raises:
            ProviderUnreachable, ProviderRefused, ProviderError: we could not look, so nothing is known.
        """
        ...

    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Ask that this run end, gracefully or (`abort`) at once; a run that has already ended is left alone.

        Raises:
            RunNotFound: the provider knows no such run.
            ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def plan_slot(self, name: str, configuration: Mapping[str, object], /) -> FleetPlan | None:
        """The fleet of at most one machine of that name, fit for this task; None where it is there, or none is needed.

        Raises:
            ProjectNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def stop_vm(self, provider_id: str) -> None:
        """Ask that this machine end. Looks first that it is there and empty; one that is going or gone is left alone.

        Raises:
            VmInUse: a run is on it, or the provider says that its fleet is in use or being changed; nothing was done.
            VmNotFound: the provider knows no such machine.
            ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        """The run's output in order, piece by piece; with `follow`, until the run has ended.

        Raises:
            RunNotFound: the provider knows no such run.
            ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...

    def close(self) -> None:
        """Let go of connections; the runs go on."""
        ...
