"""The loop of recorder and controller: rounds until stopped, with a log line for each change."""

import ctypes
import logging
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from steno.engine.control.controller import Controller, Round
from steno.engine.control.effects import GLANCE
from steno.engine.decide.decisions import Decision
from steno.engine.decide.limits import unknown_owners
from steno.engine.decide.situation import run_name
from steno.engine.notify.webhook import budget_text
from steno.engine.runtime.signals import INTERRUPTED, Terminated, ending, stoppable
from steno.engine.state.changes import Anomaly, Blind, Heard, Moved, Transition, VmMoved, VmStep
from steno.engine.state.states import Reason, VmReason
from steno.engine.state.world import World
from steno.events import types
from steno.events.clock import SECOND, duration, format_second
from steno.events.errors import RecordLocked, RecordPaused, RecordUnreachable
from steno.events.installation import version
from steno.events.store.record import Record

_log = logging.getLogger("steno.record")
_RETRY = 2 * SECOND


class PartFailed(RuntimeError):
    """A part that runs beside the controller in this process ended by itself."""


def run_until_stopped(
    loop: Callable[[Sequence[Callable[[], None]]], None],
    checks: Sequence[Callable[[], None]],
    stop: Callable[[str], None],
) -> None:
    """Call `loop(checks)`, which calls these checks each round, until SIGTERM (returns) or Ctrl-C (KeyboardInterrupt);
    `stop(why)` then ends what it began. A check's `PartFailed` ends it in order too.
    """
    with stoppable(signal.SIGTERM, Terminated) as ended, stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
        try:
            loop((ended, interrupted, *checks))
        except Terminated:
            with ending(INTERRUPTED):
                _log.info("stopped by SIGTERM")
                stop("SIGTERM")
        except (KeyboardInterrupt, PartFailed) as error:
            stop(str(error) or "interrupted")
            raise


def record_forever(controller: Controller, *checks: Callable[[], None]) -> None:
    """Poll, append, fold, decide and act until SIGTERM (returns) or Ctrl-C (KeyboardInterrupt); other errors are
    logged. `checks` run between rounds; their `PartFailed` ends the recording in order. Raises `RecordNotWritable` and
    `RecordDamaged` if nothing more can be recorded; a database that is full or read-only is waited for after the first
    round.
    """
    controller.stays = True
    controller.live.nudge = controller.effects.wake
    shrink(controller.live.record)
    run_until_stopped(partial(_rounds, controller), checks, controller.stopped)


def shrink(record: Record) -> None:
    """Give back the memory of the first fold, which has read all of the record."""
    record.shrink()
    with suppress(AttributeError, OSError):  # glibc's own: it would keep what is free, some MB, for itself
        ctypes.CDLL(None).malloc_trim(0)


def _rounds(controller: Controller, checks: Sequence[Callable[[], None]]) -> None:
    log, store = DaemonLog(controller), controller.live.record.store
    _log.info("recording %s into %s; Ctrl-C stops", controller.source, store)
    held: bool | None = None
    begun = False
    while True:
        for check in checks:
            check()
        try:
            # first, so that a request that comes during the round is not slept over
            seen = controller.journal.outbox().asked
            outcome = controller.watch()
            if controller.holds != held:
                held = controller.holds
                if held:
                    controller.started(f"steno {version()}")
                else:
                    holder = next((lease for lease in store.leases() if lease.name == controller.source), None)
                    process = None if holder is None else holder.process
                    _log.warning("process %s records %s already; standing by", process, controller.source)
            begun = True
            log.round(outcome)
            _wait(controller, outcome.pause, seen, checks)
        except (RecordLocked, RecordPaused, RecordUnreachable) as error:
            if isinstance(error, RecordPaused) and not begun:
                raise
            _log.error("%s", error)
            controller.clock.sleep(_RETRY)


def _wait(controller: Controller, pause: int, seen: int, checks: Sequence[Callable[[], None]]) -> None:
    """Sleep until the next round is due or a request arrives after `seen`."""
    left, before = pause, controller.clock.now()
    while left > 0 and controller.journal.outbox().asked == seen:
        controller.effects.attend(min(GLANCE, left))
        controller.report()
        for check in checks:
            check()
        now = controller.clock.now()
        left, before = left - max(0, now - before), now  # a clock that is set back makes no pause longer


