"""The parts of the HTTP service as one value, created once and passed everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, TypeVar

from engine.live.journal import Journal
from engine.providers.readings import READINGS
from events.store.record import Record
from projections.models.judged_kernel import JudgedKernels

if TYPE_CHECKING:
    from engine.fold.run import Run
    from engine.providers.task import Completed
    from engine.settings.settings import Settings
    from events.clock import Clock, Ids
    from events.store.store import Store
    from projections.api.feed.feed import Feed
    from projections.api.tokens import Tokens
    from projections.models.projector import Projector
    from projections.models.reader_pool import Pool

_T = TypeVar("_T")


class Outside(Protocol):
    """The configured provider as HTTP needs it, since projections know no providers. Called from worker threads."""

    @property
    def provider(self) -> str: ...

    def project(self) -> str:
        """The provider's project of these runs; raises `NotConfigured` if the settings name none."""
        ...

    @property
    def isolates_kernels(self) -> bool:
        """Whether a kernel has a container; where it has none, it runs as the service's user."""
        ...

    def complete(
        self,
        configuration: Mapping[str, object],
        *,
        run_id: str,
        where: str,
        stem: str | None = None,
        fallback: tuple[str, ...] = (),
        sizes: Mapping[str, object] | None = None,
    ) -> Completed:
        """The valid, named task, as `steno submit -f` makes it, without values of this machine. `where` names the
        configuration in messages; `stem` begins a generated name; `sizes`: those that change a recorded task. Raises
        `TaskInvalid` if the provider would refuse it, or it needs something from this machine.
        """
        ...

    def logs(self, run: Run, *, follow: bool, clock: Clock) -> Iterator[bytes]:
        """The run's output in order; with `follow`, until it ended. `clock.sleep` raises once the client left. Raises
        `RunNotFound`, `ProviderUnreachable`, `ProviderRefused` or `ProviderError`.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """The shared parts of all request handlers."""

    clock: Clock
    ids: Ids
    settings: Settings
    store: Store
    pool: Pool  # read models, now or as they were
    projector: Projector  # keeps them caught up
    feed: Feed  # the record as it grows, and the engine's own world at its head
    tokens: Tokens
    outside: Outside
    kernels: Outside  # where kernels go
    judged_kernels: JudgedKernels = field(default_factory=JudgedKernels)
    closing: ExitStack = field(default_factory=ExitStack)  # closed by its creator after the server ended


class Writer:
    """Appends commands in order: one thread with one record, opened at the first command."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="steno-commands")
        self._journal: Journal | None = None
        service.closing.callback(self._close)

    async def do(self, work: Callable[[Journal], _T]) -> _T:
        """The result of `work`, run in the writer's thread after earlier commands; raises as opening a record does, for
        example `RecordLocked` or `RecordNotWritable`.
        """

        def done() -> _T:
            if self._journal is None:
                store, clock = self._service.store, self._service.clock
                self._journal = Journal(Record.open(store, write=True, shapes=READINGS.shape, clock=clock))
            if self._service.feed.live.head is not None:
                self._journal.record.expect(self._service.feed.live.head)
            return work(self._journal)

        return await asyncio.get_running_loop().run_in_executor(self._thread, done)

    def _close(self) -> None:
        self._thread.submit(self._close_record).result()
        self._thread.shutdown()

    def _close_record(self) -> None:
        if self._journal is not None:
            self._journal.record.close()
