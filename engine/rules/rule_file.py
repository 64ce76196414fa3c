"""Rule files: the text of a rule set, its rows with their lines, and everything in it that is not understood."""

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date
from functools import lru_cache
from hashlib import sha256
from itertools import pairwise
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from steno.engine.rules.rows import COPIED, UNCHANGED, Conditions, RuleRow, judge_by
from steno.engine.rules.sets import ADOPTED, CURRENT, RuleSet
from steno.engine.rules.words import ATTEMPT, RUN, Box, complement, values_of
from steno.engine.state.states import PROGRESS, Reason, State
from steno.events.errors import UnreadableInput
from steno.events.types import RulesAdopted

FORMAT: Final = 1
MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 4 << 20
_HEAD: Final[Mapping[str, type]] = {"format": int, "name": str, "date": date, "rationale": str}
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_ROW: Final = re.compile(r"[ \t]*\[\[[ \t]*row[ \t]*\]\]")
_LONG_TEXT: Final = re.compile(r'"""(?:\\.|[^\\])*?"""' + r"|'''.*?'''", re.DOTALL)
_AT_LINE: Final = re.compile(r"at line (\d+)")
_ENDS: Final = (State.SUCCEEDED, State.FAILED, State.STOPPED)
_STATES: Final[Mapping[str, State | None]] = {
    **{end.value: end for end in _ENDS},
    UNCHANGED: None,
    **{state.value: state for state in PROGRESS[1:]},
}
_REASONS: Final[Mapping[str, Reason | str]] = {
    **{reason.value: reason for reason in Reason if reason is not Reason.DELETED},
    COPIED: COPIED,
}
_QUANTIFIERS: Final = ("first", "deciding", "any", "all", "no")
_IMPLIED: Final = {"first": "attempts", "any": "attempts", "all": "attempts", "deciding": "decided"}
_TRUE: Final = frozenset({True})


