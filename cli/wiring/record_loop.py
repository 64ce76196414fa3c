"""The loop of recorder and controller: rounds until somebody says stop, with a line in the log for whatever changes."""

from __future__ import annotations

import logging
import signal
from importlib.metadata import version
from typing import TYPE_CHECKING

from cli.wiring.daemon_log import DaemonLog
from cli.wiring.errors import INTERRUPTED
from cli.wiring.signals import ending, stoppable
from engine.act.executor import GLANCE
from events.clock import SECOND
from events.errors import RecordLocked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine.providers.base import Provider
    from engine.recorder.recorder import Recorder
    from engine.recorder.watch import Watch
    from events.clock import Clock
    from events.store.record import Record

_log = logging.getLogger("steno.record")
_RETRY = 2 * SECOND


class Terminated(BaseException):
    """SIGTERM: stop in good order. No `except Exception` on the way takes it for a failure of its own."""


class PartFailed(RuntimeError):
    """What runs beside the recorder in this process ended by itself."""


def record_forever(
    record: Record,
    watch: Watch,
    recorder: Recorder,
    provider: Provider,
    clock: Clock,
    *checks: Callable[[], None],
) -> None:
    """Poll, append, fold, decide and act, until SIGTERM (returns) or Ctrl-C (KeyboardInterrupt); trouble is logged, not
    raised.

    Args:
        checks: called between looks; a `PartFailed` of theirs ends the recording in order.

    Raises:
        PartFailed: as a check says.
        RecordNotWritable, RecordDamaged: nothing more can be recorded.
        KeyboardInterrupt: Ctrl-C.
    """
    recorder.stays = True
    with stoppable(signal.SIGTERM, Terminated) as ended, stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
        try:
            _log.info("recording %s into %s; Ctrl-C stops", provider.source, record.store)
            _rounds(record, watch, recorder, provider, clock, (ended, interrupted, *checks))
        except Terminated:
            with ending(INTERRUPTED):
                _log.info("stopped by SIGTERM")
                _stopped(watch, recorder, "SIGTERM")
        except KeyboardInterrupt:
            _stopped(watch, recorder, "interrupted")
            raise
        except PartFailed as error:
            _stopped(watch, recorder, str(error))
            raise


def _rounds(
    record: Record,
    watch: Watch,
    recorder: Recorder,
    provider: Provider,
    clock: Clock,
    checks: Sequence[Callable[[], None]],
) -> None:
    said = DaemonLog(provider.source)
    held: bool | None = None
    while True:
        for check in checks:
            check()
        try:
            seen = recorder.journal.ledger().asked  # before: what somebody asks for during the round is not slept over
            found = watch.round()
        except RecordLocked as error:
            _log.error("%s", error)
            clock.sleep(_RETRY)
            continue
        if watch.holds != held:
            held = watch.holds
            if held:
                recorder.started(f"steno {version('steno')}")
            else:
                process = record.store.lease_holder(provider.source)
                _log.warning("process %s records %s already; standing by", process, provider.source)
        said.round(found, watch, recorder, clock.now())
        _wait(recorder, clock, found.pause, seen, checks)


def _stopped(watch: Watch, recorder: Recorder, why: str) -> None:
    if watch.holds:
        recorder.stopped(why)


def _wait(recorder: Recorder, clock: Clock, pause: int, seen: int, checks: Sequence[Callable[[], None]]) -> None:
    """Sleep until the next round is due or somebody has asked for something since `seen`."""
    left, before = pause, clock.now()
    while left > 0 and recorder.journal.ledger().asked == seen:
        recorder.effects.attend(min(GLANCE, left))
        for check in checks:
            check()
        now = clock.now()
        left, before = left - max(0, now - before), now  # a clock that is set back makes no pause longer
