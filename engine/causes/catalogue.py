"""The catalogue of causes: rules over lines of output, as TOML, ours and a site's own.

Patterns are RE2's, so a line is read in time linear in its length whatever a site writes. All of a catalogue are a few
automata.
"""

import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final, NamedTuple, Protocol

import msgspec
import re2  # type: ignore[import-untyped]

from steno.engine.state.facts import Blame
from steno.events.errors import UnreadableInput

FILES: Final = (
    "gpu.toml",
    "host.toml",
    "python.toml",
    "network.toml",
    "cluster.toml",
    "build.toml",
    "own_words.toml",
    "topics.toml",
)
_LARGEST: Final = 1 << 20  # bytes of a site's file
_MEMORY: Final = 64 << 20  # bytes that an automaton may take
_PREFIXES: Final = 3  # before a line, one after the other
_TOGETHER: Final = 270  # patterns of an automaton: its states are sets of theirs, and of many patterns fill its memory


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str, /) -> object | None: ...


class FailureCause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cause: who can change it, what to do about it, and its rank; of several causes the least rank is the root."""

    rank: int
    remedy: str
    blame: Blame | None = None  # None: the output does not say
    yields: str | None = None  # a cause: soon after it this one follows from it, unless an exception shows it
    outlived: bool = False  # outside of a traceback; a traceback or another error later shows that the task went on


class CauseRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Lines that show a cause."""

    name: str
    cause: str
    source: str  # what prints such lines
    patterns: tuple[str, ...]
    unless: str | None = None  # a line that matches this too shows nothing
    needs: str | None = None  # a line before it, at most `within` lines away, must match this
    follows: str | None = None  # after a line as near that matches this it is a consequence, and shows nothing
    within: int = 50
    warn: bool = False  # lines that call themselves warnings count too
    generic: bool = False  # it yields to every other rule on the same line
    error: bool = False  # only lines that call themselves errors, or say that the task ends, count
    rank: int | None = None  # instead of the cause's
    weak: bool = False  # its lines show nothing if nobody says that the task failed
    remedy: str | None = None  # instead of the cause's
    blame: Blame | None = None  # likewise


class _File(msgspec.Struct, forbid_unknown_fields=True):
    rule: list[CauseRule] = []


class _Lines(msgspec.Struct, forbid_unknown_fields=True):
    warning: list[str]
    error: list[str]
    echo: list[str]
    harmless: list[str]
    recovered: list[str]
    restarted: list[str]
    progress: list[str]
    done: list[str]
    undone: list[str]
    prefix: str
    frame: str
    traceback: str


class Context:
    """Patterns for a line that speaks of the errors in it and before it."""

    def __init__(self, lines: _Lines) -> None:
        def matcher(patterns: list[str]) -> Callable[[str], bool]:
            matched = _automaton(patterns)
            return lambda line: bool(matched(line))

        self.warning, self.harmless, self.progress = map(matcher, (lines.warning, lines.harmless, lines.progress))
        self._error, self._echo = matcher(lines.error), matcher(lines.echo)
        self.recovered, self.restarted = matcher(lines.recovered), matcher(lines.restarted)
        self._done, self._undone = matcher(lines.done), matcher(lines.undone)
        self.frame, self.traceback = matcher([lines.frame]), matcher([lines.traceback])
        # Ours, anchored and without nested loops: as linear as RE2's, and faster.
        self._prefix = re.compile(lines.prefix)

    def error(self, line: str) -> bool:
        """True if the line calls itself an error, or says that the task ends, and is not about another's end."""
        return self._error(line) and not self._echo(line)

    def done(self, line: str) -> bool:
        """True if the task says that it is done."""
        return self._done(line) and not self._undone(line)

    def without_prefix(self, line: str) -> str:
        """The line without the ranks, hosts and times that launchers and containers put before it."""
        for _ in range(_PREFIXES):
            match = self._prefix.match(line)
            if match is None:
                break
            line = line[match.end() :]
        return line


class Hit(NamedTuple):
    """A rule that a line matches, before what goes around the line is looked at."""

    rule: CauseRule
    rank: int


