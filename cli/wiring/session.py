"""A session with one provider: submits runs, stops them and follows them to their end."""

import getpass
import signal
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from cli.render import words
from cli.wiring.app import App
from cli.wiring.errors import NOT_SUCCEEDED, UNREACHABLE, Detached, WaitEnded
from cli.wiring.output import hint
from cli.wiring.recorder import watching
from cli.wiring.run_output import OutputPrinter
from cli.wiring.run_progress import RunProgress
from cli.wiring.signals import stoppable
from engine.act.executor import DRAIN_TIMEOUT
from engine.commands.dispatcher import Dispatcher, raise_failure
from engine.commands.stop import request_stop
from engine.commands.submit import admit, refuse_taken_name, request_run
from engine.decide.queue import queue
from engine.decide.why_ended import EndCause, cause_now
from engine.errors import Conflict, ProviderError, ProviderRefused, ProviderUnreachable
from engine.facts import Blame
from engine.fold.run import Run
from engine.fold.sources import observability
from engine.money.costs import Costs
from engine.objects import RunObject, run_object
from engine.providers.base import Provider
from engine.providers.task import Completed
from engine.recorder.recorder import Recorder
from engine.replay.provider_costs import fill_costs
from engine.rules.current import CURRENT
from engine.states import State
from events import types
from events.clock import SECOND
from events.store.record import Record

if TYPE_CHECKING:
    from projections.models.kernel import Status

OUTCOME_TIMEOUT = 60 * SECOND  # wait for the outcome while another process holds the lease
END_TIMEOUT = 30 * SECOND  # then wait for the end: a stop takes up to 2 s, an abort up to 30 s
_WRITES = frozenset({State.RUNNING, State.FINISHING})  # a run has output
SILENCE = 3.0  # seconds without an answer after which a hint is printed


class SubmittedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that the provider or the queue has."""

    run_id: str
    provider_id: str | None  # None while it waits
    name: str
    provider: str
    project: str
    position: int  # of the request
    state: str  # `queued` while it waits, else as the newest poll shows it
    queued: str | None = None  # its place in the queue and why it waits, in words


class RunSession:
    """Submits, stops and follows one provider's runs through one recorder."""

    def __init__(self, app: App, record: Record, provider: Provider, recorder: Recorder) -> None:
        self._app = app
        self._record = record
        self._provider = provider
        self._recorder = recorder
        self._dispatcher = Dispatcher(recorder)

    def submit(self, task: Completed, run_id: str, *, kernel: bytes | None = None) -> SubmittedRun:
        """Request the run, and wait until the provider or the queue has it; `kernel` is its mark, if it is one. Raises
        `RefusedByPolicy` (nothing was requested); `TaskInvalid`, `NameInUse`, `ProjectNotFound` (refused: the run has
        ended); `ProviderUnreachable`, `ProviderRefused`, `ProviderError` (it stays requested; the message says what to
        do).
        """
        journal, provider, policy = self._recorder.journal, self._provider, self._recorder.policy
        submitter = getpass.getuser()
        hints: list[str] = []

        def admitted() -> int:
            state, now = journal.state(), self._app.clock.now()
            refuse_taken_name(state, provider.name, provider.project, task.name, run_id, now)
            worst = admit(provider.name, task, submitter, policy, state, now)
            if worst is not None and worst.amount is None and policy.budget_total is not None:
                hints[:] = worst.lines[:1]
            return state.position

        accepted = request_run(
            journal,
            run_id=run_id,
            provider=provider.name,
            project=provider.project,
            task=task,
            submitter=submitter,
            kernel=kernel,
            check=admitted,
        )
        for line in hints:
            hint(line)
        silence = threading.Timer(SILENCE, self._hint_at_silence)
        silence.daemon = True
        silence.start()
        try:
            outcome = self._dispatcher.submitted(run_id, OUTCOME_TIMEOUT)
        except (ProviderUnreachable, ProviderRefused, ProviderError) as error:
            then = f"`steno record` submits it later, `steno stop {task.name}` cancels it"
            raise type(error)(f"{error}{self._last_answer()}; {task.name} stays requested: {then}") from None
        finally:
            silence.cancel()
        try:
            raise_failure(outcome)
        except (ProviderUnreachable, ProviderRefused) as error:
            raise type(error)(f"{error}{self._last_answer()}; {task.name} was not submitted: submit it again") from None
        queued = None
        if isinstance(outcome, types.RunHeld):
            self._recorder.catch_up()
            queued = self._waits(run_id) or outcome.detail
        return SubmittedRun(
            run_id=run_id,
            provider_id=None if queued else journal.ledger().provider_ids[run_id],
            name=task.name,
            provider=provider.name,
            project=provider.project,
            position=accepted.position,
            state="queued" if queued else "requested",
            queued=queued,
        )

    def stop(self, run: Run, *, abort: bool) -> None:
        """Request the stop and wait until the provider accepts it, or until a run that never reached the provider has
        ended. Raises `RunNotFound` (unknown to the provider) or `Conflict` (the lease holder has not acted yet).
        """
        project = run.project or self._provider.project
        request_stop(self._recorder.journal, run, project=project, abort=abort, submitter=getpass.getuser())
        raise_failure(self._dispatcher.stopped(run.run_id, OUTCOME_TIMEOUT))

    def look(self, submitted: SubmittedRun) -> SubmittedRun:
        """The run after one round of polls (if no other process polls), so that a new run is seen at once."""
        self._recorder.watch()
        run = self._recorder.world.state.runs.get(submitted.run_id)
        if run is None or submitted.queued is not None:
            return submitted
        return msgspec.structs.replace(submitted, state=run.state.value)

    def watch(self) -> int:
        """Poll once if no other process polls; returns microseconds until the next round."""
        return self._recorder.watch().pause

    def pause(self, duration: int) -> None:
        """Wait until the next round, or until a call to the provider has ended."""
        self._recorder.effects.wait(duration)

    def cause(self, run_id: str) -> EndCause:
        from projections.models.evidence import message_of

        run = self.run(run_id)
        return cause_now(run, self._recorder.world.state, self._app.clock.now(), message_of(self._record, run))

    def run(self, run_id: str) -> Run:
        return self._recorder.world.state.runs[run_id]

    def kernel_story(self, run_id: str) -> "tuple[Status, ...]":
        """The statuses so far of a kernel run."""
        from projections.models.kernel import facts_of, story_of

        run, state = self.run(run_id), self._recorder.world.state
        return story_of(run, facts_of(self._record, run), state, self._app.clock.now())

    def to_the_end(self, run: SubmittedRun | Run, *, timeout: int | None = None, output: bool = False) -> RunObject:
        """As `follow`, of a schedule until it is due; raises `WaitEnded` on timeout and `Detached` on Ctrl-C. The run
        continues in both cases.
        """
        name = run.name or run.run_id
        then = f"`steno timeline {name}` shows it, `steno stop {name}` stops it"
        try:
            ended = self.follow(run.run_id, name, timeout=timeout, output=output, schedules=False)
        except KeyboardInterrupt:
            raise Detached(f"{name} still runs: {then}") from None
        if ended is None:
            raise WaitEnded(f"{name} still runs after --timeout: {then}")
        return ended

    def follow(
        self, run_id: str, name: str, *, timeout: int | None, output: bool = False, schedules: bool = True
    ) -> RunObject | None:
        """Poll and act (while the lease is free), with live progress, to the verdict; None after `timeout`
        microseconds. With `output`, what the run writes comes to stdout meanwhile. Without `schedules`, a schedule is
        followed until its provider says when it is due.
        """
        began, clock = self._app.clock.now(), self._app.clock
        printers: dict[str, OutputPrinter] = {}  # by the provider's id: a repeated request has another
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted, RunProgress(name, began, clock) as live:
            while True:
                interrupted()
                found = self._recorder.watch()
                run = self._run(run_id)
                if output and run is not None:
                    self._print(run, printers, live)
                if run is not None and (run.ended or (run.next_at is not None and not schedules)):
                    for missing in filter(None, (printer.end() for printer in printers.values())):
                        hint(f"the output may be incomplete: {missing}; `steno logs {name}` reads it again")
                    live.show(run)
                    return run
                now = clock.now()
                source = self._recorder.world.state.sources.get(self._provider.source)
                seen = str(observability(source, now)) if found.trouble else "fresh"
                live.show(run, seen, self._waits(run_id))
                left = None if timeout is None else began + timeout - now
                if left is not None and left <= 0:
                    return None
                self._recorder.effects.wait(found.pause if left is None else min(found.pause, left))

    def _print(self, run: RunObject, printers: dict[str, OutputPrinter], live: RunProgress) -> None:
        """Print what the run writes, once it may have written something."""
        key = run.provider_id
        if run.tasks:
            return  # `steno logs` prints them one after the other
        if key is not None and key not in printers and (run.ended or run.state in _WRITES):
            logs = partial(self._provider.logs, key, run.name or "", follow=True)
            printers[key] = OutputPrinter(logs, live)

    def _hint_at_silence(self) -> None:
        asked_at = self._recorder.asked_at
        if asked_at is not None:
            hint(f"no answer from {self._provider.source} since {words.moment(asked_at)}; waiting for one")

    def _last_answer(self) -> str:
        source = self._recorder.world.state.sources.get(self._provider.source)
        last = None if source is None else source.last_answered
        return "" if last is None else f"; its last answer came at {words.moment(last)}"

    def _waits(self, run_id: str) -> str | None:
        """`position 2, starts about 2026-11-20 14:05:00Z: 3 of 3 machines are in use`; None if not queued."""
        run = self._recorder.world.state.runs.get(run_id)
        if run is None or run.held is None:
            return None
        state, source = self._recorder.world.state, self._provider.source
        for one in queue(state, source, self._recorder.policy, self._app.clock.now()):
            if one.run_id == run_id:
                start = one.estimated_start
                about = "" if start is None else f", starts about {words.moment(start)}"
                return f"position {one.position}{about}: {one.detail or one.why}"
        return None

    def _run(self, run_id: str) -> RunObject | None:
        run: Run | None = self._recorder.world.state.runs.get(run_id)
        if run is None:
            return None
        fill_costs(self._record, [run])
        return run_object(run, CURRENT, Costs(self._recorder.world.state).of_run(run_id))


