"""The words of rule files: what a row can test of a case, and the values that each word can have."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from steno.engine.state.states import PROGRESS, Reason

NONE: Final = "none"  # a file's word for a value that the provider did not give
LEAST: Final = -(2**63)
MOST: Final = 2**63 - 1


class Exits(msgspec.Struct, frozen=True):
    """A set of exit statuses, with `None` if it holds a missing one too."""

    spans: tuple[tuple[int, int], ...]  # first and last, ascending, apart
    missing: bool = False

    def __contains__(self, status: object) -> bool:
        if not isinstance(status, int):
            return self.missing
        return any(first <= status <= last for first, last in self.spans)


Values = frozenset[Any] | Exits
Box = tuple[tuple[str, Values], ...]
"""Words with the values that each may have: a thing is in the box if all its words do. Sorted by word."""

_BOTH: Final = frozenset({True, False})
_STATES: Final = frozenset({*PROGRESS[1:], None})  # no provider shows what it does not have
_CAUSES: Final = frozenset({*Reason, None})
EVERY_EXIT: Final = Exits(((LEAST, MOST),), missing=True)

RUN: Final[Mapping[str, Values]] = {
    "over": _BOTH,  # the observation is decisive: `steno.engine.rules.sets.decisive`
    "final": _BOTH,
    "finite": _BOTH,
    "requeued": _BOTH,
    "scheduled": _BOTH,
    "state": _STATES,
    "failed": _BOTH,
    "cause": _CAUSES,
    "stopped_by_policy": _BOTH,
    "bare": _BOTH,
    "attempts": _BOTH,  # it shows an attempt
    "decided": _BOTH,  # an attempt decided that it failed
}
ATTEMPT: Final[Mapping[str, Values]] = {
    "fails": _BOTH,  # `AttemptCase.fails`
    "ended": _BOTH,
    "state": _STATES,
    "failed": _BOTH,
    "cause": _CAUSES,
    "retried": _BOTH,
    "exit_status": EVERY_EXIT,
    "decides": _BOTH,
}


def values_of(word: str, written: object, domain: Values) -> Values:
    """The set that a file's value names: a value, a list of values, `{not = …}`; of an exit status `{from = 1, to = 9}`
    too. ValueError: it names no value of the word.
    """
    match written:
        case list() if written:
            parts = [values_of(word, part, domain) for part in written]
            if isinstance(domain, Exits):
                exits = [part for part in parts if isinstance(part, Exits)]
                return Exits(joined(span for part in exits for span in part.spans), any(None in part for part in exits))
            return frozenset[Any]().union(*parts)  # type: ignore[arg-type] # of one word
        case {"not": inner, **more} if not more:
            return complement(values_of(word, inner, domain), domain)
        case _ if isinstance(domain, Exits):
            return _exits(word, written)
    names = {_word(value): value for value in domain}
    if isinstance(written, str | bool) and (text := _word(written)) in names:
        return frozenset({names[text]})
    from difflib import get_close_matches

    known = sorted(name.strip('"') for name in names)
    near = get_close_matches(str(written), known, n=1)
    hint = f"did you mean `{near[0]}`?" if near else f"use one of: {', '.join(known)}"
    raise ValueError(f"`{word}` is never {written!r}; {hint}")


def _exits(word: str, written: object) -> Exits:
    match written:
        case "none":
            return Exits((), missing=True)
        case dict() if written and written.keys() <= {"from", "to"}:
            first, last = written.get("from", LEAST), written.get("to", MOST)
        case _:
            first = last = written
    if type(first) is int and type(last) is int and LEAST <= first <= last <= MOST:
        return Exits(((first, last),))
    as_toml = str(written).replace("'", "").replace(":", " =")
    value = as_toml if isinstance(written, dict) else repr(written)
    raise ValueError(f'`{word}` is never {value}; use a whole number, "none", or {{from = 1, to = 125}}')


def joined(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The spans of numbers, in order, none beside another."""
    apart: list[tuple[int, int]] = []
    for first, last in sorted(spans):
        if apart and first <= apart[-1][1] + 1:
            apart[-1] = apart[-1][0], max(last, apart[-1][1])
        else:
            apart.append((first, last))
    return tuple(apart)


def complement(values: Values, domain: Values) -> Values:
    """The other values of a word."""
    if not isinstance(values, Exits):
        assert not isinstance(domain, Exits)  # noqa: S101 - of one word
        return domain - values
    spans, start = [], LEAST
    for first, last in values.spans:
        spans += [(start, first - 1)] if start < first else []
        start = last + 1
    return Exits((*spans, *([(start, MOST)] if start <= MOST else ())), not values.missing)


def text_of(values: Values) -> str:
    """A set as a file writes it, on one line."""
    domain: Values = EVERY_EXIT
    if not isinstance(values, Exits):
        domain = next(domain for domain in (_BOTH, _STATES, _CAUSES) if values <= domain)
    parts, others = _parts(values), _parts(complement(values, domain))
    negated = isinstance(values, Exits) and 0 not in values  # of two texts as long as each other
    turned = domain is not _BOTH and len(others) < len(parts) + negated
    listed = others if turned else parts
    text = listed[0] if len(listed) == 1 else f"[{', '.join(listed)}]"
    return f"{{not = {text}}}" if turned else text


def _parts(values: Values) -> list[str]:
    if isinstance(values, Exits):
        return [_span(*span) for span in values.spans] + [_word(None)] * values.missing
    return sorted(map(_word, values))


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{NONE if value is None else value}"'


def _span(first: int, last: int) -> str:
    if first == last:
        return str(first)
    ends = [f"from = {first}"] * (first > LEAST) + [f"to = {last}"] * (last < MOST)
    return f"{{{', '.join(ends)}}}"


def box_text(box: Box) -> str:
    return ", ".join(f"{word} = {text_of(values)}" for word, values in box)