class RuleFinding(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """Something to know about a rule file."""

    line: int  # from 1
    kind: str  # `unreadable`, `unknown-word`, `gap`, `overlap`, `hidden`, `never`, `early` or `undecided`
    text: str
    error: bool = True  # false: a note; the file can be used all the same


class RuleFile(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    date: str
    rationale: str
    incidents: tuple[str, ...]
    extends: str | None
    rows: tuple[RuleRow, ...]


class _Problem(ValueError):
    """A key that is wrong."""

    def __init__(self, key: str, text: str, kind: str = "unknown-word") -> None:
        super().__init__(text)
        self.key, self.kind = key, kind


@lru_cache(maxsize=8)
def read_rules(text: str) -> tuple[RuleFile | None, tuple[RuleFinding, ...]]:
    """The rule set of a text, without the rows that are not understood, and what is wrong; None: it has no head."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        at = _AT_LINE.search(str(error))
        line = int(at[1]) if at is not None else max(1, len(text.splitlines()))
        cut = "" if at is not None or isinstance(error, RecursionError) else "; the file is cut"
        return None, (_unreadable(line, f"is not valid TOML: {str(error)[:200]}{cut}"),)
    lines = _LONG_TEXT.sub(lambda long: "\n" * long[0].count("\n"), text).splitlines()
    starts = [number for number, line in enumerate(lines, 1) if _ROW.match(line)]
    written = table.pop("row", [])
    if not isinstance(written, list) or len(written) != len(starts):
        line = next((at for at, line in enumerate(lines, 1) if re.match(r"\s*\[*\s*row\b", line)), 1)
        return None, (_unreadable(line, "write each row as `[[row]]`, on a line of its own"),)
    if len(written) > MOST_ROWS:
        return None, (_unreadable(starts[MOST_ROWS], f"has {len(written)} rows; at most {MOST_ROWS} are read"),)
    edges = [*starts, len(lines) + 1]
    try:
        head = _head(table)
    except _Problem as problem:
        return None, (_located(problem, lines, 1, edges[0]),)
    rows, findings = list[RuleRow](), list[RuleFinding]()
    for number, (row, (start, end)) in enumerate(zip(written, pairwise(edges), strict=True), 1):
        try:
            rows.append(_row(row, start, f"row-{number}"))
        except _Problem as problem:
            findings.append(_located(problem, lines, start, end))
    return replace(head, rows=tuple(rows)), tuple(findings)


def _unreadable(line: int, text: str) -> RuleFinding:
    return RuleFinding(line=line, kind="unreadable", text=text)


def _located(problem: _Problem, lines: list[str], start: int, end: int) -> RuleFinding:
    """The problem at the line of its key, among those of its part."""
    key = re.compile(rf"(?<![\w-]){re.escape(problem.key)}\b")
    line = next((number for number in range(start, end) if key.search(lines[number - 1].partition("#")[0])), start)
    return RuleFinding(line=line, kind=problem.kind, text=str(problem))


def _head(table: dict[str, Any]) -> RuleFile:
    version = table.get("format", 0)
    if type(version) is int and version > FORMAT:
        text = f"format {version} is of a later version of Steno: this one reads {FORMAT}"
        raise _Problem("format", text, "unreadable")
    _only(table, (*_HEAD, "extends", "incidents"), "a rule file", "row")
    for key, kind in _HEAD.items():
        value = table.get(key)
        if value.__class__ is not kind or value in (0, ""):
            example = {"format": "1", "date": "2026-11-29"}.get(key, '"…"')
            raise _Problem(key, f"`{key} = {example}` is missing or not valid", "unreadable")
    base, incidents = table.get("extends"), table.get("incidents", [])
    name = _name(table["name"], "a name", (CURRENT.name, ADOPTED.name))
    if base is not None and (not isinstance(base, str) or base == name or not _NAME.fullmatch(base)):
        text = f'{base!r} is not a rule set to extend: use "current" or another file\'s name'
        raise _Problem("extends", text, "unreadable")
    if not isinstance(incidents, list) or not all(isinstance(incident, str) for incident in incidents):
        raise _Problem("incidents", "`incidents` is a list of texts", "unreadable")
    day, rationale = str(table["date"]), table["rationale"]
    return RuleFile(name=name, date=day, rationale=rationale, incidents=tuple(incidents), extends=base, rows=())


def _only(table: dict[str, Any], keys: Iterable[str], what: str, *more: str) -> None:
    for key in sorted(table.keys() - set(keys)):
        raise _Problem(key, f"`{key}` is not a key of {what}; use {', '.join((*keys, *more))}")


def _name(name: object, what: str, taken: Sequence[object] = ()) -> str:
    if name in taken:
        raise _Problem("name", f"{name!r} is a rule set of Steno's own: choose another name", "unreadable")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Problem("name", f"{name!r} cannot be {what}: use lower-case letters, digits and `-`", "unreadable")
    return name


def _row(row: dict[str, Any], line: int, name: str) -> RuleRow:
    _only(row, ("name", "when", "then"), "a row")
    when, then, name = row.get("when", {}), row.get("then"), _name(row.get("name", name), "a row's name")
    if not isinstance(when, dict) or not isinstance(then, dict):
        text = "a row is `when.WORD = …` and `then = { state = …, reason = … }`"
        raise _Problem("when" if "then" in row else "row", text, "unreadable")
    conditions = _conditions(when)
    state, reason = _then(then, conditions)
    return RuleRow(name=name, line=line, when=conditions, state=state, reason=reason)


def _then(then: dict[str, Any], when: Conditions) -> tuple[State | None, Reason | str | None]:
    _only(then, ("state", "reason"), "`then`")
    state = _STATES[_choice(then, "state", _STATES, "a state of `then`")]
    if state not in _ENDS:
        if "reason" in then:
            raise _Problem("reason", f"a run that is {then['state']} has no reason: only an end has one")
        return state, None
    reason = _REASONS[_choice(then, "reason", _REASONS, "a reason")]
    if reason == COPIED and None in dict(when.deciding).get("cause", {None}):
        raise _Problem("reason", f'`{COPIED}` needs `deciding = {{ cause = {{ not = "none" }} }}` in `when`')
    return state, reason


def _choice(then: dict[str, Any], key: str, known: Mapping[str, object], what: str) -> str:
    word = then.get(key)
    if isinstance(word, str) and word in known:
        return word
    text = f"{word!r} is not {what}; use one of: {', '.join(known)}"
    raise _Problem(key if key in then else "then", text)


def _conditions(when: dict[str, Any]) -> Conditions:
    known = dict(_box({word: value for word, value in when.items() if word not in _QUANTIFIERS}, RUN, "of a run"))
    boxes = {name: tuple(_boxes(name, when[name])) for name in _QUANTIFIERS if name in when}
    for name in ("first", "deciding", "all"):
        if len(boxes.get(name, ())) > 1:
            raise _Problem(name, f"`{name}` is one table, not several")
    for name, word in _IMPLIED.items():
        if name in when and known.setdefault(word, _TRUE) != _TRUE:
            raise _Problem(word, f"`{word} = false` contradicts another word of the row: it can never match", "never")
    every = (test for box in boxes.get("all", ()) for test in box)
    return Conditions(
        run=tuple(sorted(known.items())),
        first=boxes.get("first", ((),))[0],
        deciding=boxes.get("deciding", ((),))[0],
        some=boxes.get("any", ()),
        no=(*boxes.get("no", ()), *(((word, complement(values, ATTEMPT[word])),) for word, values in every)),
    )


def _boxes(name: str, written: object) -> Iterator[Box]:
    for table in written if isinstance(written, list) else [written]:
        if not isinstance(table, dict):
            raise _Problem(name, f"`{name}` is a table of words of an attempt: `{name} = {{ exit_status = 137 }}`")
        yield _box(table, ATTEMPT, "of an attempt")


def _box(table: dict[str, Any], domains: Mapping[str, Any], whose: str) -> Box:
    for word in sorted(table.keys() - domains.keys()):
        known = ", ".join((*domains, *(_QUANTIFIERS if domains is RUN else ())))
        text = f"`{word}` is not a word {whose}, and rules see no provider's words; use one of: {known}"
        raise _Problem(word, text)
    try:
        return tuple(sorted((word, values_of(word, value, domains[word])) for word, value in table.items()))
    except ValueError as error:
        raise _Problem(re.findall(r"`(\w+)`", str(error))[0], str(error)) from None


def digest_of(texts: Iterable[str]) -> str:
    """SHA-256 of a set's texts in a row, in hexadecimal: of one file, what `sha256sum` prints."""
    return sha256("".join(texts).encode()).hexdigest()


@lru_cache(maxsize=16)
def rules_of(texts: tuple[str, ...]) -> RuleSet:
    """The rule set of a file's text and the texts of the sets that it extends, the nearest first; `CURRENT` of none.

    Raises:
        UnreadableInput: a text is not understood.
    """
    rules = CURRENT
    for place, text in reversed(tuple(enumerate(texts))):
        file, findings = read_rules(text)
        if file is None or findings:
            raise UnreadableInput(f"line {findings[0].line}: {findings[0].text}")
        base = None if file.extends is None else rules.judge
        judge = judge_by(file.rows, prefix_of(file.name, text), base)
        summary = " ".join(file.rationale.split())
        rules = dataclasses.replace(CURRENT, name=file.name, texts=texts[place:], judge=judge, summary=summary)
    return rules


def adopted_by(event: RulesAdopted) -> RuleSet | None:
    """The rule set that an event puts in force; None: it is of a version that wrote other things."""
    with suppress(UnreadableInput):
        return rules_of((event.text, *event.extends) if event.text else ())
    return None


def prefix_of(name: str, text: str) -> str:
    """The first part of the names of a file's rules: another text has another."""
    return f"{name}@{digest_of([text])[:8]}"


def row_named(rule: str | None, texts: tuple[str, ...]) -> tuple[RuleFile, RuleRow] | None:
    """The row of these texts that a verdict or step names; None: none of them."""
    files = ((file, prefix_of(file.name, text)) for text in texts if (file := read_rules(text)[0]) is not None)
    return next(((file, row) for file, prefix in files for row in file.rows if rule == f"{prefix}/{row.name}"), None)
