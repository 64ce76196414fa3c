"""Every case that the rules ever saw: how often, since when, in which runs, and what each rule set makes of it."""

from collections.abc import Container, Iterator, Sequence
from itertools import islice
from typing import Annotated, Any

import msgspec
from msgspec import Meta, to_builtins
from msgspec.structs import asdict

from steno.engine.errors import CaseNotFound
from steno.engine.providers.registry import every_rule_set
from steno.engine.rules.case_space import case_words, differ, generated_cases, judged, rules_reached, sees_cases
from steno.engine.rules.cases import RunCase, decode_case
from steno.engine.rules.sets import RuleSet, Verdict
from steno.engine.state.case_log import cases_seen
from steno.engine.state.states import Reason, State
from steno.engine.state.world import World
from steno.engine.wire import Cell, Position, Shape, Tabled, Time
from steno.events.errors import StenoError
from steno.events.store.record import Record
from steno.projections.read_models.view import View

MOST = 10  # runs named as examples of a case
_COLUMNS = ("case", "words", "observations", "runs", "first_position", "last_position", "example")


class RulesSeeFacts(StenoError):
    """The rule set judges more than a case."""


class CaseJudged(Shape, frozen=True, kw_only=True):
    """The move of a rule set for a case."""

    rules: str
    rule: str
    state: State | None
    reason: Reason | None
    exit_status: int | None
    ended: bool
    words: Annotated[str, Meta(description="The verdict, as in `failed/exit_nonzero`, or that there is none yet.")]


class CaseRow(Shape, frozen=True, kw_only=True):
    """A case: all that a rule sees of one observation of a run."""

    case: Annotated[int, Meta(description="Its number in this record, in order of first sight.", ge=1)]
    words: str
    observations: Annotated[int, Meta(description="How often a run came to show it.")]
    runs: int
    first_position: Position
    first_at: Time | None
    last_position: Position
    last_at: Time | None
    example: Annotated[str, Meta(description="The id of the run that showed it first.")]
    sees: Annotated[dict[str, Any], Meta(description="The fields that are off their defaults.")]
    judged: tuple[CaseJudged, ...]


class CaseReport(Tabled, frozen=True, kw_only=True):
    """The cases, in order of first sight."""

    cases: tuple[CaseRow, ...]

    def table(self) -> Iterator[tuple[Cell, ...]]:
        """A row for each case; two columns for each rule set."""
        names = [each.rules for each in self.cases[0].judged] if self.cases else []
        sets = [head for name in names for head in (name, f"{name} rule")]
        yield (*_COLUMNS, *sets)
        for row in self.cases:
            cells = [cell for each in row.judged for cell in (each.words, each.rule)]
            yield (*(getattr(row, name) for name in _COLUMNS), *cells)


class UnseenRule(Shape, frozen=True, kw_only=True):
    """A rule that no observation of this record ever reached, and the smallest case that would."""

    rules: str
    rule: str
    words: str
    sees: dict[str, Any]
    judged: CaseJudged


class CaseExample(Shape, frozen=True, kw_only=True):
    """A run that showed the case, and the poll that first showed it so."""

    run_id: str
    name: str | None
    position: Position
    at: Time | None


class CasePage(CaseRow, frozen=True, kw_only=True):
    """A case and runs that showed it."""

    examples: tuple[CaseExample, ...]


def case_sets(*chosen: RuleSet) -> tuple[RuleSet, ...]:
    """These rule sets, by default all that see cases. RulesSeeFacts: one of them does not."""
    for rules in chosen:
        if not sees_cases(rules):
            raise RulesSeeFacts(
                f"{rules.name} sees more than cases: `steno rules diff {rules.name} current` folds in full"
            )
    return chosen or tuple(filter(sees_cases, every_rule_set().values()))


def numbered_cases(state: World) -> dict[int, RunCase]:
    """number → case, of all that a record showed."""
    return {number: decode_case(text) for text, number in state.cases.items()}


