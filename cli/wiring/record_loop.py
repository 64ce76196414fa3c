"""The loop of recorder and controller: rounds until stopped, with a log line for each change."""

import ctypes
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import assert_never

from cli.render import words
from cli.wiring.errors import INTERRUPTED
from cli.wiring.signals import Terminated, ending, stoppable
from engine.act.executor import GLANCE
from engine.decide.controller import Decision
from engine.decide.source_view import run_name
from engine.fold.change import Anomaly, Blind, Heard, Moved, Transition, VmMoved, VmStep
from engine.fold.world_codec import WorldState
from engine.notify.messages import budget_text
from engine.recorder.recorder import Recorder, Round
from engine.states import Reason, VmReason
from events import types
from events.clock import SECOND
from events.errors import LeaseLost, RecordLocked, RecordPaused, RecordUnreachable
from events.installation import version
from events.store.record import Record

_log = logging.getLogger("steno.record")
_RETRY = 2 * SECOND


class PartFailed(RuntimeError):
    """What runs beside the recorder in this process ended by itself."""


def record_forever(recorder: Recorder, *checks: Callable[[], None]) -> None:
    """Poll, append, fold, decide and act until SIGTERM (returns) or Ctrl-C (KeyboardInterrupt); other errors are
    logged. `checks` run between rounds; their `PartFailed` ends the recording in order. Raises `RecordNotWritable` and
    `RecordDamaged` if nothing more can be recorded; a database that is full or read-only is waited for after the first
    round.
    """
    recorder.stays = True
    recorder.live.nudge = recorder.effects.wake
    shrink(recorder.live.record)
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


def shrink(record: Record) -> None:
    """Give back the memory of the first fold, which has read all of the record."""
    record.shrink()
    with suppress(AttributeError, OSError):  # glibc's own: it would keep what is free, some MB, for itself
        ctypes.CDLL(None).malloc_trim(0)


def _stopped(recorder: Recorder, why: str) -> None:
    if recorder.holds:
        with suppress(LeaseLost):  # another process acts by now, which this one did not notice yet
            recorder.stopped(why)


def _rounds(recorder: Recorder, checks: Sequence[Callable[[], None]]) -> None:
    said, store = DaemonLog(recorder), recorder.live.record.store
    held: bool | None = None
    begun = False
    while True:
        for check in checks:
            check()
        try:
            seen = recorder.journal.ledger().asked  # before: what somebody asks for during the round is not slept over
            found = recorder.watch()
            if recorder.holds != held:
                held = recorder.holds
                if held:
                    recorder.started(f"steno {version()}")
                else:
                    process = store.lease_holder(recorder.source)
                    _log.warning("process %s records %s already; standing by", process, recorder.source)
            begun = True
            said.round(found)
            _wait(recorder, found.pause, seen, checks)
        except (RecordLocked, RecordPaused, RecordUnreachable) as error:
            if isinstance(error, RecordPaused) and not begun:
                raise
            _log.error("%s", error)
            recorder.clock.sleep(_RETRY)


def _wait(recorder: Recorder, pause: int, seen: int, checks: Sequence[Callable[[], None]]) -> None:
    """Sleep until the next round is due or a request arrives after `seen`."""
    left, before = pause, recorder.clock.now()
    while left > 0 and recorder.journal.ledger().asked == seen:
        recorder.effects.attend(min(GLANCE, left))
        recorder.report()
        for check in checks:
            check()
        now = recorder.clock.now()
        left, before = left - max(0, now - before), now  # a clock that is set back makes no pause longer


