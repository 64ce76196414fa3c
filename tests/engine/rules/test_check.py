"""`steno rules check` finds nothing false, and leaves nothing out."""

from collections.abc import Iterator
from itertools import islice, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.cases import many_cases, row_texts
from stenotest.rule_texts import rule_text

from steno.engine.rules.cases import AttemptCase, RunCase
from steno.engine.rules.check import check_rules
from steno.engine.rules.rows import Conditions, RuleRow, judge_by
from steno.engine.rules.rule_file import RuleFile, read_rules
from steno.engine.rules.solver import Mode, Space, meet
from steno.engine.rules.words import ATTEMPT, RUN, Box, Exits, Values
from steno.engine.state.states import Reason, State

DERIVED = {"over", "attempts", "decided"}
MANY = st.integers(0, 1 << 32).map(many_cases)


def readable(*rows: str, extends: str | None = None) -> RuleFile:
    """The file of those rows that can be read: some contradict themselves."""
    file, _ = read_rules(rule_text("".join(rows), extends=extends))
    assert file is not None
    return file


def deciding_row(file: RuleFile, case: RunCase) -> str:
    return judge_by(file.rows, "x", None)(case).rule.removeprefix("x/")


@settings(max_examples=60)
@given(rows=st.lists(row_texts(), min_size=1, max_size=5), cases=MANY)
def test_no_case_contradicts_a_finding(rows: list[str], cases: list[RunCase]) -> None:
    """A row that is called hidden or impossible decides no case, and a set without a gap leaves none."""
    file = readable(*rows)
    findings = check_rules(file)
    dead = {finding.line for finding in findings if finding.kind in ("hidden", "never")}
    named = {row.name: row for row in file.rows}
    for case in cases:
        row = deciding_row(file, case)
        if row == "no-row":
            assert "gap" in {finding.kind for finding in findings}
        else:
            assert named[row].line not in dead


@settings(max_examples=150)
@given(row=row_texts(), cases=MANY)
def test_a_row_matches_the_cases_of_its_terms_and_no_others(row: str, cases: list[RunCase]) -> None:
    """The solver's terms and modes, back in words, mean the same as the row; `over` is put in other words."""
    file = readable(row)
    space = Space([row.when for row in file.rows], steps=1)
    for row_read in file.rows:
        parts = [meet(term, mode.term) for mode in space.modes for term in space.terms(row_read.when)]
        words = [RuleRow(name="part", line=1, when=space.conditions(part), state=None) for part in parts]
        as_parts, as_row = judge_by(words, "x", None), judge_by([row_read], "x", None)
        for case in cases:
            assert (as_parts(case).rule == "x/part") == (as_row(case).rule != "x/no-row"), case


@settings(max_examples=30)
@given(rows=st.lists(row_texts(), min_size=1, max_size=4))
def test_what_no_finding_is_about_has_a_case(rows: list[str]) -> None:
    """Each part that the solver leaves of a row, or of all cases, has a case that this row decides, or none."""
    file = readable(*rows)
    space = Space([row.when for row in file.rows], steps=100_000)
    before = []
    wanted: list[tuple[RuleRow | None, tuple[Conditions, Mode]]] = []
    for row in file.rows:
        terms = space.terms(row.when)
        parts = ((mode, meet(term, mode.term)) for mode in space.modes for term in terms)
        left = ((part, mode) for mode, term in parts for part in space.without(term, before, mode))
        wanted += [(row, (space.conditions(part), mode)) for part, mode in islice(left, 3)]
        before += terms
    gaps = ((part, mode) for mode in space.modes for part in space.without(mode.term, before, mode))
    wanted += [(None, (space.conditions(part), mode)) for part, mode in islice(gaps, 3)]
    for row, (when, mode) in wanted:
        decides = {deciding_row(file, case) for case in islice(cases_of(when, same=mode.same), 1_600)}
        assert (row.name if row is not None else "no-row") in decides, str(when)


