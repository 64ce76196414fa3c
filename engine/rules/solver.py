"""All possible cases as boxes of bits: whether a case matches one row and none of others, without trying each case.

A term is a conjunction: a set of values for each word of the run, of the first attempt and of the deciding attempt;
boxes that some attempt is in; boxes that no attempt is in. What one word implies of others (`fails`, `decided`, which
attempt decides) is said by modes: the possible cases are those of all modes, and within a mode the words are free.
"""

from collections.abc import Iterable, Iterator, Sequence
from operator import and_
from typing import Final, NamedTuple

from steno.engine.rules.rows import Conditions
from steno.engine.rules.words import ATTEMPT, LEAST, MOST, RUN, Box, Exits, Values, complement, joined
from steno.engine.state.states import Reason, State

Bits = tuple[int, ...]
"""For each word the values that it may have, one bit each."""
_RUN: Final = tuple(RUN)
_ATTEMPT: Final = tuple(ATTEMPT)
_FIRST: Final = slice(len(RUN), len(RUN) + len(ATTEMPT))
_DECIDING: Final = slice(_FIRST.stop, None)
_ATTEMPTS: Final = _RUN.index("attempts")
_DECIDED: Final = _RUN.index("decided")
_YES: Final[Values] = frozenset({True})
_NO: Final[Values] = frozenset({False})
_MISSING: Final[Values] = frozenset({None})
_CAUSED: Final[Values] = frozenset(Reason)
_ZERO: Final = Exits(((0, 0),), missing=True)
_NONZERO: Final = Exits(((LEAST, -1), (1, MOST)))
_QUIET: Final[Box] = (("fails", _YES), ("cause", _MISSING), ("failed", _NO))
_FALSE: Final[tuple[Box, ...]] = (  # what no attempt is: `AttemptCase.fails` follows from its other words
    (("fails", _NO), ("cause", _CAUSED)),
    (("fails", _NO), ("failed", _YES)),
    (("fails", _NO), ("decides", _YES), ("exit_status", _NONZERO)),
    (*_QUIET, ("decides", _NO)),
    (*_QUIET, ("exit_status", _ZERO)),
)
_UNSETTLED: Final[tuple[Box, ...]] = (  # what an attempt is whose end does not prove that nothing follows
    (("cause", _MISSING), ("exit_status", Exits((), missing=True))),
    (("decides", _NO), ("fails", _YES)),
    (("retried", _YES),),
)
_ENDING: Final[Values] = frozenset({State.FINISHING})
_NOT_ENDING: Final = complement(_ENDING, RUN["state"])
_GOING: Final[Box] = (("ended", _NO),)
_SUBTRACTION: Final = 8  # steps
_BOXES: Final = 4  # that are compared in a step


class Undecided(Exception):
    """It would take too many steps."""


class Term(NamedTuple):
    bits: Bits  # of the run's words, the first attempt's, and the deciding attempt's
    some: tuple[Bits, ...] = ()
    no: tuple[Bits, ...] = ()


class Mode(NamedTuple):
    """A kind of cases, by the attempt that decides."""

    term: Term
    not_first: tuple[Bits, ...] = ()  # the first attempt is not in this box
    same: bool = False  # the first attempt decides


