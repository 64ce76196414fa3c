"""Submitting a task and following it to its end."""

from __future__ import annotations

import getpass
import signal
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from cli.live import Live
from cli.render import words
from cli.watching import watching
from cli.wiring.errors import Detached, WaitEnded
from cli.wiring.output import hint
from cli.wiring.signals import stoppable
from engine.commands.desk import Desk, refuse
from engine.commands.request import request_run
from engine.errors import ProviderError, ProviderRefused, ProviderUnreachable
from engine.fold.sources import observability
from engine.money.costs import Costs
from engine.objects import RunObject, run_object
from engine.replay.record import fill_costs
from engine.rules.sets import CURRENT
from events import types
from events.clock import SECOND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.task import Task
    from cli.wiring.app import App
    from engine.decide.queue import Queued
    from engine.fold.run import Run
    from engine.providers.base import Provider
    from engine.recorder.recorder import Recorder
    from engine.recorder.watch import Watch
    from events.store.record import Record

PATIENCE = 60 * SECOND
"""How long a submission waits for another process that holds the lease."""
SILENCE = 3.0
"""Seconds without an answer after which whoever waits is told."""


@dataclass(frozen=True, slots=True)
class Submitted:
    """A run that its provider has, or that waits in the queue for its turn."""

    run_id: str
    provider_id: str | None
    """None while it waits."""
    name: str
    position: int
    """Of the request."""
    state: str
    """`queued` while it waits, else as the newest poll shows it."""
    queued: str | None = None
    """Its place in the queue and why it waits, in words."""


class Counter:
    """Where this process submits runs to one provider and follows them, over one watch."""

    def __init__(self, app: App, record: Record, provider: Provider, watch: Watch, recorder: Recorder) -> None:
        self._app = app
        self._record = record
        self._provider = provider
        self._watch = watch
        self._recorder = recorder
        self.desk = Desk(watch, recorder, app.clock)

    def submit(self, task: Task, run_id: str) -> Submitted:
        """Request the run, then see it to the provider, or into the queue.

        Raises:
            RefusedByPolicy: its worst case would overrun the budget, so nothing was requested; or it needs more
                machines than are allowed.
            TaskInvalid, NameInUse, ProjectNotFound: the provider refuses it, which ends it.
            ProviderUnreachable, ProviderRefused, ProviderError: it stays requested; the message says what can be done.
        """
        journal, provider = self._recorder.journal, self._provider
        submitter = getpass.getuser()
        self._afford(task, submitter)
        position = request_run(
            journal,
            self._record.vault,
            run_id=run_id,
            provider=provider.name,
            project=provider.project,
            name=task.name,
            configuration=task.configuration,
            submitter=submitter,
            base=task.base,
            fallback=task.fallback,
        )
        try:
            with self._silence_told():
                outcome = self.desk.submitted(run_id, PATIENCE)
        except (ProviderUnreachable, ProviderRefused, ProviderError) as error:
            then = f"`steno record` submits it later, `steno stop {task.name}` cancels it"
            raise type(error)(f"{error}{self._last_answer()}; {task.name} stays requested: {then}") from None
        try:
            refuse(outcome)
        except (ProviderUnreachable, ProviderRefused) as error:
            raise type(error)(f"{error}{self._last_answer()}; {task.name} was not submitted: submit it again") from None
        if isinstance(outcome, types.RunHeld):
            self._watch.catch_up()
            waits = self._waits(run_id) or outcome.detail
            return Submitted(run_id, None, task.name, position, state="queued", queued=waits)
        return Submitted(run_id, journal.ledger().provider_ids[run_id], task.name, position, state="requested")

    def look(self, submitted: Submitted) -> Submitted:
        """One round of polls if nobody else looks, so that a new run is seen at once; how it stands then."""
        self._watch.round()
        run = self._watch.world.state.runs.get(submitted.run_id)
        if run is None or submitted.queued is not None:
            return submitted
        return Submitted(submitted.run_id, submitted.provider_id, submitted.name, submitted.position, run.state.value)

    def follow(self, run_id: str, name: str, *, timeout: int | None) -> RunObject | None:
        """The run object once its verdict is in; None when `timeout` microseconds are up.

        Meanwhile a live line on stderr; polls, decides and acts while the lease is free.
        """
        began, clock = self._app.clock.now(), self._app.clock
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted, Live(name, began, clock) as live:
            while True:
                interrupted()
                found = self._watch.round()
                run = self._run(run_id)
                if run is not None and run.ended:
                    live.show(run)
                    return run
                now = clock.now()
                source = self._watch.world.state.sources.get(self._provider.source)
                seen = str(observability(source, now)) if found.trouble else "fresh"
                live.show(run, seen, self._waits(run_id))
                left = None if timeout is None else began + timeout - now
                if left is not None and left <= 0:
                    return None
                self._recorder.effects.wait(found.pause if left is None else min(found.pause, left))

    @contextmanager
    def _silence_told(self) -> Iterator[None]:
        """A line on stderr as soon as the provider has kept us waiting for `SILENCE`."""

        def tell() -> None:
            asked_at = self._recorder.asked_at
            if asked_at is not None:
                hint(f"no answer from {self._provider.source} since {words.moment(asked_at)}; waiting for one")

        timer = threading.Timer(SILENCE, tell)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def _last_answer(self) -> str:
        source = self._watch.world.state.sources.get(self._provider.source)
        last = None if source is None else source.last_answered
        return "" if last is None else f"; its last answer came at {words.moment(last)}"

    def _afford(self, task: Task, submitter: str) -> None:
        """Hold the worst case against the budget, as the world stands; say where nobody knows a price."""
        policy = self._recorder.policy
        if policy.free or policy.budget_total is None:
            return
        from engine.money.budget import check
        from engine.readings.terms import read_terms

        self._watch.catch_up()
        terms = read_terms(msgspec.json.encode(task.configuration), submitter, task.fallback)
        worst = check(terms, policy, self._watch.world.state, self._app.clock.now())
        if worst.amount is None:
            hint(worst.lines[0])

    def _waits(self, run_id: str) -> str | None:
        """Its place in the queue and why it waits; None where it does not."""
        run = self._watch.world.state.runs.get(run_id)
        if run is None or run.held is None:
            return None
        from engine.decide.queue import queue

        state, source = self._watch.world.state, self._provider.source
        for one in queue(state, source, self._recorder.policy, self._app.clock.now()):
            if one.run_id == run_id:
                return waiting(one)
        return None

    def _run(self, run_id: str) -> RunObject | None:
        """The run as the watch's world has it, with its cost so far, ours and the provider's."""
        run: Run | None = self._watch.world.state.runs.get(run_id)
        if run is None:
            return None
        fill_costs(self._record, [run])
        return run_object(run, CURRENT, Costs(self._watch.world.state).of_run(run_id))