class Catalogue:
    """Rules with their automaton.

    Args:
        causes: by name.
        rules: in order; of two of equal rank on one line the first counts.

    Raises:
        UnreadableInput: a rule names an unknown cause, or has a pattern that RE2 does not take.
    """

    def __init__(self, causes: dict[str, FailureCause], rules: Sequence[CauseRule]) -> None:
        self.causes, self.rules, self.context = causes, tuple(rules), _context()
        self._rule_of: list[CauseRule] = []
        self._topic_of: list[CauseRule] = []
        self._unless: dict[str, Pattern] = {}
        self._before: list[tuple[str, str]] = []
        for rule in rules:
            if rule.cause not in causes:
                raise BadRule(rule, rule.cause, f"no cause is named {rule.cause!r}")
            for pattern in rule.patterns:
                _checked(rule, pattern)
                (self._topic_of if rule.error else self._rule_of).append(rule)
            if rule.unless is not None:
                self._unless[rule.name] = _checked(rule, rule.unless)
            for other in (rule.needs, rule.follows):
                if other is not None:
                    _checked(rule, other)
                    self._before.append((rule.name, other))
        patterns = [pattern for rule in rules if not rule.error for pattern in rule.patterns]
        self._match = _automaton([*patterns, *(pattern for _, pattern in self._before)])
        self._topic = _automaton([pattern for rule in rules if rule.error for pattern in rule.patterns])

    def read(self, line: str) -> tuple[list[Hit], list[tuple[str, str]]]:
        """The rules that a line matches, the root's first, and the rules that it may precede.

        Of the former generic rules only if there is no other; the latter by name, with their pattern for lines before.
        """
        indices, count = sorted(self._match(line)), len(self._rule_of)
        rules = [self._rule_of[index] for index in indices if index < count]
        return self._hits(rules, line), [self._before[index - count] for index in indices if index >= count]

    def topics(self, line: str, text: str) -> list[Hit]:
        """The rules for errors that a line matches, as `read` gives others; `text`: the line with its level."""
        if not self.context.error(text):
            return []
        return self._hits([self._topic_of[index] for index in sorted(self._topic(line))], line)

    def _hits(self, rules: list[CauseRule], line: str) -> list[Hit]:
        rules = list(dict.fromkeys(rules))
        matching = [rule for rule in rules if rule.name not in self._unless or not self._unless[rule.name].search(line)]
        specific = [rule for rule in matching if not rule.generic]
        return sorted((Hit(rule, self.rank(rule)) for rule in specific or matching), key=lambda hit: hit.rank)

    def rank(self, rule: CauseRule) -> int:
        return self.causes[rule.cause].rank if rule.rank is None else rule.rank

    def blame(self, rule: CauseRule) -> Blame | None:
        return rule.blame or self.causes[rule.cause].blame

    def remedy(self, rule: CauseRule) -> str:
        return rule.remedy or self.causes[rule.cause].remedy


def _automaton(patterns: Sequence[str]) -> Callable[[str], Sequence[int]]:
    """A function that gives the places of the patterns that a line matches."""
    automata = [
        (first, automaton.Match)
        for at in range(0, len(patterns), _TOGETHER)
        for first, automaton in _automata(patterns[at : at + _TOGETHER], at)
    ]

    def places(line: str) -> list[int]:
        text = line.encode()
        return [first + place for first, match in automata for place in match(text) or ()]

    return places


def _automata(patterns: Sequence[str], first: int) -> list[tuple[int, re2.Set]]:
    """Automata of patterns, each with its first one's place; two of halves if one takes too much memory."""
    options = re2.Options()
    options.max_mem, options.log_errors = _MEMORY, False
    automaton = re2.Set.SearchSet(options)
    for pattern in patterns:
        automaton.Add(pattern)
    try:
        automaton.Compile()
    except re2.error:
        half = len(patterns) // 2
        if not half:
            raise
        return _automata(patterns[:half], first) + _automata(patterns[half:], first + half)
    return [(first, automaton)]


class BadRule(UnreadableInput):
    """A rule of a catalogue that cannot be used."""

    def __init__(self, rule: CauseRule, pattern: str, why: str) -> None:
        super().__init__(f"rule {rule.name!r}: {why}")
        self.pattern = pattern  # that which is wrong


def _checked(rule: CauseRule, pattern: str) -> Pattern:
    options = re2.Options()
    options.log_errors = False
    try:
        compiled: Pattern = re2.compile(pattern, options)
    except re2.error as error:
        why = str(error.args[0].decode() if isinstance(error.args[0], bytes) else error)
        raise BadRule(
            rule,
            pattern,
            f"RE2 does not take the pattern {pattern!r} ({why}); it has no look-around and no back-references, so that "
            f"every line is read in linear time",
        ) from None
    if compiled.search("") is not None:  # any other text has it too
        raise BadRule(rule, pattern, f"the pattern {pattern!r} matches every line; write what a line contains")
    return compiled


def rules_in(text: str, where: str) -> list[CauseRule]:
    """The rules of a TOML document. UnreadableInput: it is none; the message says where."""
    try:
        return msgspec.convert(tomllib.loads(text), _File).rule
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise UnreadableInput(f"{where}: {error}") from None


@cache
def _context() -> Context:
    text = (files(__package__) / "context.toml").read_text(encoding="utf-8")
    return Context(msgspec.convert(tomllib.loads(text), _Lines))


@cache
def shipped_causes() -> dict[str, FailureCause]:
    """The causes of the catalogue, in order of rank."""
    text = (files(__package__) / "causes.toml").read_text(encoding="utf-8")
    causes = msgspec.convert(tomllib.loads(text), dict[str, FailureCause])
    return dict(sorted(causes.items(), key=lambda row: row[1].rank))


@cache
def shipped() -> Catalogue:
    """The catalogue of this version."""
    folder = files(__package__)
    return Catalogue(
        shipped_causes(),
        [rule for name in FILES for rule in rules_in((folder / name).read_text(encoding="utf-8"), name)],
    )


def catalogue_of(path: str | None) -> Catalogue:
    """The catalogue with the rules in a site's file, if there is one. Raises OSError, or UnreadableInput."""
    if path is None:
        return shipped()
    with Path(path).open("rb") as file:
        data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise UnreadableInput(f"{path} has more than {_LARGEST} bytes, the most that are taken")
    text = data.decode("utf-8", "replace")
    try:
        return with_rules(rules_in(text, path))
    except BadRule as error:
        line = next((number for number, line in enumerate(text.split("\n"), 1) if error.pattern in line), None)
        raise UnreadableInput(f"{path}{'' if line is None else f', line {line}'}: {error}") from None


def with_rules(rules: Iterable[CauseRule]) -> Catalogue:
    """The catalogue with a site's rules before ours."""
    return Catalogue(shipped_causes(), [*rules, *shipped().rules])
