"""Defects of the rows of a rule file, over all possible cases: gaps, overlaps, rows that never decide."""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import reduce
from operator import and_, or_
from typing import Final

from steno.engine.rules.rows import Conditions, RuleRow, words_of
from steno.engine.rules.rule_file import RuleFile, RuleFinding
from steno.engine.rules.solver import Bits, Mode, Space, Term, Undecided, meet

STEPS: Final = 3_000_000  # of the solver: some 20 s
_MOST: Final = 100  # overlaps that are listed
_GAPS: Final = 5
_GOING: Final = Conditions(run=(("over", frozenset({False})),))
_NARROW: Final = 64  # values of a word up to which its rows are looked up by value
Part = tuple[Mode, Term]


class _TermIndex:
    """Terms by the values of their words, as bits of whole numbers: which may share a case with another."""

    def __init__(self, anything: Bits) -> None:
        self._anything = anything
        self._by_value, self._wide = Counter[tuple[int, int]](), Counter[int]()
        """(place, value) → terms that take few values there; place → terms that take many."""
        self._terms: list[tuple[int, Term]] = []  # with the number of their row

    def add(self, row: int, term: Term) -> None:
        bit = 1 << len(self._terms)
        self._terms.append((row, term))
        for place, allowed in enumerate(term.bits):
            if not self._is_narrow(place, allowed):
                self._wide[place] |= bit
                continue
            for value in _bits(allowed):
                self._by_value[place, value] |= bit

    def near(self, term: Term) -> Iterator[tuple[int, Term]]:
        """The terms added so far that may share a case with `term`, in order."""
        left = (1 << len(self._terms)) - 1
        for place, allowed in enumerate(term.bits):
            if self._is_narrow(place, allowed):
                left &= reduce(or_, (self._by_value[place, value] for value in _bits(allowed)), self._wide[place])
        for number in _bits(left):
            row, other = self._terms[number]
            if all(map(and_, term.bits, other.bits)):
                yield row, other

    def _is_narrow(self, place: int, allowed: int) -> bool:
        """True if a term tests the word and takes few of its values."""
        return allowed != self._anything[place] and allowed.bit_count() <= _NARROW


def _bits(number: int) -> Iterator[int]:
    while number:
        low = number & -number
        yield low.bit_length() - 1
        number ^= low


def check_rules(file: RuleFile, bases: Sequence[RuleFile] = ()) -> tuple[RuleFinding, ...]:
    """The findings about a rule file by line; `bases`: the sets that it extends, the nearest first, without `current`.
    Pure; at most `STEPS` steps.
    """
    rows = (*file.rows, *(row for base in bases for row in base.rows))
    space = Space([row.when for row in rows], steps=STEPS)
    findings, row = list[RuleFinding](), None
    try:
        check = _RowCheck(space, file.rows)
        for row in file.rows:
            findings += check.findings(row)
        if (bases[-1] if bases else file).extends is None:
            findings += _gaps(space, rows)
    except Undecided:
        line, what = (row.line, "from here on rows overlap") if row is not None else (1, "its rows overlap")
        text = f"{what} in too many ways to be decided in {STEPS} steps: let fewer rows match the same cases"
        findings.append(RuleFinding(line=line, kind="undecided", text=text))
    return tuple(sorted(findings))


