"""Rows: what a rule file says of a case. The first row that matches gives state and reason; all else of the move (exit
status, whether the run is put back into the queue, whether it may lag) follows from the case, as in `current`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Final

import msgspec

from steno.engine.rules.cases import AttemptCase, RunCase
from steno.engine.rules.sets import Live, Move, Verdict, decider_of, decisive, exit_status_of, progress
from steno.engine.rules.words import Box, box_text
from steno.engine.state.states import Reason, State

COPIED: Final = "deciding.cause"  # as a reason: that of the attempt that decided
UNCHANGED: Final = "unchanged"  # as a state: the run stays where it is
_REMEMBERED: Final = 4096  # cases: a record has some hundred


class Conditions(msgspec.Struct, frozen=True, kw_only=True):
    """All of them must hold."""

    run: Box = ()
    first: Box = ()  # of the first job's newest attempt, if it shows one
    deciding: Box = ()  # of the attempt that decided that the run failed
    some: tuple[Box, ...] = ()  # for each box there is an attempt in it
    no: tuple[Box, ...] = ()  # no attempt is in any

    def boxes(self) -> Iterator[tuple[str, Box]]:
        """Each box with the word that a file has for it, none for the run's."""
        yield from (("", self.run), ("first", self.first), ("deciding", self.deciding))
        yield from (*(("any", box) for box in self.some), *(("no", box) for box in self.no))

    def __str__(self) -> str:
        texts = ((name, box_text(box)) for name, box in self.boxes() if box or name in ("any", "no"))
        return (
            ", ".join(f"{name} = {f'{{ {text} }}' if text else '{}'}" if name else text for name, text in texts)
            or "always"
        )


class RuleRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    line: int  # of its `[[row]]`, from 1
    when: Conditions
    state: State | None  # None: it stays where it is
    reason: Reason | str | None = None  # of a verdict; `COPIED`

    @property
    def then(self) -> str:
        return "/".join(filter(None, (self.state or UNCHANGED, self.reason)))


def judge_by(rows: Sequence[RuleRow], prefix: str, base: Callable[[RunCase], Move] | None) -> Callable[[RunCase], Move]:
    """Judges by the first row that matches, else by `base`; None: nothing is said of cases without a row."""

    @lru_cache(maxsize=_REMEMBERED)
    def judge(case: RunCase) -> Move:
        deciding = decider_of(case)
        over, decided = decisive(case) is not None, deciding is not None
        derived = {"over": over, "decided": decided, "attempts": bool(case.attempts)}
        for row in rows:
            if _matches(row.when, case, deciding, derived):
                return _move(row, f"{prefix}/{row.name}", case, deciding)
        return Live(state=None, rule=f"{prefix}/no-row", sure=False) if base is None else base(case)

    return judge


def _matches(when: Conditions, case: RunCase, deciding: AttemptCase | None, derived: Mapping[str, bool]) -> bool:
    attempts = case.attempts
    return (
        all((derived[word] if word in derived else getattr(case, word)) in values for word, values in when.run)
        and (not when.first or _is_in(when.first, attempts[0]))
        and (not when.deciding or (deciding is not None and _is_in(when.deciding, deciding)))
        and all(any(_is_in(box, attempt) for attempt in attempts) for box in when.some)
        and not any(_is_in(box, attempt) for box in when.no for attempt in attempts)
    )


def _is_in(box: Box, attempt: AttemptCase) -> bool:
    return all(getattr(attempt, word) in values for word, values in box)


def _move(row: RuleRow, rule: str, case: RunCase, deciding: AttemptCase | None) -> Move:
    if row.reason is None:
        usual = progress(case)
        pending = usual.pending and row.state is State.QUEUED
        return Live(state=row.state, rule=rule, pending=pending, sure=usual.sure)
    reason = deciding.cause if row.reason == COPIED and deciding is not None else row.reason
    assert isinstance(reason, Reason)  # noqa: S101 - a row that copies a cause asks for one
    assert row.state is not None  # noqa: S101 - a row with a reason has a state
    failed = deciding if row.state is State.FAILED else None
    status = exit_status_of(case) if failed is None else failed.exit_status
    return Verdict(state=row.state, reason=reason, exit_status=status, rule=rule)


def words_of(when: Conditions) -> frozenset[tuple[str, str]]:
    """The words that a row tests."""
    return frozenset((name, word) for name, box in when.boxes() for word, _ in box)
