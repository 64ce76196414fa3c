"""The recorder of the kernels' warm machines, beside that of the provider that keeps them: in the same thread, on the
same world, from the first kernel on.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from steno.engine.control.controller import Controller
from steno.engine.control.effects import Executor
from steno.engine.control.poll_interval import Pace
from steno.engine.decide.decisions import Decision, decide
from steno.engine.decide.kernel_machines import kept_machines, to_start, why_waiting
from steno.engine.decide.situation import Situation
from steno.engine.errors import NotConfigured
from steno.engine.kernel.kept_machine import KeptMachine, listener_task, token_of
from steno.engine.kernel.warm_provider.kind import KIND, is_warm
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.registry import kind
from steno.engine.providers.task import Draft
from steno.engine.runtime.controllers import Surroundings, output_policy
from steno.engine.runtime.record_loop import DaemonLog
from steno.engine.settings.settings import policy_from
from steno.engine.state.kernel_mark import KERNELS as NAME
from steno.engine.state.policy import Policy
from steno.engine.state.states import State
from steno.engine.state.world import World, vms_of
from steno.engine.submit.completion import completed
from steno.engine.submit.requests import submit
from steno.events import types
from steno.events.clock import SECOND
from steno.events.errors import RecordLocked, RecordPaused, RecordUnreachable, StenoError
from steno.events.store.record import Record

if TYPE_CHECKING:
    from steno.engine.kernel.warm_provider.provider import KernelsProvider

_log = logging.getLogger("steno.record")
_PACE = Pace(fast=SECOND, slow=5 * SECOND)  # news of the listeners makes a round at once
_SUBMITTER = "steno"
_LAST = 500  # bytes of an output's end


class _Begun(NamedTuple):
    """Provider, controller and log, made with the first kernel."""

    provider: KernelsProvider
    controller: Controller
    log: DaemonLog


class WarmMachines:
    """Call `step` often, in the recorder's thread. Asks the provider beneath for machines by requests in the record."""

    def __init__(self, app: Surroundings, record: Record, live: LiveWorld) -> None:
        self._app = app
        self._record = record
        self._live = live
        self._wanted = is_warm(app.settings)
        self._source = f"{NAME}/{KIND.project(app.settings)}"
        self._parts: _Begun | None = None
        self._beneath = ""
        self._due = 0
        self._seen = (-1, -1)  # requests and news of the listeners before the last round
        self._busy = False
        self._swept = set[str]()  # machines of this host that did not end by themselves
        self._words: dict[str, str] = {}  # the last line of machines that failed, by run id
        self.wake: Callable[[], None] = lambda: None
        """Makes the caller of `step` call it now; called from other threads."""

    def step(self) -> None:
        """A round, if one is due; does nothing before the first kernel."""
        if not self._wanted or self._busy:
            return
        self._busy = True  # a round waits for its polls, and this is called meanwhile
        try:
            self._step()
        except (RecordLocked, RecordPaused, RecordUnreachable) as error:
            _log.error("%s", error)
            self._due = self._app.clock.now() + _PACE.slow
        finally:
            self._busy = False

    def close(self) -> None:
        if self._parts is None:
            return
        controller = self._parts.controller
        controller.stopped("the process ends")
        controller.release()
        self._parts.provider.close()

    def _step(self) -> None:
        parts = self._parts = self._parts or self._begin()
        if parts is None:
            return
        provider, controller, log = parts
        while controller.effects.attend(0):
            pass
        now = self._app.clock.now()
        controller.report()
        seen = (controller.journal.outbox().asked, provider.changes)
        if seen == self._seen and now < self._due <= now + _PACE.slow:
            return
        self._seen, held = seen, controller.holds
        self._sweep()
        outcome = controller.watch()
        if controller.holds and not held:
            controller.started("kernels")
        log.round(replace(outcome, changes=()))  # the recorder beside logs every change
        if controller.holds:
            self._start_machines(controller)
        self._due = now + outcome.pause

    def _sweep(self) -> None:
        """Remove what listeners of this host left that were killed: an endless kernel would go on in its container."""
        if self._app.settings.provider == "local":
            ended = (machine for machine in self._machines() if machine.over and machine.state is not State.SUCCEEDED)
            over = {machine.run_id for machine in ended} - self._swept
            if over:
                from steno.engine.listener.sandbox import remove_containers_of

                self._swept |= over
                remove_containers_of(over)

    def _begin(self) -> _Begun | None:
        """None: there is no kernel and no machine for it yet."""
        state = self._live.state
        wanted = any(pending.request.provider == NAME for pending in state.outbox.submits.values())
        if not wanted and not any(vm.billed for vm in vms_of(state, self._source)):
            return None
        provider = KIND.open(self._app.settings, clock=self._app.clock, ids=self._app.ids, record=self._record.store)
        self._beneath = provider.beneath.source
        provider.machines, provider.wake = self._machines, self._news
        controller = Controller(
            live=self._live,
            provider=provider,
            clock=self._app.clock,
            policy=policy_from(self._app.settings, NAME),
            pace=_PACE,
            decide=self._decide,
            executor=Executor(self._news),
            wake=self._news,
            outputs=output_policy(self._app.settings),
        )
        controller.stays = True
        return _Begun(provider, controller, DaemonLog(controller))

    def _news(self) -> None:
        self.wake()

    def _machines(self) -> tuple[KeptMachine, ...]:
        """Called from threads that call the provider, too."""
        with self._live.reading() as state:
            return () if state is None else kept_machines(state, self._source, self._beneath)

    def _decide(self, state: World, source: str, policy: Policy, now: int, watched: bool) -> tuple[Decision, ...]:
        """As for every source; a kernel without a machine is told why."""
        situation = Situation(state=state, source=source, policy=policy, now=now)
        kept, decisions = kept_machines(state, source, self._beneath), list[Decision]()
        for decision in decide(state, source, policy, now, watched):
            if not isinstance(decision, types.RunHeld) or decision.why != "machine":
                decisions.append(decision)
        placed = {decision.run_id for decision in decisions if isinstance(decision, types.RunPlaced)}
        for run in (run for run in situation.queue if not situation.holds_back(run)):
            why = why_waiting(situation, self._beneath, kept, run, self._last_words)
            if run.run_id not in placed and (run.held is None or run.held.detail != why):
                decisions.append(types.RunHeld(run_id=run.run_id, provider=NAME, why="machine", detail=why))
        return tuple(decisions)

    def _last_words(self, machine: KeptMachine) -> str:
        """The last line of a machine that failed: a listener ends with the reason. It is read beside, once."""
        if machine.run_id not in self._words:
            self._words[machine.run_id] = ""
            threading.Thread(target=self._read_words, args=(machine,), name="steno-last-words", daemon=True).start()
        return self._words[machine.run_id]

    def _read_words(self, machine: KeptMachine) -> None:
        if self._parts is None or machine.provider_id is None:
            return
        end = b""
        with suppress(StenoError):  # `steno logs` says why it cannot be read
            for piece in self._parts.provider.beneath.logs(machine.provider_id, machine.name, follow=False):
                end = (end + piece)[-_LAST:]
        lines = end.decode("utf-8", "replace").strip().splitlines()
        self._words[machine.run_id] = "".join(filter(str.isprintable, lines[-1].strip() if lines else ""))
        self._due = 0
        self._news()

    def _start_machines(self, controller: Controller) -> None:
        settings, state = self._app.settings, controller.world.state
        situation = Situation(
            state=state, source=controller.source, policy=controller.policy, now=self._app.clock.now()
        )
        if not situation.queue:
            return
        kept = kept_machines(state, controller.source, self._beneath)
        for gpu in to_start(situation, self._beneath, kept, settings.parsed("kernel.machines")):
            run_id, below = self._app.ids.new(), kind(settings.provider)
            try:
                configuration = listener_task(below, settings, run_id, gpu, token_of(self._record.store, run_id))
            except NotConfigured as error:
                _log.error("%s", error)
                self._wanted = False
                return
            draft = Draft(configuration=configuration, where="the listener's task", environ={})
            task = completed(below, draft, settings, run_id=run_id)
            journal, project = controller.journal, self._beneath.partition("/")[2]
            submit(journal, run_id=run_id, provider=below.name, project=project, task=task, submitter=_SUBMITTER)
            _log.info("requested a machine for kernels: %s", task.name)
        controller.live.catch_up()
