"""Brings a request to its outcome: carries it out if the lease is free, else waits for the lease's holder."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from steno.engine.control.actor import BEGIN, END, is_halted
from steno.engine.control.effects import Effect
from steno.engine.control.submitter import REFUSALS
from steno.engine.errors import (
    Conflict,
    ProviderError,
    ProviderRefused,
    ProviderUnreachable,
    RefusedByPolicy,
    RunNotFound,
)
from steno.engine.state.outbox import OpenSubmit, Outbox
from steno.events import types
from steno.events.clock import SECOND

if TYPE_CHECKING:
    from steno.engine.control.controller import Controller

LOOK = SECOND // 10  # microseconds between looks for an outcome of another process
OUTAGE = 10 * SECOND  # microseconds without an answer to another process after which waiting for it ends
LONG = 5 * SECOND  # microseconds: after an unanswered round that took longer, nothing further is asked
CALL_TIMEOUT = 150 * SECOND  # microseconds after which no call is under way: each has a shorter time limit of its own


class Dispatcher:
    """Waits for the outcomes of the requests of one process. ProviderUnreachable, ProviderRefused and ProviderError
    mean that the provider may have acted: the request stays open and is retried.
    """

    def __init__(self, controller: "Controller") -> None:
        """Create before the first request: a lease that cannot be opened is RecordNotWritable before any request."""
        controller.hold()
        self._recorder = controller
        self._journal = controller.journal
        self._actor = controller.actor
        self._effects = controller.effects
        self._clock = controller.clock

    def submitted(self, run_id: str, timeout: int) -> types.Event | None:
        """The outcome of a submission, or why it waits in the queue; None after `timeout` microseconds."""

        def outcome(outbox: Outbox) -> types.Event | int | None:
            submit = outbox.submits.get(run_id)
            return outbox.outcomes.get(run_id) if submit is None else submit.held

        event = self._acted(outcome, lambda: self._submit(run_id), timeout)
        source = self._recorder.world.state.sources.get(self._recorder.source)
        if event is None and source is not None and source.silent:  # other endpoints answer, but not the submission's
            raise self._unanswered()
        return event

    def stopped(self, run_id: str, timeout: int) -> types.Event | None:
        """The outcome of the stop of a run; None after `timeout` microseconds."""
        return self._acted(lambda outbox: outbox.stop_outcomes.get(run_id), lambda: self._stop(run_id), timeout)

    def machine_stopped(self, vm_id: str, after: int, timeout: int) -> types.Event | None:
        """The outcome of the stop of a machine requested at position `after`; None after `timeout` microseconds: the
        machine is drained first, and a run on it may have to end.
        """

        def outcome(outbox: Outbox) -> int | None:
            position = outbox.vm_outcomes.get(vm_id) or 0
            return position if position > after else None

        return self._acted(outcome, lambda: self._effects.wait(min(SECOND, self._recorder.watch().pause)), timeout)

    def _acted(
        self, outcome: Callable[[Outbox], types.Event | int | None], act: Callable[[], None], timeout: int
    ) -> types.Event | None:
        """The outcome, or None when the time is up: act while the lease is free, else wait for its holder."""
        began = self._clock.now()
        while (result := outcome(self._journal.outbox())) is None and self._clock.now() < began + timeout:
            if self._recorder.hold():
                act()
            else:
                self._clock.sleep(LOOK)
                self._expect_answers(began)
        return self._journal.event(result) if isinstance(result, int) else result

    def _expect_answers(self, began: int) -> None:
        self._recorder.catch_up()
        source = self._recorder.world.state.sources.get(self._recorder.source)
        if source is None or not (source.failed or source.last_answered is None):
            return
        since = began if source.last_answered is None else source.last_answered
        if self._newest_failure() is not None and self._clock.now() - since > OUTAGE:
            raise self._unanswered()

    def _newest_failure(self) -> str | None:
        record = self._journal.record
        stream = f"source/{self._recorder.source}"
        failed = next(iter(record.read(stream=stream, types={"PollFailed"}, backwards=True, limit=1)), None)
        poll = None if failed is None else record.poll(failed.position)
        return None if poll is None else poll.error or f"status {poll.status}"

    def _unanswered(self) -> ProviderUnreachable:
        why = self._newest_failure() or "no answer"
        return ProviderUnreachable(f"{self._recorder.source} does not answer the process that records it ({why})")

    def _submit(self, run_id: str) -> None:
        """Run one round of decisions; without a result, ask the provider for the reason."""
        began, key = self._clock.now(), f"run/{run_id}"
        done = self._recorder.act() if self._recorder.policy.free else self._recorder.watch()
        submit = self._journal.outbox().submits.get(run_id)
        if submit is not None and done.polls and not done.answered and not self._effects.has(key):
            self._not_reached(submit, done.trouble, self._clock.now() - began)
            return
        halted = is_halted(self._recorder.world.state, run_id)
        if submit is not None and submit.handed and not halted and key not in self._effects.errors:
            # An earlier run in trouble may block the queue: this one is tried all the same.
            self._effects.start(BEGIN, key, self._actor.submitter.submit(submit))

        def is_settled() -> bool:
            submit = self._journal.outbox().submits.get(run_id)
            return submit is None or submit.held is not None or key in self._effects.errors

        self._effects.wait(done.pause, until=is_settled)
        if run_id in self._journal.outbox().submits and key in self._effects.errors:
            raise self._effects.errors[key]

    def _not_reached(self, submit: OpenSubmit, trouble: str | None, took: int) -> None:
        """Raise the reason, from one more call if that is quick. A request that was not submitted fails with it,
        because the caller waits for the answer.
        """
        try:
            if took > LONG:
                raise ProviderUnreachable(f"no answer from {self._recorder.source} ({trouble}); is the server up?")
            call = self._actor.submitter.submit if submit.handed else self._actor.submitter.look
            self._carry_out(submit.request.run_id, call(submit))
        except (ProviderUnreachable, ProviderRefused, ProviderError) as error:
            if submit.handed:
                raise
            self._actor.submitter.fail(submit, error)

    def _stop(self, run_id: str) -> None:
        """Carry out what is open of one run: its submission first, because that checks for a stop."""
        submit = self._journal.outbox().submits.get(run_id)
        if submit is not None:
            self._carry_out(run_id, self._actor.submitter.submit(submit))
        stop = self._journal.outbox().stops.get(run_id)
        if stop is not None:
            self._carry_out(run_id, self._actor.stop_run(stop, self._recorder.world.state.runs.get(run_id)))

    def _carry_out(self, run_id: str, effect: Effect) -> None:
        """Carry an effect on one run to its end; raises its errors."""
        key = f"run/{run_id}"
        self._effects.start(END, key, effect)
        self._effects.wait(CALL_TIMEOUT, until=lambda: not self._effects.has(key))
        if key in self._effects.errors:
            raise self._effects.errors[key]


def raise_failure(outcome: types.Event | None) -> None:
    """Raise the error that an outcome stands for; a success, a place in the queue and a stop without a call pass.

    Raises:
        TaskInvalid, NameInUse, ProjectNotFound, ProviderRefused, ProviderUnreachable: the provider does not have it.
        RefusedByPolicy: budget or concurrency do not allow it.
        Conflict: the submission was abandoned, the request has no outcome yet, or another run has the id to be stopped.
        RunNotFound: the provider does not know the run to stop.
    """
    match outcome:
        case types.SubmitFailed():
            raise REFUSALS[outcome.reason](outcome.error)
        case types.IntentAbandoned(policy=True):
            raise RefusedByPolicy(outcome.why)
        case types.IntentAbandoned(intent="submit"):
            raise Conflict(f"nothing was done: {outcome.why}")
        case types.StopFailed():
            raise (Conflict if outcome.other else RunNotFound)(outcome.error)
        case None:
            raise Conflict("the process that holds the provider's lease has not acted yet; the request stays recorded")
        case _:
            pass