class Space:
    """The cases of a rule file, its exit statuses cut where its rows cut them."""

    def __init__(self, rows: Iterable[Conditions], *, steps: int) -> None:
        """`steps`: how many it may take before `Undecided`; each is some microseconds."""
        rows = tuple(rows)
        tests = (test for row in rows for _, box in row.boxes() for test in box)
        spans = [span for _, values in tests if isinstance(values, Exits) for span in values.spans]
        cuts = {LEAST, 0, 1, *(edge for first, last in spans for edge in (first, last + 1))}
        self._starts = sorted(cuts - {MOST + 1})
        self._place = {start: number for number, start in enumerate((*self._starts, MOST + 1))}
        self._values = {
            word: (*self._starts, None) if isinstance(values, Exits) else sorted(values, key=str)
            for word, values in {**RUN, **ATTEMPT}.items()
        }
        self._steps = steps
        self._any = {word: (1 << len(values)) - 1 for word, values in self._values.items()}
        self.all = self._term()
        self._false = tuple(map(self._box, _FALSE))
        self.modes = tuple(self._modes(rows))
        self._over = {True: tuple(self._when_over()), False: tuple(self._when_not_over())}

    def terms(self, when: Conditions) -> tuple[Term, ...]:
        """A row's conditions: it matches the cases of any of these."""
        run = tuple((word, values) for word, values in when.run if word != "over")
        term = self._term(run, when.first, when.deciding, when.some, when.no)
        over = dict(when.run).get("over", RUN["over"])
        return (term,) if over == RUN["over"] else tuple(meet(term, known) for known in self._over[True in over])

    def possible(self, term: Term, mode: Mode) -> bool:
        """True if a case of the mode is in the term, which is within the mode's. Raises `Undecided`."""
        bits, false = term.bits, (*self._false, *term.no)
        first, deciding, decided = bits[_FIRST], bits[_DECIDING], bits[_DECIDED]
        if not all(bits[: len(RUN)]):
            return False
        # If it shows no attempt, none decided.
        without_attempt = bits[_ATTEMPTS] & decided & 1 and not term.some and first == self.all.bits[_FIRST]
        if without_attempt or bits[_ATTEMPTS] == 1:
            return bool(without_attempt)
        if not all(self._is_outside(box, false) for box in term.some):
            return False
        if decided == 2:
            if not self._is_outside(deciding, false):
                return False
            first = _both(first, deciding) if mode.same else first
        return self._is_outside(first, (*false, *mode.not_first))

    def _is_outside(self, box: Bits, others: Iterable[Bits]) -> bool:
        """True if something of the box is in none of the others. Raises `Undecided`."""
        parts = [(box, tuple(others))]
        while parts:
            box, others = parts.pop()
            self.spend(1 + len(others) // _BOXES)
            near = [other for other in others if all(map(and_, box, other))]
            if near:
                rest = tuple(near[1:])
                parts.extend((piece, rest) for piece in _apart(box, near[0]))
            elif all(box):
                return True
        return False

    def without(self, term: Term, others: Iterable[Term], mode: Mode) -> list[Term]:
        """The possible cases of a term that are in none of the others, as terms. Raises `Undecided`."""
        left = [term] if self.possible(term, mode) else []
        for other in others:
            left = [piece for part in left for piece in self._subtract(part, other, mode)]
        return left

    def spend(self, steps: int) -> None:
        """Raises `Undecided` when too many steps are spent."""
        self._steps -= steps
        if self._steps < 0:
            raise Undecided

    def _subtract(self, term: Term, other: Term, mode: Mode) -> list[Term]:
        self.spend(_SUBTRACTION)
        if not self.possible(meet(term, other), mode):
            return [term]
        return [piece for piece in _pieces(term, other) if self.possible(piece, mode)]

    def conditions(self, term: Term) -> Conditions:
        """A term in words."""
        return Conditions(
            run=self._words(term.bits[: len(RUN)], _RUN),
            first=self._words(term.bits[_FIRST]),
            deciding=self._words(term.bits[_DECIDING]),
            some=tuple(map(self._words, term.some)),
            no=tuple(map(self._words, term.no)),
        )

    def _words(self, bits: Bits, words: Sequence[str] = _ATTEMPT) -> Box:
        named = zip(words, bits, strict=True)
        return tuple((word, self._named(word, allowed)) for word, allowed in named if allowed != self._any[word])

    def _named(self, word: str, allowed: int) -> Values:
        values = {value for number, value in enumerate(self._values[word]) if allowed >> number & 1}
        if not isinstance(ATTEMPT.get(word), Exits):
            return frozenset(values)
        ends = (*(start - 1 for start in self._starts[1:]), MOST)
        spans = zip(self._starts, ends, strict=True)
        return Exits(joined(span for span in spans if span[0] in values), None in values)

    def _box(self, box: Box, words: Sequence[str] = _ATTEMPT) -> Bits:
        bits = self._any | {word: self._bits(word, allowed) for word, allowed in box}
        return tuple(bits[word] for word in words)

    def _bits(self, word: str, allowed: Values) -> int:
        if isinstance(allowed, Exits):
            spans = ((1 << self._place[last + 1]) - (1 << self._place[first]) for first, last in allowed.spans)
            return sum(spans) | (int(allowed.missing) << len(self._starts))
        return sum(1 << number for number, value in enumerate(self._values[word]) if value in allowed)

    def _term(
        self, run: Box = (), first: Box = (), deciding: Box = (), some: Iterable[Box] = (), no: Iterable[Box] = ()
    ) -> Term:
        bits = (*self._box(run, _RUN), *self._box(first), *self._box(deciding))
        return Term(bits, tuple(sorted(set(map(self._box, some)))), tuple(sorted(set(map(self._box, no)))))

    def _modes(self, rows: tuple[Conditions, ...]) -> Iterator[Mode]:
        """The possible kinds of cases; only as many as the rows can tell apart."""
        if not any(row.deciding or "decided" in dict(row.run) for row in rows):
            yield Mode(self.all)
            return
        firsts = any(row.first for row in rows)
        zero, error = Reason.EXIT_ZERO, Reason.PROVIDER_ERROR
        yield Mode(self._term((("cause", frozenset({error})), ("decided", _NO))))
        for causes in (frozenset({zero}), frozenset({*Reason, None}) - {zero, error}):
            failing: Box = (("fails", _YES), *((("decides", _YES),) if zero in causes else ()))
            ranks: tuple[Box, ...] = (
                (*failing, ("cause", _CAUSED)),
                (*failing, ("cause", _MISSING), ("exit_status", _NONZERO)),
                (*failing, ("cause", _MISSING), ("exit_status", _ZERO)),
            )
            yield Mode(self._term((("cause", causes), ("decided", _NO)), no=(failing,)))
            for rank, box in enumerate(ranks):
                run = (("attempts", _YES), ("cause", causes), ("decided", _YES))
                term = self._term(run, deciding=box, no=ranks[:rank])
                yield from (Mode(term, same=True), Mode(term, not_first=(self._box(box),))) if firsts else (Mode(term),)

    def _when_over(self) -> Iterator[Term]:
        """As `steno.engine.rules.sets.decisive` says."""
        ended: Box = (("attempts", _YES), ("bare", _NO), ("final", _NO), ("finite", _YES), ("requeued", _NO))
        yield self._term((("final", _YES),))
        yield self._term((*ended, ("state", _ENDING)), no=(_GOING,))
        yield self._term((*ended, ("state", _NOT_ENDING)), no=(_GOING, *_UNSETTLED))

    def _when_not_over(self) -> Iterator[Term]:
        for word, value in (("finite", _NO), ("requeued", _YES), ("attempts", _NO), ("bare", _YES)):
            yield self._term((("final", _NO), (word, value)))
        yield self._term((("attempts", _YES), ("final", _NO)), some=(_GOING,))
        for box in _UNSETTLED:
            yield self._term((("attempts", _YES), ("final", _NO), ("state", _NOT_ENDING)), some=(box,))


def meet(left: Term, right: Term) -> Term:
    """The cases of both."""
    return Term(
        _both(left.bits, right.bits),
        left.some if left.some == right.some else tuple(sorted({*left.some, *right.some})),
        left.no if left.no == right.no else tuple(sorted({*left.no, *right.no})),
    )


def _both(left: Bits, right: Bits) -> Bits:
    return tuple(map(and_, left, right))


def _pieces(term: Term, other: Term) -> Iterator[Term]:
    """A term without another: by each condition of the other the part that fails it first."""
    for bits in _apart(term.bits, other.bits):
        yield term._replace(bits=bits)
    term = term._replace(bits=_both(term.bits, other.bits))
    for box in other.some:
        if box not in term.some:
            yield term._replace(no=tuple(sorted({*term.no, box})))
            term = term._replace(some=tuple(sorted({*term.some, box})))
    for box in other.no:
        if box not in term.no:
            yield term._replace(some=tuple(sorted({*term.some, box})))
            term = term._replace(no=tuple(sorted({*term.no, box})))


def _apart(box: Bits, other: Bits) -> Iterator[Bits]:
    """A box without another: by each word the part that fails it first."""
    for place, allowed in enumerate(other):
        if rest := box[place] & ~allowed:
            yield (*box[:place], rest, *box[place + 1 :])
            box = (*box[:place], box[place] & allowed, *box[place + 1 :])
