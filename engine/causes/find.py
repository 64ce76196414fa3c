"""The cause of a failure in an output: ordered rules over its lines, in linear time and bounded memory.

Of what matches near the end, the cause of the least rank is the root; of equals the first line is quoted. What was
followed by progress did not end the task.
"""

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from steno.engine.causes.catalogue import Catalogue, CauseRule, Context, Hit

LONGEST: Final = 16_384  # bytes of a line that are read at once; a longer line is several
_GAP: Final = 400  # lines without a match that part two incidents
_KEPT: Final = 2_000  # matches of an incident that are remembered
_PROGRESS: Final = 8  # lines of progress that show that the task went on
_PROGRESS_UNKNOWN: Final = 3  # as many are enough if nobody says that it failed
_TRACE: Final = 6  # lines after a traceback's last frame that may still belong to it
_SURVIVED: Final = 3  # lines before "going on without it" whose errors ended nothing
_WENT_ON: Final = 2  # lines between an error that a task may survive and the next, which then shows that it did
_NEAR: Final = 20  # lines after a cause in which another may follow from it
_FOLLOWS: Final = 64  # the least rank of a cause that may follow from such an error; it takes progress between them
_OWN_WORDS: Final = 66  # the least rank of a task's own words outside of an exception: all else explains more
_VAGUE: Final = 90  # the least rank of a rule whose lines leave open why
_RAISED: Final = re.compile(r"[\w.]*(?:Error|Exception): |called `Result::")
_SHELL: Final = re.compile(
    r"(?:\S+\.sh|bash|sh|zsh): (?:line )?\d+: |(?:cp|mv|tar|scp|ssh|cat|curl|wget|mkdir|touch|tee|gzip): "
    r"|srun: |slurmstepd: |rsync(?: error)?: |make(?:\[\d+\])?: "
)
_UNRAISED: Final = re.compile(r"Exception (?:ignored in\b|in thread .{0,40}\b_pin_memory_loop\b)")
_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|.)")
_DOCKER: Final = re.compile(
    r'\{"log": ?"((?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[\da-fA-F]{4}))*)", ?"stream"'
)


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
    plain: int  # lines without a match before it
    progress: int  # those of them that show progress


class _Incident:
    """The matches near the end; `soft` are those that a task may survive, see `FailureCause.outlived`."""

    def __init__(self) -> None:
        self.lasting: deque[_Match] = deque(maxlen=_KEPT)
        self.soft: deque[_Match] = deque(maxlen=_KEPT)
        self.plain = self.progress = 0
        self.last, self.since = -_GAP, 0  # the last match's line; `progress` then

    def __bool__(self) -> bool:
        return bool(self.lasting or self.soft)

    def add(self, rank: int, number: int, quote: Found, *, raised: int | None, soft: bool, yields: str | None) -> None:
        """Adds a match; `raised`: the first line of the traceback that ends there; `yields`: see `FailureCause`."""
        if number - self.last > _GAP:
            self.clear()
        self.last, self.since = number, self.progress
        lone = raised is None or not soft
        soft = soft and raised is None
        if soft and self.lasting and self.lasting[0].rank < _VAGUE:
            return  # the end of a script stumbles over a failure before it
        ends = [matches[-1] for matches in (self.lasting, self.soft) if matches]
        if lone and any(old.quote.rule.cause == yields and number - old.number <= _NEAR for old in ends):
            return  # it follows from that
        while self.soft and not soft:
            old = self.soft[0]
            went_on = self.progress > old.progress if rank >= _FOLLOWS else self.plain - old.plain >= _WENT_ON
            if not (went_on or (raised is not None and old.number < raised)):
                break
            self.soft.popleft()
        (self.soft if soft else self.lasting).append(_Match(rank, number, quote, self.plain, self.progress))

    def passed(self, *, went_on: bool, enough: int, done: bool) -> None:
        """Counts a line without a match."""
        self.plain += 1
        self.progress += went_on
        if done or self.progress - self.since >= enough:
            self.clear()

    def survive(self, context: Context, line: str, number: int) -> None:
        """Forgets what a line says that the task survived."""
        if context.restarted(line):
            self.clear()
        elif context.recovered(line):
            for matches in (self.lasting, self.soft):
                while matches and number - matches[-1].number <= _SURVIVED:
                    matches.pop()

    def clear(self) -> None:
        self.lasting.clear()
        self.soft.clear()


