"""The decisions of a policy about one run or machine: each with its reason and the polls that it stands on."""

from heapq import merge
from itertools import islice
from typing import Final

from steno.engine.decide.audit import is_decision, subject_of
from steno.engine.decide.decisions import DECISIONS
from steno.engine.decide.why_decided import why_decided
from steno.engine.fold.record_time import record_time
from steno.engine.state.run import Run
from steno.engine.state.vm import Vm
from steno.engine.state.world import World, source_of
from steno.engine.wire import Position, Shape, Time
from steno.events.store.record import Record

_POLLS: Final = frozenset({"PollRecorded"})
_LOOKED_AT: Final = 12  # polls before a decision among which the newest answer to each question is looked for
_MOST: Final = 20  # decisions shown, the newest


class ExplainedDecision(Shape, frozen=True, kw_only=True):
    """A decision, why it was made, and the newest answers that were known then."""

    position: Position
    at: Time
    decision: str
    why: str
    polls: tuple[Position, ...]  # oldest first; `steno poll POSITION` prints one
    software: str | None  # the version that decided; None: an older version, which did not say so


def decisions_about(record: Record, state: World, thing: Run | Vm, until: int) -> tuple[ExplainedDecision, ...]:
    """The newest decisions about a run or machine up to a position, oldest first."""
    source = source_of(thing) if isinstance(thing, Run) else thing.source
    stream = f"run/{thing.run_id}" if isinstance(thing, Run) else f"vm/{thing.vm_id}"
    streams = (stream, f"queue/{source}") if isinstance(thing, Run) else (stream,)
    pages = (
        record.read(after=thing.first_position - 1, until=until, stream=name, types=DECISIONS, backwards=True)
        for name in streams
    )
    newest = merge(*pages, key=lambda stored: stored.position, reverse=True)
    made = (stored for stored in newest if is_decision(stored.data) and subject_of(stored.data) == stream)
    explained = []
    for stored in islice(made, _MOST):
        decision = stored.data
        if not is_decision(decision):
            continue
        at, decided = record_time(state, stored), decision.decided_at
        world = stored.position - 1 if decided is None else decided.position
        answers: dict[int | None, int] = {}
        for poll in record.read(until=world, stream=f"source/{source}", types=_POLLS, limit=_LOOKED_AT, backwards=True):
            answers.setdefault(poll.scope, poll.position)
        explained.append(
            ExplainedDecision(
                position=stored.position,
                at=at,
                decision=stored.type,
                why=why_decided(state, decision, at),
                polls=tuple(sorted(answers.values())),
                software=None if decided is None else decided.software,
            )
        )
    return tuple(reversed(explained))