class DaemonLog:
    """Logs what is new: transitions, decisions, anomalies, and whether the source answers."""

    def __init__(self, controller: Controller) -> None:
        self._recorder, self._source = controller, controller.source
        self._silent_since: int | None = None
        self._stopping: set[str] = set()  # machines with a stop whose outcome was not logged yet
        for sentence in unknown_owners(controller.world.state, controller.policy):
            _log.warning("%s", sentence)

    def round(self, outcome: Round) -> None:
        state, journal = self._recorder.world.state, self._recorder.journal
        self._answers(outcome, self._recorder.clock.now())
        for change in outcome.changes:
            match change:
                case Moved(run_id=run_id, transition=move) if move is not None:
                    _moved(run_name(state, run_id), move, state.runs[run_id].reason, ended=state.runs[run_id].terminal)
                case VmMoved(vm_id=vm_id, step=step) if step is not None:
                    _moved(_vm(state, vm_id), step, state.vms[vm_id].reason, ended=not state.vms[vm_id].billed)
                case Anomaly():
                    _log.warning("%s at position %d: %s", change.kind.value, change.position, change.detail)
                case Blind() | Heard() | Moved() | VmMoved():
                    pass
        for decision in outcome.decisions:
            level, line = said(decision, state)
            _log.log(level, "%s", line)
            if isinstance(decision, types.VmStopIntended):
                self._stopping.add(decision.vm_id)
        for vm_id in self._stopping - journal.outbox().vm_stops.keys():
            self._stopping.remove(vm_id)
            end = journal.event(journal.outbox().vm_outcomes.get(vm_id))
            if isinstance(end, types.VmStopFailed):
                _log.warning("%s: stop failed; the machine is still billed: %s", _vm(state, vm_id), end.error)

    def _answers(self, outcome: Round, now: int) -> None:
        """Log once when the source falls silent, once when it answers again."""
        if outcome.polls == 0:
            return
        if outcome.answered == 0 and self._silent_since is None:
            self._silent_since = now
            _log.error("%s does not answer: %s; asking again", self._source, outcome.trouble)
        elif outcome.answered and self._silent_since is not None:
            _log.info("%s answers again after %s", self._source, duration(now - self._silent_since))
            self._silent_since = None


def _moved(name: str, move: Transition | VmStep, reason: Reason | VmReason | None, *, ended: bool) -> None:
    why = f" ({reason.value})" if ended and reason is not None else ""
    _log.info("%s: %s → %s%s", name, move.before.value, move.after.value, why)


def said(decision: Decision, state: World) -> tuple[int, str]:
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
            why = "its machine is to be stopped" if decision.idle_since is None else "its GPUs are idle"
            why = why if decision.lever is None else f"{decision.submitter} stops many runs at once"
            line = f"{run_name(state, decision.run_id)}: stopped, because {why}"
        case types.RunIdleWarned():
            level = logging.WARNING
            idle = f"its GPUs are idle since {format_second(decision.since)}"
            line = f"{run_name(state, decision.run_id)}: {idle}; it is stopped at {format_second(decision.stops_at)}"
        case types.VmStopIntended():
            line = f"{_vm(state, decision.vm_id)}: stop requested ({decision.by})"
        case types.BudgetCrossed():
            level, line = logging.WARNING, budget_text(decision)
        case _:
            assert_never(decision)
    return level, line


def _place(place: types.RunPlaced, state: World) -> str:
    """Where a run goes. Only a slot is Steno's choice; elsewhere the provider chooses."""
    vm = None if place.vm_id is None else _vm(state, place.vm_id)
    if place.slot is not None:
        return f"goes to {vm}" if vm is not None else f"gets a new machine in {place.slot}"
    if vm is not None:
        return f"the provider chooses an idle machine, probably {vm}"
    return "the provider chooses an idle machine or starts one"


def _vm(state: World, vm_id: str) -> str:
    vm = state.vms.get(vm_id)
    return f"machine {vm_id if vm is None or vm.facts.name is None else vm.facts.name}"
