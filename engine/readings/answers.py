"""Whether an answer is one, and which items it carries, before anybody reads them.

An answer counts (`PollRecorded`) if it is a 2xx of the shape its endpoint has, or says `resource_not_exists`.
Everything else, an HTML page with status 200 included, is a failure of the source.
"""

from typing import Any, Final

import msgspec

from engine.readings.scope import (
    EVENTS_LIST,
    FLEETS_GET,
    FLEETS_LIST,
    INSTANCES_LIST,
    RUNS_GET,
    RUNS_LIST,
    read_scope,
)

_LISTS: Final = frozenset({RUNS_LIST, INSTANCES_LIST, FLEETS_LIST, EVENTS_LIST})
_THINGS: Final = frozenset({RUNS_GET, FLEETS_GET})
MOST_ITEMS: Final = 10_000
"""Items of a server's answer: a page that we ask for has 100, and each new item becomes a stream of the record."""
_NOT_EXISTS: Final = "resource_not_exists"

_raw_list = msgspec.json.Decoder(list[msgspec.Raw])


class _Identity(msgspec.Struct):
    id: str


_identity = msgspec.json.Decoder(_Identity)


def answered(path: str, req: bytes, status: int | None, body: bytes | None) -> bool:
    """Whether the source told us something with this answer."""
    if status is None or body is None:
        return False
    if not 200 <= status < 300:
        return says_not_exists(status, body)
    scope = read_scope(path, req)
    match scope.endpoint:
        case endpoint if endpoint in _LISTS:
            items = raw_items(body)
            return items is not None and (len(items) <= MOST_ITEMS or scope.provider == "local")
        case endpoint if endpoint in _THINGS:
            return identity_of(body) is not None
        case _:
            return True


def raw_items(body: bytes) -> list[bytes] | None:
    """The items of a list answer as JSON text, in its order; None if the body is no list of objects."""
    try:
        items = [bytes(item) for item in _raw_list.decode(body)]
    except msgspec.DecodeError:
        return None
    return items if all(item.lstrip()[:1] == b"{" for item in items) else None


def identity_of(item: bytes) -> str | None:
    """The provider's id of an item; None where it has none."""
    try:
        return _identity.decode(item).id or None
    except msgspec.DecodeError:
        return None


def says_not_exists(status: int | None, body: bytes | None) -> bool:
    """Whether the answer is dstack's `resource_not_exists`; `detail` may be a string, an object or a list."""
    if status is None or body is None or not 400 <= status < 500 or _NOT_EXISTS.encode() not in body:
        return False
    try:
        value: Any = msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError):
        return False
    detail = value.get("detail") if isinstance(value, dict) else None
    entries = detail if isinstance(detail, list) else [detail]
    return any(_NOT_EXISTS in (entry, entry.get("code") if isinstance(entry, dict) else None) for entry in entries)
