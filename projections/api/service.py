"""The parts of the HTTP service as one value, created once and passed everywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from steno.engine.live.journal import Journal
from steno.engine.providers.registry import READINGS, kind
from steno.events.store.record import Record
from steno.projections.answers.judged_kernel import JudgedKernels
from steno.projections.answers.output_cause import OutputCauses

if TYPE_CHECKING:
    from steno.engine.providers.base import Provider
    from steno.engine.settings.settings import Settings
    from steno.engine.state.run import Run
    from steno.engine.state.world import World
    from steno.events.clock import Clock, Ids
    from steno.events.store.store import Store
    from steno.projections.api.feed.feed import Feed
    from steno.projections.api.tokens import Tokens
    from steno.projections.read_models.projector import Projector
    from steno.projections.read_models.reader_pool import Look, Pool

_T = TypeVar("_T")


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
    provider: str  # where runs go
    kernels: str  # where kernels go
    opened: Callable[[Run, Clock], Provider]  # the provider of a run, in the run's own project
    output_causes: OutputCauses
    judged_kernels: JudgedKernels = field(default_factory=JudgedKernels)
    closing: ExitStack = field(default_factory=ExitStack)  # closed by its creator after the server ended

    @contextmanager
    def newest(self, also: Callable[[Look], _T]) -> Iterator[tuple[World, _T]]:
        """The world at the head of the record, as requests are checked with, and what else they need there."""
        with self.pool.latest() as look:
            yield look.view.state, also(look)

    @property
    def project(self) -> str:
        """The provider's project of these runs; raises `NotConfigured` if the settings name none."""
        return kind(self.provider).project(self.settings)


class Writer:
    """Appends commands in order: one thread with one record, opened at the first command."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="steno-commands")
        self._journal: Journal | None = None
        service.closing.callback(self._close)

    async def do(self, work: Callable[[Journal], _T]) -> _T:
        """The result of `work`, run in the writer's thread after earlier commands; the read models follow soon. Raises
        as opening a record does, for example `RecordLocked` or `RecordNotWritable`.
        """

        def done() -> _T:
            if self._journal is None:
                store, clock = self._service.store, self._service.clock
                self._journal = Journal(Record.open(store, write=True, shapes=READINGS.shape, clock=clock))
            if self._service.feed.live.head is not None:
                self._journal.record.expect(self._service.feed.live.head)
            return work(self._journal)

        result = await asyncio.get_running_loop().run_in_executor(self._thread, done)
        self._service.projector.hurry()
        return result

    def _close(self) -> None:
        self._thread.submit(self._close_record).result()
        self._thread.shutdown()

    def _close_record(self) -> None:
        if self._journal is not None:
            self._journal.record.close()
