"""The interface of a provider package. Its entry point in the group `steno.providers` names one `ProviderKind`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

import msgspec

from steno.engine.providers.task import Completed, Draft, complete_plain
from steno.events.errors import StenoError

if TYPE_CHECKING:
    from collections.abc import Callable

    from steno.engine.providers.base import Provider
    from steno.engine.rules.sets import RuleSet
    from steno.engine.settings.settings import Settings
    from steno.engine.settings.values import Block
    from steno.engine.state.reading import Reading
    from steno.events.clock import Clock, Ids
    from steno.events.poll import Poll
    from steno.events.store.store import Store


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """An option of `steno submit` that sets a field of the task."""

    flag: str  # `--backend`
    field: str  # the field of the task's configuration
    help: str
    metavar: str | None = None
    multiple: bool = False
    choices: tuple[str, ...] = ()  # empty: any text


class KernelRights(StrEnum):
    """Rights of a kernel, code of strangers, where a provider runs it."""

    ISOLATED = "isolated"  # it has a container of its own
    AS_USER = "as_user"  # what the user may: only their own code is to be submitted
    NONE = "none"  # no kernel may be submitted


class CheckState(StrEnum):
    OK = "ok"
    WARNING = "warning"  # a task can run, but look at this
    FAILED = "failed"  # a task cannot run
    SKIPPED = "skipped"  # not checked, because of a failure above


class Check(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    state: CheckState = CheckState.OK
    message: str  # one line: the state, and what to do if it is not well
    error: StenoError | None = None  # of a failure; gives the exit code


class TaskProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Fields for tasks that leave them open, from a file of the provider's own tool."""

    name: str
    file: str
    fields: Mapping[str, object]


def with_profile(task: Mapping[str, object], profile: TaskProfile) -> tuple[dict[str, object], str]:
    """The task with the profile's fields where it has none of its own, and a line that says which."""
    taken = {key: value for key, value in profile.fields.items() if task.get(key) is None}
    own = [key for key in profile.fields if key not in taken]
    fields = ", ".join(
        f"{key}: {value if isinstance(value, str) else msgspec.json.encode(value).decode()}"
        for key, value in taken.items()
    )
    kept = f"; the task has its own {', '.join(own)}" if own else ""
    return {**task, **taken}, f"profile {profile.name} of {profile.file}: {fields or 'nothing taken'}{kept}"


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """A task that shows a provider works, and what it can cost."""

    file: Path  # the task file
    hourly: int  # micro-dollars an hour of the dearest machine it may get
    run: int  # longest time of the task, microseconds
    idle: int  # how long its machine may idle afterwards, microseconds
    worst_case: int  # micro-dollars: start, run, idling and the end of the machine


class Checkup(msgspec.Struct, frozen=True, kw_only=True):
    """All checks of one provider, in order."""

    checks: tuple[Check, ...] = ()
    problem: StenoError | None = None  # why the provider cannot be asked at all
    absent: bool = False  # neither configured nor selected by the settings
    details: Mapping[str, object] = {}  # further keys of `--json`
    note: str | None = None  # text below the checks
    trial: Trial | None = None  # what `--provision` can run; None: nothing, or no answer from the provider

    @property
    def failed(self) -> Check | None:
        return next((check for check in self.checks if check.state is CheckState.FAILED), None)


