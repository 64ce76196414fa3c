"""What the HTTP service is made of, as one value: made once, at the edge, and handed to every part."""

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
    """The provider that the settings name, as far as HTTP needs it: projections know no providers.

    Called from worker threads.
    """

    @property
    def provider(self) -> str: ...

    def project(self) -> str:
        """Whose runs these are at the provider; raises NotConfigured where the settings name none."""
        ...

    def complete(self, configuration: Mapping[str, object], *, run_id: str, where: str) -> Completed:
        """The task, valid and named, as `steno submit -f` would make it, without anything of this machine's.

        Args:
            run_id: what a name is made of where the configuration has none.
            where: what to call the configuration in a message.

        Raises:
            TaskInvalid: the provider would refuse it, or it takes something from this machine.
        """
        ...

    def logs(self, run: Run, *, follow: bool, clock: Clock) -> Iterator[bytes]:
        """The run's output in order, piece by piece; with `follow`, until it has ended.

        Args:
            clock: what it waits by; its `sleep` raises once nobody listens any more.

        Raises:
            RunNotFound, ProviderUnreachable, ProviderRefused, ProviderError: as they say.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """Everything that answers to HTTP stand on."""

    clock: Clock
    ids: Ids
    settings: Settings
    store: Store
    pool: Pool  # read models, now or as they were
    projector: Projector  # keeps them caught up
    feed: Feed  # the record as it grows, and the engine's own world at its head
    tokens: Tokens
    outside: Outside
    closing: ExitStack = field(default_factory=ExitStack)
    """What the parts hold open; whoever made the service closes it when nothing is served any more."""


class Writer:
    """Appends commands one after another: one thread with one open record, opened at the first command."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="steno-commands")
        self._journal: Journal | None = None
        service.closing.callback(self._close)

    async def do(self, work: Callable[[Journal], _T]) -> _T:
        """The result of `work`, called in the writer's thread after all earlier commands.

        Raises:
            RecordLocked, RecordNotWritable and what else opening a record raises.
        """

        def done() -> _T:
            if self._journal is None:
                store, clock = self._service.store, self._service.clock
                self._journal = Journal(Record.open(store, write=True, shapes=READINGS.shape, clock=clock))
            return work(self._journal)

        return await asyncio.get_running_loop().run_in_executor(self._thread, done)

    def _close(self) -> None:
        self._thread.submit(self._close_record).result()
        self._thread.shutdown()

    def _close_record(self) -> None:
        if self._journal is not None:
            self._journal.record.close()
