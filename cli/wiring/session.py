"""A session with one provider: submits runs, stops them, follows them to their end, and races several of them."""

import getpass
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from steno.cli.render import words
from steno.cli.render.runs import ended
from steno.cli.wiring.app import App
from steno.cli.wiring.errors import NOT_SUCCEEDED, UNREACHABLE, Detached, WaitEnded
from steno.cli.wiring.output import emit, emit_json, hint, show
from steno.cli.wiring.run_output import OutputPrinter, RunProgress
from steno.engine.control.controller import Controller
from steno.engine.control.dispatcher import Dispatcher, raise_failure
from steno.engine.control.effects import DRAIN_TIMEOUT
from steno.engine.decide.decisions import winner
from steno.engine.decide.queue import may_be_made_again, queue
from steno.engine.errors import Conflict, ProviderError, ProviderRefused, ProviderUnreachable, TaskInvalid
from steno.engine.money.costs import Costs
from steno.engine.money.use_split import split_of_run
from steno.engine.objects import RunObject, run_object
from steno.engine.providers.base import Provider
from steno.engine.providers.task import Completed
from steno.engine.replay.result import fill_costs
from steno.engine.rules.sets import CURRENT
from steno.engine.rules.why_ended import EndCause, cause_now
from steno.engine.runtime.controllers import watching
from steno.engine.runtime.signals import stoppable
from steno.engine.state.facts import Blame
from steno.engine.state.inventory import race_of
from steno.engine.state.policy import Policy
from steno.engine.state.run import Run
from steno.engine.state.sources import observability
from steno.engine.state.states import State
from steno.engine.submit.requests import policy_in_force, request_stop, submit
from steno.events import types
from steno.events.clock import SECOND
from steno.events.errors import StenoError
from steno.events.store.record import Record

if TYPE_CHECKING:
    from steno.engine.decide.start_estimate import StartEstimate
    from steno.projections.answers.kernel import Status
    from steno.projections.answers.output_cause import OutputCause

