"""Several sources in one process, shared with the other recorders of the record that name the same ones."""

import hashlib
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import count

from cli.wiring.app import App
from cli.wiring.errors import INTERRUPTED
from cli.wiring.record_loop import DaemonLog, PartFailed, shrink
from cli.wiring.recorder import recorder_of
from cli.wiring.signals import Terminated, ending, stoppable
from engine.act.executor import GLANCE, Executor
from engine.live.live_world import LiveWorld, Progress
from engine.providers.base import Provider
from engine.recorder.interval import Pace
from engine.recorder.recorder import Round, TraceSink
from engine.recorder.spread import spread
from engine.recorder.turns import Turns
from events.clock import SECOND
from events.errors import RecordLocked, RecordPaused, RecordUnreachable
from events.installation import version
from events.store.holder import SEATS, this_worker
from events.store.record import Record
from events.store.store import Lease

_log = logging.getLogger("steno.record")
_LOOK = SECOND // 2  # microseconds between looks at who lives and holds what
_RETRY = 2 * SECOND


class SharedSources:
    """Records its share of some sources, in the caller's thread and on one world, until it is stopped."""

    def __init__(
        self,
        app: App,
        record: Record,
        live: LiveWorld,
        names: Sequence[str],
        *,
        since: int | None = None,
        pace: Pace | None = None,
        trace: TraceSink | None = None,
        progress: Progress | None = None,
    ) -> None:
        """`names`: `PROVIDER` or `PROVIDER/PROJECT`; the rest as in `watching`. Raises what opening a provider does."""
        self._app = app
        self._record = record
        self._live = live
        self._since, self._pace, self._trace = since, pace, trace
        self._opened = ExitStack()
        self._providers: dict[str, tuple[App, Provider]] = {}
        self._turns: dict[str, Turns] = {}
        self._seat: Lease | None = None
        self._looked = 0
        self._woken = threading.Event()
        live.nudge = self._woken.set
        with ExitStack() as opened:
            for name in names:
                own, provider = _opened(app, record, name)
                opened.callback(provider.close)
                provider.expect_project()
                self._providers[provider.source] = own, provider
            live.open(record)
            live.catch_up(progress)
            self._opened = opened.pop_all()
        digest = hashlib.sha256("\n".join(sorted(self._providers)).encode()).hexdigest()
        self._seats = f"{SEATS}{digest[:8]}/"  # equal for all recorders that name the same sources

    def record_forever(self, *checks: Callable[[], None]) -> None:
        """As `cli.wiring.record_loop.record_forever`, for its share of the sources."""
        shrink(self._record)
        with stoppable(signal.SIGTERM, Terminated) as ended, stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            try:
                sources = ", ".join(sorted(self._providers))
                _log.info("sharing %s in %s; Ctrl-C stops", sources, self._record.store)
                while True:
                    for check in (ended, interrupted, *checks):
                        check()
                    self._step()
            except Terminated:
                with ending(INTERRUPTED):
                    _log.info("stopped by SIGTERM")
                    self._stop("SIGTERM")
            except (KeyboardInterrupt, PartFailed) as error:
                self._stop(str(error) or "interrupted")
                raise

    def close(self) -> None:
        """Free what is still held, and close the providers."""
        with self._opened:
            self._stop("the process ends")

    def _stop(self, why: str) -> None:
        for one in self._turns.values():
            one.end(why)
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
            for one in tuple(self._turns.values()):
                one.step()
        except (RecordLocked, RecordPaused, RecordUnreachable) as error:
            if isinstance(error, RecordPaused) and not self._looked:
                raise
            _log.error("%s", error)
            if isinstance(error, RecordPaused | RecordUnreachable):
                self._app.clock.sleep(_RETRY)
            with suppress(RecordLocked, RecordPaused, RecordUnreachable):  # the next step meets them again
                for one in self._turns.values():
                    one.expect_lease()
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
        found = [one for one in store.leases() if one.held]
        workers = {me, *(one.worker for one in found if one.name.startswith(self._seats))}
        holders = {one.name: one.worker for one in found}
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

    def _begin(self, source: str) -> Turns:
        app, provider = self._providers[source]
        recorder = recorder_of(
            app,
            self._live,
            provider,
            since=self._since,
            pace=self._pace,
            trace=self._trace,
            executor=Executor(self._woken.set),
            wake=self._woken.set,
        )
        recorder.stays = True
        said = DaemonLog(recorder)
        if not self._turns:  # each change is logged once, whoever records its source
            self._live.subscribe(lambda found: said.round(Round(changes=found.changes, pause=0)))

        def after(found: Round, held: bool) -> None:
            if recorder.holds and not held:
                _log.info("recording %s", source)
                recorder.started(f"steno {version()}")
            said.round(replace(found, changes=()))

        return Turns(recorder, after)


def _opened(app: App, record: Record, name: str) -> tuple[App, Provider]:
    """The provider of a source, and the app with its settings."""
    provider, _, project = name.partition("/")
    own = app.copied(app.clock)
    own.set_flag("provider", provider)
    if project:
        own.set_flag("project", project)
    return own, own.provider(provider, record.store)