def cases_of(when: Conditions, *, same: bool) -> Iterator[RunCase]:
    """Some cases of conditions; by the solver such cases exist."""
    run = dict(when.run)
    allowed = {word: listed(run.get(word, RUN[word])) for word in RUN if word not in DERIVED}
    picks: list[list[AttemptCase]] = []
    if True in run.get("attempts", {True}):
        first = when.deciding + when.first if same else when.first
        picks.append(attempts_in(first, when.no))
    if when.deciding and not same:
        picks.append(attempts_in(when.deciding, when.no))
    picks += [attempts_in(box, when.no) for box in when.some]
    alone = [()] if False in run.get("attempts", {False}) and not when.some and not when.deciding else []
    for attempts in (*alone, *islice(product(*picks), 150 if picks else 0)):
        for number in range(8):  # in each step another mixture of the words' values
            values = {
                word: there[(number >> place % 5) % len(there)] for place, (word, there) in enumerate(allowed.items())
            }
            yield RunCase(**values, attempts=tuple(dict.fromkeys(attempts)))


def attempts_in(box: Box, no: tuple[Box, ...]) -> list[AttemptCase]:
    domains = {word: listed(values) for word, values in ATTEMPT.items() if word != "fails"}
    for word, values in box:
        if word != "fails":
            domains[word] = [value for value in domains[word] if value in values] or listed(values)
    attempts = (AttemptCase(**dict(zip(domains, values, strict=True))) for values in product(*domains.values()))
    inside = [made for made in attempts if is_in(box, made) and not any(is_in(other, made) for other in no)]
    return inside[:: 1 + len(inside) // 12]  # of every kind: the deciding attempt must outrank the first


def is_in(box: Box, attempt: AttemptCase) -> bool:
    return all(getattr(attempt, word) in values for word, values in box)


def listed(values: Values) -> list[object]:
    if isinstance(values, Exits):
        return [status for status in (None, 0, 1, 2, 137, 138, -1) if status in values]
    order = [None, "interrupted", "exit_zero", "provider_error", "exit_nonzero", State.RUNNING, State.FINISHING]
    return sorted(values, key=lambda value: (order.index(value) if value in order else 99, str(value)))[:8]


ENDS: dict[str, tuple[AttemptCase, ...]] = {
    "none": (),
    "exited": (AttemptCase(ended=True, exit_status=0),),
    "unexplained": (AttemptCase(ended=True),),
    "retried": (AttemptCase(ended=True, exit_status=1, retried=True),),
    "worker": (
        AttemptCase(ended=True, exit_status=0),
        AttemptCase(ended=True, exit_status=1, failed=True, decides=False),
    ),
    "going, its cause known": (AttemptCase(cause=Reason.INTERRUPTED),),
    "going": (AttemptCase(ended=True, exit_status=0), AttemptCase(state=State.RUNNING)),
}


@pytest.mark.parametrize("attempts", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("over", ["true", "false"])
def test_over_means_to_the_solver_what_it_means_to_the_rules(attempts: tuple[AttemptCase, ...], over: str) -> None:
    """Each way in which an observation is decisive, or fails to be."""
    (row,) = readable(f'\n[[row]]\nwhen.over = {over}\nthen = {{ state = "unchanged" }}\n').rows
    space = Space([row.when], steps=1)
    words = [RuleRow(name="part", line=1, when=space.conditions(term), state=None) for term in space.terms(row.when)]
    as_parts, as_row = judge_by(words, "x", None), judge_by([row], "x", None)
    for final, finite, requeued, bare, state in product(*[(False, True)] * 4, (None, State.FINISHING)):
        case = RunCase(final=final, finite=finite, requeued=requeued, bare=bare, state=state, attempts=attempts)
        assert (as_parts(case).rule == "x/part") == (as_row(case).rule == "x/row-1"), case


@pytest.mark.parametrize("quantifier", ["any", "all", "no"])
def test_rows_that_overlap_in_too_many_ways_end_undecided(quantifier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps are counted in each question too: one of a row about 1,500 exit statuses took minutes."""
    monkeypatch.setattr("steno.engine.rules.check.STEPS", 30_000)
    row = '\n[[row]]\nwhen.over = true\nwhen.%s = { exit_status = %d }\nthen = { state = "unchanged" }\n'
    rows = (row % (quantifier, status) for status in range(2, 1_502))
    assert "undecided" in {finding.kind for finding in check_rules(readable(*rows))}
