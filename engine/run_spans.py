"""The states of a run as spans of time, by the times of its provider: those of the timeline and of its trace."""

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

from steno.engine.objects import RunObject
from steno.engine.state.run import Attempt
from steno.events.clock import parse_time

StateSpan = tuple[str, int, int, int | None, int | None]  # (state, attempt, start, end, position)
_WAITS: Final = ("requested", "queued")
_RUNS: Final = ("provisioning", "pulling", "running")


def state_spans(
    run: RunObject, later: Sequence[Attempt], waited: tuple[int, int] | None
) -> tuple[list[StateSpan], int | None]:
    """(the states, when the last ended; None: it goes on). `later`: attempts after the first; `waited`: from request to
    first move; None: it was submitted elsewhere.
    """
    held: list[StateSpan] = [] if waited is None else [("requested", 1, *waited, None)]
    verdict = parse_time(run.transitions[-1].at) if run.ended and run.transitions else None
    return _dated(run, held + _held(run, later), verdict)


def _held(run: RunObject, later: Sequence[Attempt]) -> list[StateSpan]:
    """The run's states in order, without those of no duration. A requeue belongs to the attempt that follows, which the
    provider may show only later.
    """
    spans: list[StateSpan] = []
    moves = run.transitions
    for index, move in enumerate(moves):
        known = move.position
        if move.target == "queued" and move.origin not in {None, "requested"}:
            known = moves[index + 1].position if index + 1 < len(moves) else later[-1].position if later else known
        attempt = max((retry.number for retry in later if retry.position <= known), default=1)
        start = parse_time(move.at)
        last = index == len(moves) - 1
        if last and run.ended:
            break
        end = None if last else parse_time(moves[index + 1].at)
        if end == start and moves[index + 1].target != move.target and not last:
            continue
        spans.append((move.target, attempt, start, end, move.position))
    return spans


def _dated(run: RunObject, held: list[StateSpan], verdict: int | None) -> tuple[list[StateSpan], int | None]:
    """The states, and when the last ended, by the times that the provider gives for its attempts rather than by those
    of the polls that showed them. An attempt that no poll showed running ran all the same.
    """
    attempts = run.attempt_list
    began = {attempt.number: parse_time(attempt.started_at) for attempt in attempts if attempt.started_at is not None}
    ended = {attempt.number: parse_time(attempt.finished_at) for attempt in attempts if attempt.finished_at is not None}
    if not began or not held:
        return held, verdict
    spans: list[StateSpan] = []
    for span, follows in zip_longest(held, held[1:]):
        state, attempt, _, end, position = span
        runs = follows is not None and follows[0] in _RUNS and follows[1] == attempt
        spans.append(span)
        if state in _WAITS and attempt in began and attempt in ended and end is not None and not runs:
            spans.append(("running", attempt, end, end, position))
    dated: list[StateSpan] = []
    before: StateSpan | None = None
    for span in spans:
        state, attempt, begin, end, position = span
        if state in _RUNS and attempt in began and (before is None or before[0] not in _RUNS or before[1] != attempt):
            begin = began[attempt]
        elif state not in _RUNS and before is not None and before[0] in _RUNS:
            begin = ended.get(before[1], begin)
        if dated:
            begin = max(begin, dated[-1][2])
            dated[-1] = (*dated[-1][:3], begin, dated[-1][4])
        dated.append((state, attempt, begin, end, position))
        before = span
    state, attempt, begin, _, position = dated[-1]
    if verdict is not None and state in _RUNS and attempt in ended:
        verdict = max(begin, ended[attempt])
        dated[-1] = (state, attempt, begin, verdict, position)
    return [span for span in dated if span[3] is None or span[3] > span[2] or span[0] == "running"], verdict
