"""The cause of a failure in an output: ordered rules over its lines, in linear time and bounded memory.

Of what matches near the end, the cause of the least rank is the root; of equals the first line is quoted. What was
followed by progress did not end the task.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from steno.engine.causes.catalogue import Catalogue, CauseRule, Context

LONGEST: Final = 16_384  # bytes of a line that are read at once; a longer line is several
_GAP: Final = 400  # lines without a match that part two incidents
_KEPT: Final = 2_000  # matches of an incident that are remembered
_PROGRESS: Final = 8  # lines of progress that show that the task went on
_PROGRESS_UNKNOWN: Final = 3  # as many are enough if nobody says that it failed
_TRACE: Final = 6  # lines after a traceback's last frame that may still belong to it
_SURVIVED: Final = 3  # lines before "going on without it" whose errors ended nothing
_WENT_ON: Final = 2  # lines between an error that a task may survive and the next, which then shows that it did
_FOLLOWS: Final = 64  # the least rank of a cause that may follow from such an error; it takes progress between them
_RAISED: Final = re.compile(r"[\w.]*(?:Error|Exception): ")
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """The line that decides, as it was printed. `start`, `end`: its bytes in the output."""

    rule: CauseRule
    start: int
    end: int
    line: str


class _Match(NamedTuple):
    rank: int
    number: int
    quote: Found


class _Incident:
    """The matches near the end; `soft` are those that a task may survive, see `FailureCause.outlived`."""

    def __init__(self) -> None:
        self.lasting: deque[_Match] = deque(maxlen=_KEPT)
        self.soft: deque[tuple[_Match, int, int]] = deque(maxlen=_KEPT)  # with `plain` and `progress` at their time
        self.plain = self.progress = 0  # lines without a match; those that show progress
        self.last, self.since = -_GAP, 0  # the last match's line; `progress` then
        self.traceback = -1  # where the last traceback begins

    def __bool__(self) -> bool:
        return bool(self.lasting or self.soft)

    def add(self, match: _Match, *, raised: bool, survivable: bool) -> None:
        if match.number - self.last > _GAP:
            self.clear()
        self.last, self.since = match.number, self.progress
        if survivable and not raised:
            self.soft.append((match, self.plain, self.progress))
            return
        while self.soft and self._outlived(*self.soft[0], by=match, raised=raised):
            self.soft.popleft()
        self.lasting.append(match)

    def _outlived(self, match: _Match, plain: int, progress: int, *, by: _Match, raised: bool) -> bool:
        if raised and match.number < self.traceback:
            return True
        return self.progress > progress if by.rank >= _FOLLOWS else self.plain - plain >= _WENT_ON

    def passed(self, *, went_on: bool, enough: int) -> None:
        """Counts a line without a match."""
        self.plain += 1
        self.progress += went_on
        if self.progress - self.since >= enough:
            self.clear()

    def survive(self, context: Context, line: str, number: int) -> None:
        """Forgets what a line says that the task survived."""
        if context.restarted(line):
            self.clear()
        elif context.traceback(line):
            self.traceback = number
        elif context.recovered(line):
            while self.lasting and number - self.lasting[-1].number <= _SURVIVED:
                self.lasting.pop()
            while self.soft and number - self.soft[-1][0].number <= _SURVIVED:
                self.soft.pop()

    def clear(self) -> None:
        self.lasting.clear()
        self.soft.clear()

    def matches(self) -> list[_Match]:
        return [*self.lasting, *(match for match, _, _ in self.soft)]


def find(lines: Iterable[tuple[int, bytes]], catalogue: Catalogue, exit_status: int | None = None) -> Found | None:
    """The line that explains the failure; None: no line does, or the task exited 0.

    Args:
        lines: in order, each with its first byte's place in the output; see `lines_of`.
        exit_status: of the task; None: not known, and then a task that says in the end that it is done has not failed.
    """
    if exit_status == 0:
        return None
    context = catalogue.context
    incident = _Incident()
    before: dict[tuple[str, str], int] = {}
    in_frame, frame = False, -_GAP
    unraised = -1  # the last line on which an exception that ends nothing may stand
    enough = _PROGRESS_UNKNOWN if exit_status is None else _PROGRESS
    for number, (start, raw) in enumerate(lines):
        line = context.without_prefix(_ESCAPES.sub("", raw.decode("utf-8", "replace")).rstrip("\r\n"))
        if not line.strip() or (in_frame and line.startswith("    ")):
            continue
        in_frame = context.frame(line)
        frame = number if in_frame else frame
        hit = None if in_frame else _shown(catalogue, line, number, before)
        if hit is not None and hit.weak and exit_status is None:
            hit = None
        for key in catalogue.precedes(line):
            before[key] = number
        if incident:
            incident.survive(context, line, number)
        if context.unraised(line) or (in_frame and number <= unraised):
            unraised = number + _TRACE
        if hit is None:
            if incident:
                incident.passed(went_on=context.progress(line), enough=enough)
                if exit_status is None and context.done(line):
                    incident.clear()
        elif number <= unraised:
            unraised = -1
        else:
            quoted = raw.rstrip(b"\r\n")
            quote = Found(rule=hit, start=start, end=start + len(quoted), line=quoted.decode("utf-8", "replace"))
            raised = number - frame <= _TRACE or bool(_RAISED.match(line))
            match = _Match(catalogue.rank(hit), number, quote)
            incident.add(match, raised=raised, survivable=catalogue.causes[hit.cause].outlived)
    return min(incident.matches(), key=lambda match: match[:2]).quote if incident else None


def _shown(catalogue: Catalogue, line: str, number: int, before: dict[tuple[str, str], int]) -> CauseRule | None:
    """The rule whose cause a line shows in its context."""
    hits = catalogue.hits(line)
    if not hits or catalogue.context.harmless(line):
        return None
    warning = catalogue.context.warning(line)
    for rule, _ in hits:
        if warning and not rule.warn:
            continue
        near = {key[1] for key, place in before.items() if key[0] == rule.name and number - place <= rule.within}
        if (rule.needs is None or rule.needs in near) and rule.follows not in near:
            return rule
    return None


def lines_of(chunks: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    """The lines of an output with their places; a line longer than `LONGEST` comes in pieces of that size."""
    start, rest = 0, b""
    for chunk in chunks:
        rest += chunk
        whole = rest.split(b"\n")
        rest = whole.pop()
        for line in whole:
            yield from _pieces(start, line)
            start += len(line) + 1
        if len(rest) > LONGEST:
            cut = len(rest) - len(rest) % LONGEST
            yield from _pieces(start, rest[:cut])
            start, rest = start + cut, rest[cut:]
    if rest:
        yield from _pieces(start, rest)


def _pieces(start: int, line: bytes) -> Iterator[tuple[int, bytes]]:
    for at in range(0, max(1, len(line)), LONGEST):
        yield start + at, line[at : at + LONGEST]
