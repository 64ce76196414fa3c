"""What every provider can do: be polled, take a task, find it, stop it, give its output.

The engine holds providers by this interface only, so that a run on a rented machine and a process on this one are
recorded, folded and explained by the same code.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator

import msgspec

from engine.errors import VmNotFound
from engine.providers.task import alternatives
from events.poll import Poll


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's answer when it took a task."""

    provider_id: str  # the provider's own id of the run; names can be used again, ids cannot
    name: str
    submitted_at: int | None = None
    """The provider's time of the submission, where it gives one (microseconds, UTC)."""
    sent: str | None = None
    """What it was handed in place of the task, whole and without secret values; None: the task itself."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the provider has under a name."""

    provider_id: str
    mark: str | None
    """The run id it was submitted with (`Submission.run_id`); None: whoever submitted it gave none."""
    ended: bool
    submitted_at: int | None = None  # microseconds, UTC, by our clock


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """One task to be run, complete: nothing is read from the environment at the call."""

    run_id: str
    """The provider keeps it with the run and gives it back in every answer: the proof that the run is ours."""
    name: str
    """Chosen before the call and unique among active runs, so that the same submission cannot run twice."""
    project: str
    configuration: dict[str, object]
    """The task as JSON values; secrets in clear, so it is held in memory only."""
    base: str | None = None
    """The folder that relative `files:` and `repos:` paths start from; None: the current one."""
    slot: str | None = None
    """The pool slot of one machine it must go to; None: the provider chooses."""
    creation: str = "reuse-or-create"
    """`reuse` or `reuse-or-create`, whatever the configuration says."""
    gpu: str | None = None  # the GPU model to ask for instead of the configuration's own
    idle: int | None = None
    """`idle_duration` where the configuration says none: microseconds, -1 for off; None: leave it to the provider."""


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """What must exist at the provider before a task can run there: on some, a group of machines."""

    project: str
    name: str
    configuration: dict[str, object]  # in the provider's own words; no secrets in it


class Provider(ABC):
    """One place that runs tasks, as seen by one user in one project.

    Its methods may be called by several threads at once, except `poll`: one round is read at a time. A method that asks
    the provider raises ProviderUnreachable, ProviderRefused or ProviderError if the provider does not answer, refuses
    us, or answers with something unusable, ProjectNotFound if there is no such project or we are not a member, and
    RunNotFound if it does not know the run that is asked for.
    """

    name: str  # as registered: `local`
    source: str  # whose answers these are: `<name>/<project>`
    project: str  # whose runs these are at the provider
    nearby: bool = False  # it runs on this machine, so it can be polled several times a second

    @abstractmethod
    def poll(self, follow: Collection[str], *, since: int | None) -> Iterator[Poll]:
        """One round of questions, each answer given as soon as it is here; trouble is a failed `Poll`, no exception.

        The caller records each poll before it asks for the next.

        Args:
            follow: provider ids of runs that have not ended; the round covers each of them if it can.
            since: how far back a first contact reads history (microseconds, UTC); None: all of it.
        """

    @abstractmethod
    def submit(self, submission: Submission) -> Submitted:
        """Start the task.

        Raises:
            NameInUse: an active run has that name.
            TaskInvalid: the provider refuses the configuration.
        """

    @abstractmethod
    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """The runs of that name submitted at or after `since`, ended or not, newest first."""

    @abstractmethod
    def stop(self, provider_id: str, name: str, abort: bool) -> None:
        """Ask that this run end, gracefully or (`abort`) at once; a run that has already ended is left alone."""

    @abstractmethod
    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        """The run's output in order, piece by piece; with `follow`, until the run has ended."""

    # What follows has an answer that suits a provider without it.

    def expect_project(self) -> None:  # noqa: B027 - not every provider has projects
        """Check before recording that the project exists; a provider that does not answer raises nothing."""

    def names(self, name: str, run_id: str) -> tuple[str, ...]:
        """The names a run may be submitted under, in order of preference: its own first."""
        return alternatives(name, run_id)

    def holder(self, name: str) -> Named | None:
        """The run that a new one of that name would collide with, or replace in the provider's lists; None: none."""
        return None

    def is_same(self, submission: Submission, provider_id: str) -> bool:
        """Whether that run is in every field what this submission would be, and by the same user; False where unknown.

        For a run without a mark, of a call made before runs were marked.
        """
        return False

    def plan(self, submission: Submission, *, ahead: int = 0) -> Preparation | None:
        """What is to be made before this task can run; None where nothing is needed.

        Args:
            ahead: machines that other runs being submitted at this moment need, which the provider may not list yet.
        """
        return None

    def prepare(self, preparation: Preparation) -> bool:
        """Make it; True if it was there already.

        Raises:
            TaskInvalid: the provider refuses it.
        """
        return True

    def stop_vm(self, provider_id: str) -> None:
        """Ask that this machine end. Looks first that it is there and empty; one that is going or gone is left alone.

        Raises:
            VmInUse: a run is on it, or the provider refuses for now; nothing was done.
            VmNotFound: the provider knows no such machine.
        """
        raise VmNotFound(f"{self.name} has no machine {provider_id}")

    def close(self) -> None:  # noqa: B027 - not every provider has connections
        """Close connections; the runs go on."""