def showings(view: View, cases: Container[int], run_id: str | None = None) -> Iterator[tuple[int, int]]:
    """(place of a run, the position at which it first showed one of these cases), in order of first sight; only of
    `run_id`, if given.
    """
    end = view.position
    for place, log in view.store.cases.all(run_id):
        position = next((entry.position for entry in cases_seen(log) if entry.case in cases), end + 1)
        if position <= end:
            yield place, position


def case_report(
    record: Record, view: View, sets: Sequence[RuleSet], *, state: State | None = None, parting: bool = False
) -> CaseReport:
    """The cases; only those that the first rule set judges to be in `state`, or (`parting`) not all judge alike."""
    rows = (
        CaseRow(
            case=number,
            words=case_words(case),
            observations=seen.observations,
            runs=seen.runs,
            first_position=seen.first,
            first_at=view.time_of(record, seen.first),
            last_position=seen.last,
            last_at=view.time_of(record, seen.last),
            example=view.store.cases.run_id(seen.place),
            sees=to_builtins(case),
            judged=tuple(judgement(rules, case) for rules in sets),
        )
        for number, case, seen in _seen(view)
        if (state is None or judged(sets[0], case).state is state)
        and (not parting or any(differ(sets[0], other, case) for other in sets[1:]))
    )
    return CaseReport(cases=tuple(rows))


def case_page(record: Record, view: View, number: int, sets: Sequence[RuleSet]) -> CasePage:
    """A case with examples. CaseNotFound: the record has no case of that number."""
    row = next((row for row in case_report(record, view, sets).cases if row.case == number), None)
    if row is None:
        there = f"1 to {len(view.state.cases)}" if view.state.cases else "none yet"
        raise CaseNotFound(f"there is no case {number} in this record ({there}); `steno cases` lists them")
    examples = tuple(
        CaseExample(run_id=run_id, name=name, position=position, at=view.time_of(record, position))
        for place, position in islice(showings(view, {number}), MOST)
        for run_id in (view.store.cases.run_id(place),)
        for (name,) in (view.store.runs.columns(run_id, "name") or (None,),)
    )
    return CasePage(**asdict(row), examples=examples)


def unseen_rules(state: World, sets: Sequence[RuleSet]) -> tuple[UnseenRule, ...]:
    """The rules of these sets that no seen case reaches, though some case would."""
    cases = numbered_cases(state).values()
    return tuple(
        UnseenRule(
            rules=rules.name, rule=rule, words=case_words(case), sees=to_builtins(case), judged=judgement(rules, case)
        )
        for rules in sets
        for reached in (rules_reached(rules, cases),)
        for rule, case in rules_reached(rules, generated_cases()).items()
        if rule not in reached
    )


def judgement(rules: RuleSet, case: RunCase) -> CaseJudged:
    move = judged(rules, case)
    return CaseJudged(
        rules=rules.name,
        rule=move.rule,
        state=move.state,
        reason=getattr(move, "reason", None),
        exit_status=getattr(move, "exit_status", None),
        ended=isinstance(move, Verdict),
        words=str(move),
    )


class _Seen(msgspec.Struct):
    """A case in the logs of all runs."""

    first: int
    place: int  # of the run that showed it first
    last: int = 0
    observations: int = 0
    runs: int = 0


def _seen(view: View) -> Iterator[tuple[int, RunCase, _Seen]]:
    """Every case up to the view's position, with its number."""
    seen: dict[int, _Seen] = {}
    for place, log in view.store.cases.all():
        entries = [entry for entry in cases_seen(log) if entry.position <= view.position]
        for position, case in entries:
            row = seen.setdefault(case, _Seen(position, place))
            if position < row.first:
                row.first, row.place = position, place
            row.last = max(row.last, position)
            row.observations += 1
        for case in {entry.case for entry in entries}:
            seen[case].runs += 1
    cases = numbered_cases(view.state)
    yield from ((number, cases[number], seen[number]) for number in cases if number in seen)