class Host(Protocol):
    """The command line, as a provider's own commands use it."""

    @property
    def settings(self) -> Settings:
        """Every setting."""

    @property
    def clock(self) -> Clock:
        """The clock of this process."""

    @property
    def ids(self) -> Ids:
        """Generates new ids."""

    def print(self, text: str, value: object, /) -> None:
        """Print the text; with `--json`, `value` as JSON."""

    def table(self, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
        """Rows in columns, as in every list of Steno."""

    def append(self, polls: Sequence[Poll]) -> None:
        """Write answers of the provider into the record, which is made if it does not exist."""

    def answers(self, path: str) -> Sequence[Poll]:
        """The answers in the record whose path begins with `path`, oldest first."""

    def waits(self) -> Mapping[str, Sequence[int]]:
        """How long runs of the provider waited for their machine, by its GPU: microseconds, of the last 30 days."""

    def end(self, code: int) -> None:
        """End the command with this exit code."""

    def race(self, tasks: Sequence[Completed], *, wait: bool, give_up_after: int | None) -> None:
        """Request runs of which the first to run wins; with `wait`, follow that one to its end and print its output.

        `give_up_after`: microseconds after which all are stopped if none runs; None: never.
        """


class ProviderKind(ABC):
    """A kind of provider. The command line imports it at its start, so heavy imports belong inside its methods."""

    name: ClassVar[str]  # as in `--provider NAME`, `RunRequested.provider` and the names of its sources
    summary: ClassVar[str]  # where its tasks run, in a few words
    settings: ClassVar[Block]  # `Block(provider=name)` where it has none
    options: ClassVar[tuple[Option, ...]] = ()  # of `steno submit`, beside the common options
    repeats_names: ClassVar[bool] = False  # several active runs may have one name
    delete_run: ClassVar[str] = ""  # its command that deletes the finished run `{name}`, for messages
    delete_machine: ClassVar[str] = ""  # its command that deletes the machines of the fleet `{fleet}`
    ends_idle: ClassVar[bool] = False  # it ends idle machines itself, by a timer that cannot be moved
    has_trial: ClassVar[bool] = False  # for `steno doctor --provision`: `checkup` gives a `Trial`
    commands: ClassVar[str] = ""  # `module:attribute` of a click group `steno <name> …`; gets a `Host`
    kernels: ClassVar[KernelRights] = KernelRights.NONE  # what a kernel may do there
    task_files: ClassVar[tuple[str, ...]] = ()  # its own task files, looked for in the current folder

    def no_kernels(self) -> str | None:
        """Why no kernel may be submitted; None: kernels are welcome."""
        if self.kernels is not KernelRights.NONE:
            return None
        return f"the provider {self.name} cannot run kernels: its tasks have no containers; use another provider"

    @abstractmethod
    def reading(self) -> Reading:
        """How its answers are read."""

    def rule_sets(self) -> tuple[RuleSet, ...]:
        """Rule sets that judge this provider's own words, beside `current`."""
        return ()

    @abstractmethod
    def open(self, settings: Settings, *, clock: Clock, ids: Ids, record: Store | None) -> Provider:
        """The provider. `record`, if any, keeps state beside it. NotConfigured, ProjectNotFound: a bad setting."""

    @abstractmethod
    def project(self, settings: Settings) -> str:
        """Whose runs these are, without asking the provider. NotConfigured, ProjectNotFound: a missing setting."""

    def complete(self, draft: Draft, settings: Settings) -> dict[str, object]:
        """The task for this provider: valid, with every variable's value. Raises TaskInvalid if it would be refused."""
        return complete_plain(draft)

    def check(self, draft: Draft) -> dict[str, object]:
        """The task in its own language, for a provider that takes task files of this form; see `complete`."""
        return complete_plain(draft)

    def profile(self, name: str | None, environ: Mapping[str, str]) -> TaskProfile | None:
        """The profile of that name, or the default one, of its own tool in this folder; None: there is none."""
        return None

    def kept_here(self, record: Store) -> Callable[[str], bool] | None:
        """A predicate on ids of machines: it is, or was, of this host. None: the provider runs nothing here.

        What runs here is polled before the record is shown: that needs no network.
        """
        return None

    def machine_size(self) -> Mapping[str, float]:
        """The processors, memory and disk (`cpu`, `memory`, `disk`; GB of 1024 MiB) of its only machine; empty: it has
        machines to choose from.
        """
        return {}

    def holding(self, program: str, env: Mapping[str, str], gpu: str | None) -> dict[str, object] | None:
        """The task that keeps a machine with this GPU (None: without) and runs a Python program, as `-c` takes it, with
        these variables, beside a Docker engine; `Provider.reach` leads to its ports. None: it has no such task.
        """
        return None

    def warm_up(self) -> None:  # noqa: B027 - most have nothing slow
        """Import what the first `complete` would wait for."""

    def checkup(self, settings: Settings, *, clock: Clock, ids: Ids, wanted: bool, trial: bool = False) -> Checkup:
        """The checks of `steno doctor`. `wanted`: the settings name this provider; `trial`: judge its trial's task."""
        return Checkup(checks=(Check(name=self.name, message=self.summary),) if wanted else ())
