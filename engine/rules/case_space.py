"""Rule sets compared case by case: whether they mean the same, the smallest case on which they part, and the rules that
some case reaches. What no record shows is generated: every case with few fields off their defaults, the smallest first.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import combinations, product
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import fields, replace

from steno.engine.rules.cases import AttemptCase, RunCase
from steno.engine.rules.sets import Move, RuleSet
from steno.engine.state.states import PROGRESS, Reason

_VALUES: Final[Mapping[str, tuple[Any, ...]]] = {
    "state": PROGRESS[1:],
    "cause": tuple(Reason),
    "exit_status": (0, 1, 137),
}  # of every other field: the value that is not its default
_MOST: Final = 3  # fields off their defaults in a generated case
_TELLING: Final = (None, Reason.EXIT_ZERO, Reason.PROVIDER_ERROR)  # of several attempts: the rest follows from one
_FLAGS: Final = {"scheduled": "a schedule", "finite": "may go on", "stopped_by_policy": "stopped by policy"}


def sees_cases(rules: RuleSet) -> bool:
    return rules.judge is not None


def judged(rules: RuleSet, case: RunCase) -> Move:
    """The move of a rule set that sees cases."""
    assert rules.judge is not None  # noqa: S101 - the caller asked `sees_cases`
    return rules.judge(case)


def differ(left: RuleSet, right: RuleSet, case: RunCase) -> bool:
    """True if the two make another history of it: their moves differ, but for the names of rules."""
    if left.judge is right.judge:
        return False
    move, other = judged(left, case), judged(right, case)
    return replace(move, rule="") != replace(other, rule="")


def smallest_parting(left: RuleSet, right: RuleSet, known: Iterable[RunCase] = ()) -> RunCase | None:
    """The smallest case on which they differ: a known case, else a generated case; None: neither differs."""
    if left.judge is right.judge:
        return None
    seen = (case for case in sorted(known, key=_size_of) if differ(left, right, case))
    return next(seen, None) or next((case for case in generated_cases() if differ(left, right, case)), None)


def rules_reached(rules: RuleSet, cases: Iterable[RunCase]) -> dict[str, RunCase]:
    """Every rule that one of the cases reaches, with the first such case."""
    reached: dict[str, RunCase] = {}
    for case in cases:
        reached.setdefault(judged(rules, case).rule, case)
    return reached


@cache
def generated_cases() -> tuple[RunCase, ...]:
    """Cases of up to two attempts, the smallest first."""
    attempts, runs = list(_varied(AttemptCase())), list(_varied(RunCase()))
    single = [
        (size + more, replace(run, attempts=(attempt,)))
        for (size, run), (more, attempt) in product(runs, attempts)
        if size + more <= _MOST
    ]
    few = [(size, attempt) for size, attempt in attempts if size < _MOST and attempt.cause in _TELLING]
    pairs = [
        (size + first + second, replace(run, attempts=(left, right)))
        for size, run in runs
        if size < _MOST - 1 and run.cause in _TELLING and not run.state
        for (first, left), (second, right) in product(few, few)
        if size + first + second <= _MOST + 1 and left != right
    ]
    return tuple(case for _, case in sorted((*runs, *single, *pairs), key=lambda sized: sized[0]))


def _varied(base: Any) -> Iterator[tuple[int, Any]]:
    """(how many, the value with so many fields off their defaults)."""
    defaults = {field.name: field.default for field in fields(base) if field.name != "attempts"}
    choices = {name: _VALUES.get(name, (not default,)) for name, default in defaults.items()}
    for count in range(_MOST + 1):
        for names in combinations(choices, count):
            for values in product(*(choices[name] for name in names)):
                yield count, replace(base, **dict(zip(names, values, strict=True)))


def _size_of(case: RunCase) -> int:
    """How many fields are off their defaults, attempts counted with theirs."""
    sees = to_builtins(case)  # these fields
    attempts = sees.pop("attempts", ())
    return len(sees) + sum(1 + len(attempt) for attempt in attempts)


def case_words(case: RunCase) -> str:
    """A case in words, for people: `run finishing; job ended, exit 1`."""
    sees = to_builtins(case)  # the fields that are off their defaults
    attempts, bare = sees.pop("attempts", ()), sees.pop("bare", False)
    jobs = [
        f"{'job' if attempt.pop('decides', True) else 'worker'} {_words(attempt) or 'waits'}" for attempt in attempts
    ]
    jobs += ["a job without an attempt"] if bare else [] if jobs else ["no job"]
    return "; ".join((f"run {_words(sees) or 'nothing said'}", *jobs))


def _words(sees: dict[str, Any]) -> str:
    words = {name: _FLAGS.get(name, name) if isinstance(value, bool) else value for name, value in sees.items()}
    return ", ".join(f"exit {word}" if name == "exit_status" else word for name, word in words.items())