@contextmanager
def counter(
    app: App, record: Record, provider: Provider, *, adopt: bool = True, stays: bool = False
) -> Iterator[Counter]:
    """A counter over one provider; the lease is released afterwards.

    Args:
        adopt: see `watching`.
        stays: somebody goes on recording afterwards, and ends idle machines.

    Raises:
        RecordNotWritable: the lease cannot be opened, so nothing could be asked for.
    """
    from engine.act.executor import GRACE

    with watching(app, record, provider, adopt=adopt) as (watch, recorder):
        recorder.stays = stays
        yield Counter(app, record, provider, watch, recorder)
        # What this process gave a place to, it also hands over: nobody else may be there to do it.
        recorder.effects.wait(GRACE, until=lambda: not recorder.effects.busy)


def submit(app: App, record: Record, provider: Provider, task: Task, run_id: str, *, stays: bool = False) -> Submitted:
    """As `Counter.submit`, with a counter of its own."""
    with counter(app, record, provider, stays=stays) as here:
        return here.submit(task, run_id)


def follow(
    app: App, record: Record, provider: Provider, submitted: Submitted, *, timeout: int | None, stays: bool = False
) -> RunObject:
    """As `to_the_end`, with a counter of its own."""
    with counter(app, record, provider, stays=stays) as here:
        return to_the_end(here, submitted, timeout=timeout)


def to_the_end(here: Counter, submitted: Submitted, *, timeout: int | None) -> RunObject:
    """The run object once its verdict is in; a live line on stderr meanwhile.

    Args:
        timeout: microseconds after which to stop looking; None: never.

    Raises:
        WaitEnded: the time is up; the run goes on.
        Detached: Ctrl-C; the run goes on.
    """
    name = submitted.name
    then = f"`steno timeline {name}` shows it, `steno stop {name}` stops it"
    try:
        run = here.follow(submitted.run_id, name, timeout=timeout)
    except KeyboardInterrupt:
        raise Detached(f"{name} still runs: {then}") from None
    if run is None:
        raise WaitEnded(f"{name} still runs after --timeout: {then}")
    return run


def waiting(queued: Queued) -> str:
    """`position 2, starts about 2026-11-20 14:05:00Z: 3 of 3 machines are in use`."""
    start = queued.estimated_start
    about = "" if start is None else f", starts about {words.moment(start)}"
    return f"position {queued.position}{about}: {queued.detail or queued.why}"