class _Trace:
    """The traceback that is being read."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.in_frame, self.first, self.until = False, -1, -1  # its first line; the last that may belong to it
        self.prefix: re.Pattern[str] | None = None  # of each of its lines, in any rank and at any time
        self.unraised = -1  # the last line of an exception that ends nothing: CPython or the loader's thread goes on

    def read(self, line: str, number: int) -> str:
        """The line without the prefix; nothing if it is the code of a frame."""
        if "Traceback" in line and self.context.traceback(line):
            before, self.first, self.until = line[: line.index("Traceback")], number, number + _TRACE
            quoted = not line.rstrip().endswith(":")  # within a document, say
            known = 0 < len(before) <= 100 and not (quoted or self.context.warning(before))
            self.prefix = re.compile("^" + re.sub(r"\d+", r"\\d+", re.escape(before))) if known else None
        if self.prefix is not None and number <= self.until:
            line = self.prefix.sub("", line)
        if not line.strip() or (self.in_frame and line.startswith("    ")):
            return ""
        if not self.in_frame and _SHELL.match(line):
            self.until = min(self.until, number - 1)
        self.in_frame = ("File " in line or "at " in line) and self.context.frame(line)
        self.until = number + _TRACE if self.in_frame else self.until
        if _UNRAISED.match(line) or (self.in_frame and number <= self.unraised):
            self.unraised = number + _TRACE
        return line


def find(lines: Iterable[tuple[int, bytes]], catalogue: Catalogue, exit_status: int | None = None) -> Found | None:
    """The line that explains the failure; None: no line does, or the task exited 0.

    Args:
        lines: in order, each with its first byte's place in the output; see `lines_of`.
        exit_status: of the task; None: not known, and then a task that says in the end that it is done has not failed.
    """
    if exit_status == 0:
        return None
    context, incident, trace = catalogue.context, _Incident(), _Trace(catalogue.context)
    before: dict[tuple[str, str], int] = {}
    enough = _PROGRESS_UNKNOWN if exit_status is None else _PROGRESS
    inert = None  # a line that said nothing where nothing was open: again and again it says nothing either
    for number, (start, raw) in enumerate(lines):
        if not raw or raw.isspace() or (raw == inert and not incident):
            continue
        inert = None
        text = _text(raw)
        line = trace.read(context.without_prefix(_ESCAPES.sub("", text)), number)
        if not line:
            continue
        hits, precedes = catalogue.read(line)
        hits = hits or ([] if exit_status is None else catalogue.topics(line, text))
        hit = None if trace.in_frame else _shown(catalogue, hits, line, number, before)
        if hit is not None and hit.weak and exit_status is None:
            hit = None
        for key in precedes:
            before[key] = number
        if incident:
            incident.survive(context, line, number)
        if hit is None and incident:
            done = exit_status is None and context.done(line)
            incident.passed(went_on=context.progress(line), enough=enough, done=done)
        elif hit is not None and number <= trace.unraised:
            trace.unraised = -1
        elif hit is not None:
            quoted = raw.rstrip(b"\r\n")
            quote = Found(rule=hit, start=start, end=start + len(quoted), line=quoted.decode("utf-8", "replace"))
            raised = trace.first if number <= trace.until or _RAISED.match(line) else None
            kind = catalogue.causes[hit.cause]
            least = _OWN_WORDS if hit.generic and hit.weak and raised is None else 0
            rank = max(catalogue.rank(hit), least)
            incident.add(rank, number, quote, raised=raised, soft=kind.outlived, yields=kind.yields)
            trace.until = min(trace.until, number + 1)
        if hit is None and not (precedes or trace.in_frame) and number > max(trace.until, trace.unraised):
            inert = raw
    return min((*incident.lasting, *incident.soft), key=lambda match: match[:2]).quote if incident else None


def _text(raw: bytes) -> str:
    """The line, without the JSON that Docker keeps it in."""
    text = raw.decode("utf-8", "replace")
    logged = _DOCKER.match(text)
    return (msgspec.json.decode(f'"{logged[1]}"', type=str) if logged else text).rstrip("\r\n")


def _shown(
    catalogue: Catalogue, hits: list[Hit], line: str, number: int, before: dict[tuple[str, str], int]
) -> CauseRule | None:
    """The rule whose cause a line shows in its context."""
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
            if len(line) <= LONGEST:
                yield start, line
            else:
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
