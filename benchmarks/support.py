"""Shared by benchmarks: the size they run at, the rows they report, and `stenotest`, the support of the tests.

    python benchmarks/NAME.py [--quick | --full] [--json] [WORD ...]

A script reports each row of `benchmarks/targets.py` that names it, once, as soon as it is measured: with --json as JSON
Lines, else as text. Details that no target names go to stderr.
"""

import os
import statistics
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))
os.environ.setdefault("STENO_API_LOOPBACK", "open")  # of the services measured, also as root

from benchmarks.targets import TARGETS  # noqa: E402 - `python benchmarks/NAME.py` finds it by the editable install


class Measured(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A measured row of the table of targets.

    `measured`, `low` and `high` are in the unit of the target: the median of the repetitions (or the value that the row
    names, such as a p99), the least and the most. A ratio has both sides, in `sides` (such as events/s).
    """

    name: str
    of: str  # what it was measured on, such as "20,000 events"
    measured: float
    low: float
    high: float
    rounds: int
    ours: float | None = None
    theirs: float | None = None
    sides: str | None = None


class NotHere(msgspec.Struct, frozen=True):
    """Why the script measured no further row, and what to install."""

    not_here: str


class Lacking(Exception):
    """The machine lacks what the benchmark measures or compares with; the message says how to get it."""


class Size:
    """How much to measure: `quick` shows that the script runs, `normal` measures, `full` takes as long as it needs."""

    def __init__(self, words: Sequence[str]) -> None:
        given = {word.removeprefix("--") for word in words if word in ("--quick", "--full")}
        self.name = given.pop() if len(given) == 1 else "normal"
        self.json = "--json" in words
        self.words = [word for word in words if word not in ("--quick", "--full", "--json")]

    def pick(self, quick: int, normal: int, full: int) -> int:
        """The number of this size."""
        return {"quick": quick, "normal": normal, "full": full}[self.name]

    def count(self, quick: int, normal: int, full: int) -> int:
        """The number that the command line gives first, else that of this size."""
        return int(self.words[0]) if self.words and self.words[0].isdecimal() else self.pick(quick, normal, full)


SIZE = Size(sys.argv[1:])


def measured(name: str, of: str, values: Iterable[float], *, value: float | None = None) -> Measured:
    """A row of these repetitions: their median, or `value` where the row is another part of them."""
    figures = list(values)
    middle = statistics.median(figures) if value is None else value
    return Measured(name=name, of=of, measured=middle, low=min(figures), high=max(figures), rounds=len(figures))


def compared(name: str, of: str, ours: Sequence[float], theirs: Sequence[float], sides: str) -> Measured:
    """A row of what ours reaches of theirs (both so many a second, measured in turns), in % or times as its target."""
    scale = 100 if _TARGETS[name].unit == "%" else 1
    ratio = measured(name, of, [scale * mine / other for mine, other in zip(ours, theirs, strict=True)])
    both = {"ours": statistics.median(ours), "theirs": statistics.median(theirs), "sides": sides}
    return msgspec.structs.replace(ratio, **both)


def say(text: str) -> None:
    """Print a detail that no target names."""
    print(text, file=sys.stderr, flush=True)


def report(rows: Iterator[Measured]) -> None:
    """Print each row as soon as it is measured."""
    try:
        for row in rows:
            print(msgspec.json.encode(row).decode() if SIZE.json else _text(row), flush=True)
    except Lacking as error:
        print(msgspec.json.encode(NotHere(str(error))).decode() if SIZE.json else error, flush=True)


def _text(row: Measured) -> str:
    target = _TARGETS[row.name]
    met = target.met(row.measured)
    verdict = "" if met is None else "ok" if met else "MISSED"
    text = f"{target.what:<64} {row.measured:10.4g} {target.unit:<10} {target.text:<28} {verdict:<7}"
    return f"{text}{row.low:.4g} to {row.high:.4g} in {row.rounds}; {row.of}"


_TARGETS = {target.name: target for target in TARGETS}
