"""The loop of recorder and controller: rounds until somebody says stop, with a line in the log for whatever changes."""

import logging
import signal
from collections.abc import Callable, Sequence
from importlib.metadata import version

from cli.wiring.daemon_log import DaemonLog
from cli.wiring.errors import INTERRUPTED
from cli.wiring.signals import Terminated, ending, stoppable
from engine.act.executor import GLANCE
from engine.recorder.recorder import Recorder
from events.clock import SECOND
from events.errors import RecordLocked

_log = logging.getLogger("steno.record")
_RETRY = 2 * SECOND


class PartFailed(RuntimeError):
    """What runs beside the recorder in this process ended by itself."""


def record_forever(recorder: Recorder, *checks: Callable[[], None]) -> None:
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
            _log.info("recording %s into %s; Ctrl-C stops", recorder.source, recorder.live.record.store)
            _rounds(recorder, (ended, interrupted, *checks))
        except Terminated:
            with ending(INTERRUPTED):
                _log.info("stopped by SIGTERM")
                _stopped(recorder, "SIGTERM")
        except (KeyboardInterrupt, PartFailed) as error:
            _stopped(recorder, str(error) or "interrupted")
            raise


def _stopped(recorder: Recorder, why: str) -> None:
    if recorder.holds:
        recorder.stopped(why)


def _rounds(recorder: Recorder, checks: Sequence[Callable[[], None]]) -> None:
    said, store = DaemonLog(recorder), recorder.live.record.store
    held: bool | None = None
    while True:
        for check in checks:
            check()
        try:
            seen = recorder.journal.ledger().asked  # before: what somebody asks for during the round is not slept over
            found = recorder.watch()
        except RecordLocked as error:
            _log.error("%s", error)
            recorder.clock.sleep(_RETRY)
            continue
        if recorder.holds != held:
            held = recorder.holds
            if held:
                recorder.started(f"steno {version('steno')}")
            else:
                process = store.lease_holder(recorder.source)
                _log.warning("process %s records %s already; standing by", process, recorder.source)
        said.round(found)
        _wait(recorder, found.pause, seen, checks)


def _wait(recorder: Recorder, pause: int, seen: int, checks: Sequence[Callable[[], None]]) -> None:
    """Sleep until the next round is due or somebody has asked for something since `seen`."""
    left, before = pause, recorder.clock.now()
    while left > 0 and recorder.journal.ledger().asked == seen:
        recorder.effects.attend(min(GLANCE, left))
        for check in checks:
            check()
        now = recorder.clock.now()
        left, before = left - max(0, now - before), now  # a clock that is set back makes no pause longer