OUTCOME_TIMEOUT = 60 * SECOND  # wait for the outcome while another process holds the lease
END_TIMEOUT = 30 * SECOND  # then wait for the end: a stop needs at most 2 s, an abort 30 s
OUTPUT_TIMEOUT = 3 * SECOND  # wait for another process to record the rest of an output
_LOOK = SECOND // 5
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

    def __init__(self, app: App, record: Record, provider: Provider, controller: Controller) -> None:
        self._app = app
        self._record = record
        self._provider = provider
        self._recorder = controller
        self._dispatcher = Dispatcher(controller)
        self.ended: list[str] = []  # the ids of runs that it followed to their end

    def submit(self, task: Completed, run_id: str) -> SubmittedRun:
        """Request the run, and wait until the provider or the queue has it. Raises `RefusedByPolicy` (nothing was
        requested); `TaskInvalid`, `NameInUse`, `ProjectNotFound` (refused: the run has ended); `ProviderUnreachable`,
        `ProviderRefused`, `ProviderError` (it stays requested; the message says what to do).
        """
        journal, provider, policy = self._recorder.journal, self._provider, self._policy()
        accepted = submit(
            journal,
            run_id=run_id,
            provider=provider.name,
            project=provider.project,
            task=task,
            submitter=getpass.getuser(),
            newest=lambda: nullcontext((journal.state(), policy, self._app.clock.now())),
        )
        if policy.budget_total is not None and accepted.worst is not None and accepted.worst.amount is None:
            hint(accepted.worst.lines[0])
        silence = threading.Timer(SILENCE, self._hint_at_silence)
        silence.daemon = True
        silence.start()
        try:
            outcome = self._dispatcher.submitted(run_id, OUTCOME_TIMEOUT)
        except (ProviderUnreachable, ProviderRefused, ProviderError) as error:
            then = f"`steno up` submits it later, `steno stop {task.name}` cancels it"
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
            provider_id=None if queued else journal.outbox().provider_ids[run_id],
            name=task.name,
            provider=provider.name,
            project=provider.project,
            position=accepted.position,
            state="queued" if queued else "requested",
            queued=queued,
        )

    def _policy(self) -> Policy:
        """The policy that a submission must fit: that of the process that acts, with a smaller budget of this shell."""
        own = self._recorder.policy
        if self._recorder.holds:
            return own
        there = policy_in_force(self._recorder.world.state, self._provider.source, self._app.settings)
        totals = [total for total in (own.budget_total, there.budget_total) if total is not None]
        return msgspec.structs.replace(there, budget_total=min(totals, default=None))

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
        from steno.projections.answers.evidence import message_of

        run = self.run(run_id)
        return cause_now(run, self._recorder.world.state, self._app.clock.now(), message_of(self._record, run))

    def output_cause(self, run: RunObject) -> "OutputCause | None":
        """The line of its output that explains the end of a run that was followed; None: not all is recorded yet, by
        this process or by another.
        """
        from steno.projections.answers.output_cause import OutputCauses

        self._recorder.end_output(run.run_id)
        for _ in range(0, 0 if run.provider_id is None else OUTPUT_TIMEOUT, _LOOK):
            if self._is_recorded(run.run_id):
                causes = OutputCauses(self._app.settings.value("causes.rules"))
                return causes.of(self._record, run, run.provider_id)
            self._recorder.effects.wait(_LOOK)
        return None

    def _is_recorded(self, run_id: str) -> bool:
        """True if all of the run's output is in the record."""
        newest = self._record.read(stream=f"run/{run_id}", types={"OutputRecorded"}, backwards=True, limit=1)
        return any(isinstance(stored.data, types.OutputRecorded) and stored.data.last for stored in newest)

    def start(self, run_id: str) -> "StartEstimate | None":
        """When it may start, by the record; None: it does not wait."""
        from steno.engine.decide.start_estimate import start_estimate

        state = self._recorder.world.state
        run = state.runs.get(run_id)
        return None if run is None else start_estimate(state, run, self._app.clock.now())

    def run(self, run_id: str) -> Run:
        return self._recorder.world.state.runs[run_id]

    def kernel_story(self, run_id: str) -> "tuple[Status, ...]":
        """The statuses so far of a kernel run."""
        from steno.projections.answers.kernel import facts_of, story_of

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
                done = self._recorder.watch()
                run = self._run(run_id)
                if output and run is not None:
                    self._print(run, printers, live)
                over = run is not None and run.ended and not self.goes_on(run_id)
                if run is not None and (over or (run.next_at is not None and not schedules)):
                    for missing in filter(None, (printer.end() for printer in printers.values())):
                        hint(f"the output may be incomplete: {missing}; `steno logs {name}` reads it again")
                    live.show(run)
                    self.ended += [run_id] * run.ended
                    return run
                now = clock.now()
                source = self._recorder.world.state.sources.get(self._provider.source)
                seen = str(observability(source, now)) if done.trouble else "fresh"
                live.show(run, seen, self._waits(run_id))
                left = None if timeout is None else began + timeout - now
                if left is not None and left <= 0:
                    return None
                self._recorder.effects.wait(done.pause if left is None else min(done.pause, left))

    def goes_on(self, run_id: str) -> bool:
        """True if a process that acts is about to submit it again."""
        state = self._recorder.world.state
        patience = policy_in_force(state, self._provider.source, self._app.settings).queue_patience
        return may_be_made_again(state.runs[run_id], patience, self._app.clock.now())

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
        for place in queue(state, source, self._recorder.policy, self._app.clock.now()):
            if place.run_id == run_id:
                start = place.estimated_start
                about = "" if start is None else f", starts about {words.moment(start)}"
                return f"position {place.position}{about}: {place.detail or place.why}"
        return None

    def _run(self, run_id: str) -> RunObject | None:
        run: Run | None = self._recorder.world.state.runs.get(run_id)
        if run is None:
            return None
        fill_costs(self._record, [run])
        costs = Costs(self._recorder.world.state)
        return run_object(run, CURRENT, costs.of_run(run_id), split_of_run(costs, run_id))


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
        closing(app.provider(provider, record.store, project=project)) as opened,
        watching(app, record, opened, adopt=adopt) as controller,
    ):
        controller.stays = stays
        if opened.keeper is not None and (lease := record.store.lease(opened.keeper)) is not None:
            lease.release()
            raise Conflict(f"nobody records {opened.keeper}: start `steno up` first, with the same settings")
        here = RunSession(app, record, opened, controller)
        yield here
        for run_id in here.ended:  # without a recorder nobody else records the rest
            controller.end_output(run_id)
        # This process must also submit what it placed: no other process may be running.
        controller.effects.wait(DRAIN_TIMEOUT, until=lambda: not controller.effects.busy)


