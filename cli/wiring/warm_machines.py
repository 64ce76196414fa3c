"""The recorder of the kernels' warm machines, beside that of the provider that keeps them: in the same thread, on the
same world, from the first kernel on.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from engine.decide.controller import Decision, decide
from engine.decide.kernel_machines import held_machines, to_start, why_waiting
from engine.decide.source_view import Scene
from engine.errors import NotConfigured
from engine.fold.world_codec import vms_of
from engine.kernel.held_machine import listener_task, token_of
from engine.kernel.listener_run import KERNELS as NAME
from engine.kernel.warm.kind import KIND, is_warm
from engine.providers.registry import kind
from engine.providers.task import Draft
from engine.recorder.interval import Pace
from engine.settings.policy import policy_from
from engine.states import State
from events import types
from events.clock import SECOND
from events.errors import RecordLocked, RecordPaused, RecordUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine.fold.world_codec import WorldState
    from engine.kernel.held_machine import HeldMachine
    from engine.kernel.warm.provider import KernelsProvider
    from engine.live.live_world import LiveWorld
    from engine.policy import Policy
    from engine.recorder.recorder import Recorder
    from events.store.record import Record

    from .app import App
    from .record_loop import DaemonLog

_log = logging.getLogger("steno.record")
_PACE = Pace(fast=SECOND, slow=5 * SECOND)  # news of the listeners makes a round at once
_SUBMITTER = "steno"


class _Begun(NamedTuple):
    """What there is from the first kernel on."""

    provider: KernelsProvider
    recorder: Recorder
    log: DaemonLog


class WarmMachines:
    """Call `step` often, in the recorder's thread. Asks the provider beneath for machines by requests in the record."""

    def __init__(self, app: App, record: Record, live: LiveWorld) -> None:
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
        recorder = self._parts.recorder
        if recorder.holds:
            recorder.stopped("the process ends")
        recorder.release()
        self._parts.provider.close()

    def _step(self) -> None:
        parts = self._parts = self._parts or self._begin()
        if parts is None:
            return
        provider, recorder, log = parts
        while recorder.effects.attend(0):
            pass
        now = self._app.clock.now()
        recorder.report()
        seen = (recorder.journal.ledger().asked, provider.changes)
        if seen == self._seen and now < self._due <= now + _PACE.slow:
            return
        self._seen, held = seen, recorder.holds
        self._sweep()
        found = recorder.watch()
        if recorder.holds and not held:
            recorder.started("kernels")
        log.round(replace(found, changes=()))  # the recorder beside logs every change
        if recorder.holds:
            self._start_machines(recorder)
        self._due = now + found.pause

    def _sweep(self) -> None:
        """Remove what listeners of this host left that were killed: an endless kernel would go on in its container."""
        if self._app.settings.provider == "local":
            ended = (one for one in self._machines() if one.over and one.state is not State.SUCCEEDED)
            over = {one.run_id for one in ended} - self._swept
            if over:
                from engine.listener.sandbox import remove_containers_of

                self._swept |= over
                remove_containers_of(over)

    def _begin(self) -> _Begun | None:
        """None: there is no kernel and no machine for it yet."""
        from engine.act.executor import Executor
        from engine.recorder.recorder import Recorder

        from .record_loop import DaemonLog

        state = self._live.state
        asked = any(one.request.provider == NAME for one in state.outbox.submits.values())
        if not asked and not any(vm.billed for vm in vms_of(state, self._source)):
            return None
        provider = KIND.open(self._app.settings, clock=self._app.clock, ids=self._app.ids, record=self._record.store)
        self._beneath = provider.beneath.source
        provider.machines, provider.wake = self._machines, self._news
        recorder = Recorder(
            live=self._live,
            provider=provider,
            clock=self._app.clock,
            policy=policy_from(self._app.settings, NAME),
            pace=_PACE,
            decide=self._decide,
            executor=Executor(self._news),
            wake=self._news,
        )
        recorder.stays = True
        return _Begun(provider, recorder, DaemonLog(recorder))

    def _news(self) -> None:
        self.wake()

    def _machines(self) -> tuple[HeldMachine, ...]:
        """Called from threads that call the provider, too."""
        with self._live.reading() as state:
            return () if state is None else held_machines(state, self._source, self._beneath)

    def _decide(self, state: WorldState, source: str, policy: Policy, now: int, watched: bool) -> tuple[Decision, ...]:
        """As for every source; a kernel without a machine is told why."""
        scene = Scene(state=state, source=source, policy=policy, now=now)
        held, found = held_machines(state, source, self._beneath), list[Decision]()
        for one in decide(state, source, policy, now, watched):
            if not isinstance(one, types.RunHeld) or one.why != "machine":
                found.append(one)
        for run in scene.queue:
            why = why_waiting(scene, self._beneath, held, run)
            placed = any(isinstance(one, types.RunPlaced) and one.run_id == run.run_id for one in found)
            if not placed and (run.held is None or run.held.detail != why):
                found.append(types.RunHeld(run_id=run.run_id, provider=NAME, why="machine", detail=why))
        return tuple(found)

    def _start_machines(self, recorder: Recorder) -> None:
        from engine.commands.submit import request_run

        from .task import completed

        settings, state = self._app.settings, recorder.world.state
        scene = Scene(state=state, source=recorder.source, policy=recorder.policy, now=self._app.clock.now())
        if not scene.queue:
            return
        held = held_machines(state, recorder.source, self._beneath)
        for gpu in to_start(scene, self._beneath, held, settings.parsed("kernel.machines")):
            run_id, below = self._app.ids.new(), kind(settings.provider)
            try:
                task = listener_task(below, settings, run_id, gpu, token_of(self._record.store, run_id))
            except NotConfigured as error:
                _log.error("%s", error)
                self._wanted = False
                return
            draft = Draft(configuration=task, where="the listener's task", environ={})
            done = completed(below, draft, settings, run_id=run_id)
            project = self._beneath.partition("/")[2]
            request_run(
                recorder.journal,
                run_id=run_id,
                provider=below.name,
                project=project,
                task=done,
                submitter=_SUBMITTER,
            )
            _log.info("requested a machine for kernels: %s", done.name)
        recorder.live.catch_up()
