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
    outlived: bool  # by a traceback that begins later


def find(lines: Iterable[tuple[int, bytes]], catalogue: Catalogue, exit_status: int | None = None) -> Found | None:
    """The line that explains the failure; None: no line does, or the task exited 0.

    Args:
        lines: in order, each with its first byte's place in the output; see `lines_of`.
        exit_status: of the task; None: not known, and then a task that says in the end that it is done has not failed.
    """
    if exit_status == 0:
        return None
    context = catalogue.context
    matches: deque[_Match] = deque(maxlen=_KEPT)
    before: dict[tuple[str, str], int] = {}
    in_frame, frame = False, -_GAP
    progress, last = 0, -_GAP
    enough = _PROGRESS_UNKNOWN if exit_status is None else _PROGRESS
    for number, (start, raw) in enumerate(lines):
        line = context.without_prefix(_ESCAPES.sub("", raw.decode("utf-8", "replace")).rstrip("\r\n"))
        if not line.strip():
            continue
        if in_frame and line.startswith("    "):
            continue
        in_frame = context.frame(line)
        frame = number if in_frame else frame
        hit = None if in_frame else _shown(catalogue, line, number, before)
        if hit is not None and hit.weak and exit_status is None:
            hit = None
        for key in catalogue.precedes(line):
            before[key] = number
        _survive(matches, context, line, number)
        if hit is not None:
            if number - last > _GAP:
                matches.clear()
            quoted = raw.rstrip(b"\r\n")
            quote = Found(rule=hit, start=start, end=start + len(quoted), line=quoted.decode("utf-8", "replace"))
            raised = line.partition(": ")[0].endswith(("Error", "Exception")) or number - frame <= _TRACE
            outlived = catalogue.causes[hit.cause].outlived and not raised
            matches.append(_Match(catalogue.rank(hit), number, quote, outlived))
            progress, last = 0, number
        elif matches:
            progress += context.progress(line)
            if progress >= enough or (exit_status is None and context.done(line)):
                matches.clear()
                progress = 0
    return min(matches, key=lambda match: match[:2]).quote if matches else None


def _survive(matches: deque[_Match], context: Context, line: str, number: int) -> None:
    """Forgets what a line says that the task survived."""
    if matches and context.restarted(line):
        matches.clear()
    elif matches and context.traceback(line):
        lasting = [match for match in matches if not match.outlived]
        matches.clear()
        matches.extend(lasting)
    elif matches and context.recovered(line):
        while matches and number - matches[-1].number <= _SURVIVED:
            matches.pop()


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
