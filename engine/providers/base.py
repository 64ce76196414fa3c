"""The interface of a provider. The engine knows providers by it alone: one fold serves all of them."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import msgspec

from steno.engine.errors import ProviderError, VmNotFound
from steno.engine.state.run import Run
from steno.engine.state.samples import Sample
from steno.events.poll import Poll


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's answer when it took a task."""

    provider_id: str  # the provider's own id of the run; names can be used again, ids cannot
    name: str
    submitted_at: int | None = None  # or just before: microseconds, UTC, by the provider's clock; None: it gives none
    sent: str | None = None  # what it was handed in place of the task, without secret values; None: the task


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the provider has under a name."""

    provider_id: str
    mark: str | None  # `Submission.run_id` that it was submitted with; None: it had none
    ended: bool
    submitted_at: int | None = None  # microseconds, UTC, by our clock


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A complete task: nothing is read from the environment at the call."""

    run_id: str  # in every answer about the run: the proof that the run is ours
    name: str  # unique among active runs, so that one submission cannot run twice
    project: str
    configuration: dict[str, object]  # the task as JSON values; secrets in clear: in memory only
    base: str | None = None  # relative `files:` and `repos:` paths start here; None: the current folder
    slot: str | None = None  # the slot (one machine) it must go to; None: the provider chooses
    creation: str = "reuse-or-create"  # or `reuse`, whatever the configuration says
    gpu: str | None = None  # the GPU model to ask for instead of the configuration's own
    idle: int | None = None  # `idle_duration` unless configured, microseconds; -1: off, None: the provider's


class StopTarget(msgspec.Struct, frozen=True, kw_only=True):
    """A run to end, with the proof, at the call, that it is still that run: ids may come again."""

    provider_id: str
    name: str
    abort: bool = False  # at once, without time to clean up
    mark: str | None = None  # `Submission.run_id` of a run that Steno submitted; None: somebody else's
    submitted_at: int | None = None
    """The newest submission seen, microseconds UTC by the provider's clock; or the submission that was shown."""
    user: str | None = None  # whose run it is at the provider; None: ours


class Preparation(msgspec.Struct, frozen=True, kw_only=True):
    """A thing that must exist at the provider before a task can run there: on some, a group of machines."""

    project: str
    name: str
    configuration: dict[str, object]  # in the provider's own words; no secrets in it


class Offers(msgspec.Struct, frozen=True, kw_only=True):
    """The machines that a provider could start a task on."""

    count: int  # machines that it could make, or has
    reason: str = ""  # it refuses to plan the task, in its own words


class Way:
    """An open way to a port of a task: connect to (host, port) of this machine."""

    def __init__(self, host: str, port: int) -> None:
        self.host = host
        self.port = port

    @property
    def open(self) -> bool:
        """False: it broke; ask for another."""
        return True

    def close(self) -> None:
        """Give it up; idempotent."""


class Entrance(msgspec.Struct, frozen=True, kw_only=True):
    """How a person gets into a running task, and to a port of it."""

    address: str | None = None  # of the port; None: no port was named
    commands: tuple[str, ...] = ()  # to be started first, and left running; none: the address is open as it is
    inside: str | None = None  # the command for a shell in the task; None: there is none


