"""Why a verdict is what it is: its rule, the polls that say so, what would flip it, and what was odd or unseen."""

from typing import TYPE_CHECKING

from engine.decide.queue import capacity_sentence
from engine.facts import RunFacts
from engine.fold.queries import policy_of, source_of
from engine.fold.tick import PollReader
from engine.objects import AnomalyObject, RunObject
from engine.providers.readings import READINGS
from engine.rules.flip import flips
from engine.rules.sets import CURRENT
from events.clock import parse_time
from events.errors import PositionNotFound
from events.poll import Poll
from projections.models.evidence import Quote, quote, quote_event
from projections.models.rule_sentences import sentence
from projections.models.timeline import Gap, timeline
from projections.models.view import View
from projections.models.wire import Position, Shape, Time
from projections.store.schema import RunRow
from projections.store.world_table import decode_run

if TYPE_CHECKING:
    from events.store.record import Record


class ExplainedStep(Shape, frozen=True, kw_only=True, rename={"state": "to"}):
    """One transition with the words of the poll that moved the run."""

    position: Position
    at: Time
    state: str
    said: Quote | None


class Explanation(Shape, frozen=True, kw_only=True, rename={"gaps": "blind"}):
    """Everything that speaks for a verdict, and what would speak against it."""

    run: RunObject
    sentence: str
    """What the rule says, in one sentence."""
    rule: str | None
    evidence: tuple[Quote, ...]
    steps: tuple[ExplainedStep, ...]
    flips: tuple[str, ...]
    """One sentence each: had the provider said this instead, the verdict would be another."""
    anomalies: tuple[AnomalyObject, ...]
    gaps: tuple[Gap, ...]


def explain(record: "Record", view: View, row: RunRow, now: int) -> Explanation:
    """Why a run is where it is; reads the polls that moved it.

    Args:
        now: where an open run's time ends (microseconds, UTC).
    """
    folded, run = decode_run(row.folded), view.run(row.run_id)
    positions = {*run.evidence, *(move.position for move in run.transitions)}
    polls = {position: _poll(record, position) for position in positions}

    def said(position: int) -> Quote | None:
        poll = polls[position]
        if poll is not None:
            return _quoted(poll, position, (run.provider_id, *folded.former_ids))
        stored = next(iter(record.read(after=position - 1, limit=1)), None)
        return None if stored is None else quote_event(stored)

    decided = polls[run.evidence[-1]] if run.evidence else None
    facts = None if decided is None else _facts(decided, run.provider_id)
    said_by_rule = sentence(run.rule, facts, run.provider, stop_requested=folded.stop_by is not None)
    capacity = capacity_sentence(folded, policy_of(view.world().state, source_of(folded)), now)
    return Explanation(
        run=run,
        sentence=" ".join(part for part in (said_by_rule, capacity) if part is not None),
        rule=run.rule,
        evidence=tuple(found for position in run.evidence if (found := said(position)) is not None),
        steps=tuple(
            ExplainedStep(position=move.position, at=parse_time(move.at), state=move.target, said=said(move.position))
            for move in run.transitions
        ),
        flips=() if decided is None or facts is None else _flips(decided, facts, folded.stop_by == "policy"),
        anomalies=view.anomalies_of(row.run_id),
        gaps=tuple(
            Gap(source=gap.source, start=gap.start, end=gap.end) for gap in timeline(run, view.blind_of(row), now).gaps
        ),
    )


def _flips(poll: Poll, facts: RunFacts, by_policy: bool) -> tuple[str, ...]:
    """What would have flipped the verdict; nothing where nobody reads the provider's words."""
    reading = READINGS.asked(poll.path, poll.req)[1]
    if reading is None:
        return ()
    found = flips(facts, lambda other: CURRENT.judge(other, stopped_by_policy=by_policy), reading.alternatives(facts))
    return tuple(map(str, found))


def _quoted(poll: Poll, position: int, provider_ids: tuple[str | None, ...]) -> Quote:
    """What a poll said about a run under any of the ids the provider gave it."""
    quotes = (quote(poll, position, provider_id) for provider_id in provider_ids)
    first = next(quotes)
    return first if first.fields else next((other for other in quotes if other.fields), first)


def _poll(record: "Record", position: int) -> Poll | None:
    """The poll there; None where one of our own intents stands."""
    try:
        return record.poll(position)
    except PositionNotFound:
        return None


def _facts(poll: Poll, provider_id: str | None) -> RunFacts | None:
    """What a poll says about a run, as the rules read it."""
    shown = (seen.facts for seen in PollReader(READINGS).read(0, poll).runs)
    return next((facts for facts in shown if facts.provider_id == provider_id), None)