def run_race(app: App, tasks: Sequence[Completed], *, wait: bool, give_up_after: int | None) -> None:
    """Submit the runs, wait until one runs and, with `wait`, follow it and its output to its end; refused runs drop out
    with a line. Raises `TaskInvalid` if all are refused, `WaitEnded` after `give_up_after`, `Detached` on Ctrl-C; while
    none runs, the last two stop all.
    """
    with app.writing() as record, session(app, record, app.settings.provider) as here:
        submitted: list[str] = []
        refusals: list[str] = []
        for task in tasks:
            run_id = app.ids.new()
            try:
                here.submit(task, run_id)
            except Conflict:  # another one runs already, so this one was stopped before it was handed over
                break
            except TaskInvalid as error:
                refusals.append(f"{task.name}: {error}")
                hint(refusals[-1])
            else:
                submitted.append(run_id)
        if not submitted:
            raise TaskInvalid(refusals[0] if refusals else "there is nothing to run")
        if not wait:
            names = [here.run(run_id).name for run_id in submitted]
            show(app, {"runs": submitted}, "\n".join(map(str, names)))
            return
        won = _first(app, here, submitted, give_up_after)
        name = won.name or won.run_id
        hint(f"{name} runs")
        run = here.to_the_end(won, output=not app.json)
        if run.state != "succeeded":
            app.exit_code = code_of_failure(here.run(won.run_id), here.cause(won.run_id))
    if app.json:
        emit_json(run)
    else:
        emit(ended(run))


def _first(app: App, here: RunSession, submitted: Sequence[str], give_up_after: int | None) -> Run:
    """The first run that runs; until then, print why each waits, when that changes."""
    began, printed = app.clock.now(), dict[str, str]()
    try:
        with stoppable(signal.SIGINT, KeyboardInterrupt) as interrupted:
            while True:
                interrupted()
                pause = here.watch()
                runs = [here.run(run_id) for run_id in submitted]
                won = winner(run for run in runs if race_of(run) is not None)
                if won is not None:
                    return won
                if all(run.terminal and not here.goes_on(run.run_id) for run in runs):
                    return runs[0]
                for run in runs:
                    waits = None if run.facts is None else run.facts.waits
                    why = run.state.value if waits is None else str(waits)
                    if printed.get(run.run_id) != why:
                        printed[run.run_id] = why
                        hint(f"{run.name}: {why}")
                left = None if give_up_after is None else began + give_up_after - app.clock.now()
                if left is not None and left <= 0:
                    raise WaitEnded("none of them ran in time; all were stopped: `steno ps` lists them")
                here.pause(pause if left is None else min(pause, left))
    except (KeyboardInterrupt, WaitEnded) as error:
        for each in submitted:
            run = here.run(each)
            if not run.terminal:
                try:
                    here.stop(run, abort=False)
                except StenoError as problem:
                    hint(f"{run.name}: {problem}")
        if isinstance(error, KeyboardInterrupt):
            raise Detached("all of them were stopped: `steno ps` lists them") from None
        raise