class _RowCheck:
    """Checks rows in order against those before them."""

    def __init__(self, space: Space, rows: Sequence[RuleRow]) -> None:
        self._space, self._rows = space, rows
        self._index = _TermIndex(space.all.bits)
        self._listed = 0
        self._parts: list[tuple[Part, ...]] = []  # of each row so far; none of a row that never decides

    def findings(self, row: RuleRow) -> Iterator[RuleFinding]:
        """The findings about the next row."""
        space, terms = self._space, self._space.terms(row.when)
        met = [(mode, meet(term, mode.term)) for mode in space.modes for term in terms]
        parts = tuple((mode, part) for mode, part in met if space.possible(part, mode))
        self._parts.append(parts)
        before = dict[int, list[tuple[Mode, Term, Term]]]()  # by row: where it may match what this one does
        visible = False
        for mode, part in parts:
            near = list(self._index.near(part))
            space.spend(len(near))
            for number, other in near:
                before.setdefault(number, []).append((mode, part, other))
            covered = visible or any(meet(part, other) == part for _, other in near)
            visible = visible or not (covered or not space.without(part, [other for _, other in near], mode))
        if not parts:
            yield _finding(row, "never", f"it can never match: no case has {row.when}")
        elif not visible:
            hiders = [self._rows[number] for number in sorted(before) if self._meets(before[number])]
            yield _finding(row, "hidden", f"it never decides: all of its cases match {_names(hiders)}")
        else:
            overlaps = [self._rows[at] for at in sorted(before) if self._overlaps(row, at, terms, before[at])]
            yield from self._overlap_findings(row, overlaps)
            if row.reason is not None and self._ends_early(parts):
                text = f"it says {row.then}, and may end a run that goes on: test `over = true`"
                yield _finding(row, "early", text, error=False)
        for term in terms if visible else ():  # the rows before match all cases of the others
            self._index.add(len(self._parts) - 1, term)

    def _overlaps(
        self, row: RuleRow, number: int, terms: tuple[Term, ...], where: list[tuple[Mode, Term, Term]]
    ) -> bool:
        """True if an earlier row matches some of the same cases and says something else, but for its exceptions."""
        if self._listed >= _MOST or self._rows[number].then == row.then or not self._meets(where):
            return False
        return any(self._space.without(part, terms, mode) for mode, part in self._parts[number])

    def _ends_early(self, parts: tuple[Part, ...]) -> bool:
        """True if the row decides of some case that is not over."""
        going = [(mode, meet(part, term)) for mode, part in parts for term in self._space.terms(_GOING)]
        return any(
            self._space.without(term, [other for _, other in self._index.near(term)], mode)
            for mode, term in going
            if self._space.possible(term, mode)
        )

    def _overlap_findings(self, row: RuleRow, overlaps: list[RuleRow]) -> Iterator[RuleFinding]:
        self._listed += len(overlaps)
        for error in (True, False):
            rows = [earlier for earlier in overlaps if (words_of(earlier.when) == words_of(row.when)) is error]
            if rows:
                advice = "they test the same words: let no case match both" if error else "the first decides"
                text = f"it says {row.then}, and matches some cases of {_names(rows, says=True)}: {advice}"
                yield _finding(row, "overlap", text, error=error)

    def _meets(self, where: list[tuple[Mode, Term, Term]]) -> bool:
        return any(self._space.possible(meet(part, other), mode) for mode, part, other in where)


def _gaps(space: Space, rows: Sequence[RuleRow]) -> Iterator[RuleFinding]:
    """Cases that no row matches."""
    terms = [term for row in rows for term in space.terms(row.when)]
    gaps = [gap for mode in space.modes for gap in space.without(mode.term, terms, mode)]
    line = rows[-1].line if rows else 1
    for gap in gaps[:_GAPS]:
        more = f" (and {len(gaps) - _GAPS} more kinds of cases)" if len(gaps) > _GAPS and gap is gaps[_GAPS - 1] else ""
        text = f'no row matches {space.conditions(gap)}{more}: add rows, or `extends = "current"`'
        yield RuleFinding(line=line, kind="gap", text=text)


def _finding(row: RuleRow, kind: str, text: str, *, error: bool = True) -> RuleFinding:
    return RuleFinding(line=row.line, kind=kind, text=f"{row.name}: {text}", error=error)


def _names(rows: Sequence[RuleRow], *, says: bool = False) -> str:
    named = [f"{row.name} (line {row.line}{f', {row.then}' if says else ''})" for row in rows[:3]]
    return ", ".join((*named, *([f"{len(rows) - 3} more"] if len(rows) > 3 else [])))