class Provider(ABC):
    """A place that runs tasks, as seen by one user in one project. Several threads may call it, but only one polls.

    Methods that ask the provider raise ProviderUnreachable (no answer), ProviderRefused (our access is refused),
    ProviderError (an unusable answer), ProjectNotFound (no such project, or not ours) and RunNotFound (an unknown run).
    """

    name: str  # as registered: `local`
    source: str  # whose answers these are: `<name>/<project>`
    project: str  # whose runs these are at the provider
    nearby: bool = False  # it runs on this machine, so it can be polled several times a second
    keeper: str | None = None
    """The source whose recorder, while it stays, also acts here; None: this one has recorders of its own."""

    @abstractmethod
    def poll(self, follow: Mapping[str, int], *, since: int | None) -> Iterator[Poll]:
        """Ask one round of questions. It yields each answer at once, to be recorded; a failure is a failed `Poll`.

        `follow`: provider ids of runs that have not ended, and since when each is there (microseconds, UTC, by the
        provider's clock if known); the round covers them as far as possible. A first contact reads history back to
        `since` (microseconds, UTC); None: all of it.
        """

    @abstractmethod
    def submit(self, submission: Submission) -> Submitted:
        """Start the task. Raises NameInUse if an active run has that name, TaskInvalid if the provider refuses it."""

    @abstractmethod
    def find(self, name: str, since: int) -> tuple[Named, ...]:
        """The runs of that name submitted at or after `since`, ended or not, newest first."""

    @abstractmethod
    def stop(self, stop: StopTarget) -> None:
        """Ask that this run end; does nothing to a run that has ended. Raises Conflict, and ends nothing, where another
        run has its id now.
        """

    @abstractmethod
    def logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[bytes]:
        """The run's output in order, piece by piece; with `follow`, until the run has ended."""

    # Below: defaults for a provider without the feature.

    def dated_logs(self, provider_id: str, name: str, *, follow: bool) -> Iterator[tuple[int | None, bytes]]:
        """As `logs`, each piece with the time at which it was written (microseconds UTC); None: not said."""
        return ((None, piece) for piece in self.logs(provider_id, name, follow=follow))

    def samples(self, provider_id: str, name: str, *, since: int) -> tuple[str, list[Sample]] | None:
        """The name of the tool that measured, and the samples of a run's devices after `since` (microseconds UTC) that
        are still there; also of a run that has ended. None: nobody measures.
        """
        return None

    def unhurried_logs(self, provider_id: str, name: str) -> Iterator[bytes]:
        """As `logs` with `follow`, for a reader that can wait: with few questions a minute."""
        return self.logs(provider_id, name, follow=True)

    def expect_project(self) -> None:  # noqa: B027 - not every provider has projects
        """Check before recording that the project exists; raises nothing if the provider does not answer."""

    def holder(self, name: str) -> Named | None:
        """The run that a new one of that name would collide with, or replace in the provider's lists."""
        return None

    def withdraw(self, run_id: str) -> str | None:
        """Let a submission of this run that may be under way start nothing; the run's id if it is there already."""
        return None

    def is_same(self, submission: Submission, provider_id: str) -> bool:
        """True if that run, which has no mark, equals this submission and is by the same user; False where unknown."""
        return False

    def plan(self, submission: Submission, *, ahead: int = 0) -> Preparation | None:
        """The thing to make before this task can run. `ahead`: machines of other submissions, not listed yet."""
        return None

    def offers(self, submission: Submission) -> Offers | None:
        """The offers for this task, without starting anything; None: the provider gives no plan."""
        return None

    def prepare(self, preparation: Preparation) -> bool:
        """Make it; True if it was there already. Raises TaskInvalid if the provider refuses it."""
        return True

    def stop_vm(self, provider_id: str) -> None:
        """Ask that this machine end, if it is empty; does nothing to a machine that is ending or gone.

        Raises VmInUse if a run is on it or the provider refuses for now, VmNotFound if the provider does not know it.
        """
        raise VmNotFound(f"{self.name} has no machine {provider_id}")

    def reach(self, provider_id: str, port: int) -> Way:
        """A way to a port on which a running task listens, at its own 127.0.0.1."""
        raise ProviderError(f"{self.name} has no way to a port of its tasks")

    def entrance(self, provider_id: str, name: str, port: int | None) -> Entrance:
        """The way for a person. Raises ProviderError: there is none, and why."""
        raise ProviderError(f"{self.name} has no way into its tasks")

    def close(self) -> None:  # noqa: B027 - not every provider has connections
        """Close connections; the runs go on."""


def owns(provider: Provider, run: Run) -> bool:
    """True if it is a run of this project at this provider."""
    return run.provider == provider.name and run.project in (None, provider.project)
