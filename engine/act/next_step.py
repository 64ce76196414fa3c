"""What to do next about an open request: pure decisions, matched once by the code that acts."""

from dataclasses import dataclass

from engine.facts import RunFacts
from engine.fold.outbox import OpenSubmit, Outbox, TakenStop
from engine.fold.run import Run
from engine.states import Reason, State
from events.clock import SECOND

TOO_OLD = 24 * 3600 * SECOND
"""A request that waited longer is abandoned: nobody expects it to start, and to be billed, any more (docs/adr/0005)."""


UNHEARD = 15 * SECOND
"""A run that still goes on this long after the provider accepted a stop was not stopped: a busy server can answer 200
and write the old status back."""


@dataclass(frozen=True, slots=True)
class Call:
    """Hand it to the provider: no call was made before."""


@dataclass(frozen=True, slots=True)
class CheckProvider:
    """A call may have been made: look whether the provider has the run, and only then call again."""

    call_if_missing: bool
    """False where the request is too old to start it now."""


@dataclass(frozen=True, slots=True)
class Wait:
    """It has no place yet, and the controller gives it one; or a person has to say whether the provider has it."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """Never call."""

    why: str


Step = Call | CheckProvider | Wait | Abandon


def next_step(submit: OpenSubmit, ledger: Outbox, now: int, *, looked_at: int | None = None) -> Step:
    """What to do about a submission without an outcome.

    Args:
        looked_at: when the provider last answered a round that decided about the queue (microseconds, UTC). A run that
            waits in a queue somebody works on does not grow old; one that nobody looked after for a day does.
    """
    since = submit.requested_at
    if submit.queued and looked_at is not None:
        since = max(since, looked_at)
    old = now - since > TOO_OLD
    stop = submit.request.run_id in ledger.stops
    if submit.intended is not None:
        if submit.held is not None and submit.held.why == "ambiguous" and not old and not stop:
            return Wait()
        return CheckProvider(call_if_missing=not old and not stop)
    if stop:
        return Abandon("it was stopped before it was handed to the provider")
    if old:
        return Abandon("it waited for more than 24 hours without being handed to the provider; submit it again")
    return Wait() if submit.placed is None else Call()


def unheard(taken: TakenStop, *, facts: RunFacts | None, seen_at: int) -> bool:
    """Whether a stop is to be asked for once more: a later poll shows the run as if nobody had asked.

    Args:
        facts: the run in the provider's newest answer.
        seen_at: when that was (microseconds, UTC).
    """
    if facts is None or facts.status is None or facts.final or facts.state is State.FINISHING:
        return False
    return seen_at - taken.taken_at > UNHEARD


def may_be_made_again(run: Run, patience: int, now: int) -> bool:
    """Whether the same request may still be handed over once more, for want of capacity: until it has started.

    Args:
        patience: how long after its request that is done, microseconds.
    """
    if run.requested_at is None or run.started_at is not None or run.stop_by is not None:
        return False
    return now - run.requested_at <= patience and (not run.terminal or run.reason is Reason.NO_CAPACITY)