class DaemonLog:
    """Logs what is new: transitions, decisions, anomalies, and whether the source answers."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder, self._source = recorder, recorder.source
        self._silent_since: int | None = None
        self._told: set[str] = set()  # machines told to end whose outcome was not logged yet

    def round(self, found: Round) -> None:
        state, journal = self._recorder.world.state, self._recorder.journal
        self._answers(found, self._recorder.clock.now())
        for change in found.changes:
            match change:
                case Moved(run_id=run_id, transition=move) if move is not None:
                    _moved(run_name(state, run_id), move, state.runs[run_id].reason, ended=state.runs[run_id].terminal)
                case VmMoved(vm_id=vm_id, step=step) if step is not None:
                    _moved(_vm(state, vm_id), step, state.vms[vm_id].reason, ended=not state.vms[vm_id].billed)
                case Anomaly():
                    _log.warning("%s at position %d: %s", change.kind.value, change.position, change.detail)
                case Blind() | Heard() | Moved() | VmMoved():
                    pass
        for decision in found.decisions:
            level, line = said(decision, state)
            _log.log(level, "%s", line)
            if isinstance(decision, types.VmStopIntended):
                self._told.add(decision.vm_id)
        for vm_id in self._told - journal.ledger().vm_stops.keys():
            self._told.remove(vm_id)
            outcome = journal.event(journal.ledger().vm_outcomes.get(vm_id))
            if isinstance(outcome, types.VmStopFailed):
                _log.warning("%s: stop failed; the machine is still billed: %s", _vm(state, vm_id), outcome.error)

    def _answers(self, found: Round, now: int) -> None:
        """Log once when the source falls silent, once when it answers again."""
        if found.polls == 0:
            return
        if found.answered == 0 and self._silent_since is None:
            self._silent_since = now
            _log.error("%s does not answer: %s; asking again", self._source, found.trouble)
        elif found.answered and self._silent_since is not None:
            _log.info("%s answers again after %s", self._source, words.duration(now - self._silent_since))
            self._silent_since = None


def _moved(name: str, move: Transition | VmStep, reason: Reason | VmReason | None, *, ended: bool) -> None:
    why = f" ({reason.value})" if ended and reason is not None else ""
    _log.info("%s: %s → %s%s", name, move.before.value, move.after.value, why)


def said(decision: Decision, state: WorldState) -> tuple[int, str]:
    """(log level, line) of one decision."""
    level = logging.INFO
    match decision:
        case types.RunPlaced():
            gpu = "" if decision.gpu is None else f", asking for {decision.gpu}"
            line = f"{run_name(state, decision.run_id)}: {_place(decision, state)}{gpu}"
        case types.RunHeld():
            line = f"{run_name(state, decision.run_id)}: waits in the queue: {decision.detail}"
        case types.RunRequeued():
            gpu = "" if decision.gpu is None else f" for {decision.gpu}"
            level = logging.WARNING
            line = f"{run_name(state, decision.run_id)}: no capacity; attempt {decision.attempt}{gpu} follows"
        case types.IntentAbandoned():
            level, line = logging.WARNING, f"{run_name(state, decision.run_id)}: refused: {decision.why}"
        case types.SubmitFailed():
            level, line = logging.WARNING, f"{run_name(state, decision.run_id)}: given up: {decision.error}"
        case types.VmDrainStarted():
            why = f": {decision.detail}" if decision.detail else ""
            line = f"{_vm(state, decision.vm_id)}: draining ({decision.by}), no new run is placed on it{why}"
        case types.VmDrainCancelled():
            line = f"{_vm(state, decision.vm_id)}: stays: {decision.why}"
        case types.StopRequested():
            level = logging.WARNING
            line = f"{run_name(state, decision.run_id)}: stopped, because its machine is to be stopped"
        case types.VmStopIntended():
            line = f"{_vm(state, decision.vm_id)}: stop requested ({decision.by})"
        case types.BudgetCrossed():
            level, line = logging.WARNING, budget_text(decision)
        case _:
            assert_never(decision)
    return level, line


def _place(place: types.RunPlaced, state: WorldState) -> str:
    """Where a run goes. Only a slot is Steno's choice; elsewhere the provider chooses."""
    vm = None if place.vm_id is None else _vm(state, place.vm_id)
    if place.slot is not None:
        return f"goes to {vm}" if vm is not None else f"gets a new machine in {place.slot}"
    if vm is not None:
        return f"the provider chooses an idle machine, probably {vm}"
    return "the provider chooses an idle machine or starts one"


def _vm(state: WorldState, vm_id: str) -> str:
    vm = state.vms.get(vm_id)
    return f"machine {vm_id if vm is None or vm.facts.name is None else vm.facts.name}"