def code_of_failure(run: Run, cause: EndCause) -> int:
    """The exit code for a run that was followed to its end and did not succeed. If its provider failed to take it, that
    of a submission that fails at once.
    """
    return UNREACHABLE if run.provider_id is None and cause.blame is Blame.PROVIDER else NOT_SUCCEEDED


@contextmanager
def session(
    app: App, record: Record, provider: str, *, project: str | None = None, adopt: bool = True, stays: bool = False
) -> Iterator[RunSession]:
    """A session with a provider, closed (lease released) afterwards; `adopt` as in `watching`, `stays`: a recorder
    follows, which stops idle machines. Raises `RecordNotWritable` if the lease cannot be opened; nothing was requested.
    """
    with (
        closing(app.provider(provider, record.store, project=project)) as found,
        watching(app, record, found, adopt=adopt) as recorder,
    ):
        recorder.stays = stays
        if found.keeper is not None and (lease := record.store.lease(found.keeper)) is not None:
            lease.release()
            raise Conflict(f"nobody records {found.keeper}: start `steno up` first, with the same settings")
        yield RunSession(app, record, found, recorder)
        # This process must also submit what it placed: no other process may be running.
        recorder.effects.wait(DRAIN_TIMEOUT, until=lambda: not recorder.effects.busy)
