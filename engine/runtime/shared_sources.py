"""Several sources in one process, shared with the other recorders of the record that name the same sources."""

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from itertools import count

from steno.engine.control.controller import Round, TraceSink
from steno.engine.control.effects import GLANCE, Executor
from steno.engine.control.poll_interval import Pace
from steno.engine.control.round_robin import RoundRobin
from steno.engine.live.live_world import LiveWorld, Progress
from steno.engine.providers.base import Provider
from steno.engine.runtime.controllers import Surroundings, controller_of
from steno.engine.runtime.record_loop import DaemonLog, run_until_stopped, shrink
from steno.events.clock import SECOND
from steno.events.errors import RecordLocked, RecordPaused, RecordUnreachable
from steno.events.installation import version
from steno.events.store.record import Record
from steno.events.store.store import SEATS, Lease, this_worker

_log = logging.getLogger("steno.record")
_LOOK = SECOND // 2  # microseconds between looks at who lives and holds what
_RETRY = 2 * SECOND


class SharedSources:
    """Records its share of some sources, in the caller's thread and on one world, until it is stopped."""

    def __init__(
        self,
        app: Surroundings,
        record: Record,
        live: LiveWorld,
        names: Sequence[str],
        open_source: Callable[[str], tuple[Surroundings, Provider]],
        *,
        since: int | None = None,
        pace: Pace | None = None,
        trace: TraceSink | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`names`: those that `open_source` opens; the rest as in `watching`. Raises what opening a provider does."""
        self._app = app
        self._record = record
        self._live = live
        self._opened = ExitStack()
        self._providers: dict[str, tuple[Surroundings, Provider]] = {}
        self._turns: dict[str, RoundRobin] = {}
        self._seat: Lease | None = None
        self._looked = 0
        self._woken = threading.Event()
        live.nudge = self._woken.set
        self._controller_of = partial(controller_of, since=since, pace=pace, trace=trace, wake=self._woken.set)
        with ExitStack() as opened:
            for name in names:
                own, provider = open_source(name)
                opened.callback(provider.close)
                provider.expect_project()
                self._providers[provider.source] = own, provider
            live.open(record)
            live.catch_up(progress)
            self._opened = opened.pop_all()
        digest = hashlib.sha256("\n".join(sorted(self._providers)).encode()).hexdigest()
        self._seats = f"{SEATS}{digest[:8]}/"  # equal for all recorders that name the same sources

    def record_forever(self, *checks: Callable[[], None]) -> None:
        """As `steno.engine.runtime.record_loop.record_forever`, for its share of the sources."""
        shrink(self._record)
        run_until_stopped(self._rounds, checks, self._stop)

    def close(self) -> None:
        """Free what is still held, and close the providers."""
        with self._opened:
            self._stop("the process ends")

    def _rounds(self, checks: Sequence[Callable[[], None]]) -> None:
        _log.info("sharing %s in %s; Ctrl-C stops", ", ".join(sorted(self._providers)), self._record.store)
        while True:
            for check in checks:
                check()
            self._step()

    def _stop(self, why: str) -> None:
        for turns in self._turns.values():
            turns.end(why)
        if self._seat is not None:
            self._seat.release()

    def _step(self) -> None:
        self._woken.clear()
        try:
            self._live.catch_up()
            now = self._app.clock.now()
            if not self._looked <= now < self._looked + _LOOK:
                self._look()
                self._looked = now
            for turns in tuple(self._turns.values()):
                turns.step()
        except (RecordLocked, RecordPaused, RecordUnreachable) as error:
            if isinstance(error, RecordPaused) and not self._looked:
                raise
            _log.error("%s", error)
            if isinstance(error, RecordPaused | RecordUnreachable):
                self._app.clock.sleep(_RETRY)
            with suppress(RecordLocked, RecordPaused, RecordUnreachable):  # the next step meets them again
                for turns in self._turns.values():
                    turns.expect_lease()
        self._woken.wait(GLANCE / SECOND)

    def _look(self) -> None:
        """See who lives and who holds what; take and hand over what follows."""
        store, me = self._record.store, this_worker()
        if self._seat is not None and not self._seat.valid:
            self._seat.release()
            self._seat = None
        if self._seat is None:
            taken = (store.lease(f"{self._seats}{number}") for number in count(1))
            self._seat = next(seat for seat in taken if seat is not None)
        leases = [lease for lease in store.leases() if lease.held]
        workers = {me, *(lease.worker for lease in leases if lease.name.startswith(self._seats))}
        holders = {lease.name: lease.worker for lease in leases}
        shares = spread(self._providers.keys(), holders, workers)
        for source, worker in shares.items():
            turns = self._turns.get(source)
            if worker == me and turns is None:
                self._turns[source] = self._begin(source)
            elif worker == me and turns is not None:
                turns.stay()
            elif turns is not None and not turns.leaving:
                turns.leave()
                _log.info("%s goes to another recorder", source)

    def _begin(self, source: str) -> RoundRobin:
        app, provider = self._providers[source]
        controller = self._controller_of(app, self._live, provider, executor=Executor(self._woken.set))
        controller.stays = True
        log = DaemonLog(controller)
        if not self._turns:  # each change is logged once, whoever records its source
            self._live.subscribe(lambda news: log.round(Round(changes=news.changes, pause=0)))

        def after(outcome: Round, held: bool) -> None:
            if controller.holds and not held:
                _log.info("recording %s", source)
                controller.started(f"steno {version()}")
            log.round(replace(outcome, changes=()))

        return RoundRobin(controller, after)


def spread(sources: Collection[str], holders: Mapping[str, str], workers: Collection[str]) -> dict[str, str]:
    """The worker of each source: no worker has two sources more than another, and no more sources move than that needs.

    Args:
        sources: those to record.
        holders: source → the worker that holds its lease now; others than `workers` do not count.
        workers: the recorders that live; empty: no source has a worker.
    """
    held: dict[str, list[str]] = {worker: [] for worker in sorted(workers)}
    for source in sorted(sources):
        if holders.get(source) in held:
            held[holders[source]].append(source)
    least, more = divmod(len(sources), max(1, len(held)))
    order = sorted(held, key=lambda name: (-len(held[name]), name))  # who has most keeps a larger share
    room = {worker: least + (place < more) for place, worker in enumerate(order)}
    shares = {source: worker for worker in order for source in held[worker][: room[worker]]}
    free = iter(sorted(set(sources) - shares.keys()))
    for worker in order:
        for _ in range(room[worker] - len(held[worker])):
            shares[next(free)] = worker
    return shares
