"""A record with events of every type: with every field, and with the defaults of all that have one."""

import typing
from pathlib import Path
from typing import Any

import msgspec

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace
from steno.events import types
from steno.events.clock import SystemClock
from steno.events.codec import CODES, KINDS, POLLS, decode
from steno.events.store.append import Batch
from steno.events.store.record import Record

_TESTS = Path(__file__).parents[2]
_POLLED = _TESTS / "traces" / "dstack-0.22.5" / "success.jsonl.zst"  # it lists runs, machines and the server's own log
_VALUES: dict[Any, object] = {str: "x", int: 1, bytes: b"{}"}


def _least(kind: type) -> Any:
    """An event of this class with nothing but what it must have."""
    hints = typing.get_type_hints(kind)
    given = {}
    for field in msgspec.structs.fields(kind):
        if field.required:
            hint = hints[field.name]
            literal = typing.get_args(hint)[0] if typing.get_origin(hint) is typing.Literal else None
            given[field.name] = literal or (() if typing.get_origin(hint) is tuple else _VALUES[hint])
    return kind(**given)


def record_of_every_event(path: Path | str) -> None:
    """Make the record at `path`. Raises AssertionError if a type is missing."""
    observed = {CODES[kind] for kind in types.OBSERVED.values()}
    own = [event for event in CODES if CODES[event] not in POLLS | observed]
    events = [_least(event) for event in own]
    for number, (name, version) in sorted(KINDS.items()):
        fixture = _TESTS / "events" / "fixtures" / f"{name}.v{version}.json"
        if fixture.exists():
            events.append(decode(number, bytes.fromhex(msgspec.json.decode(fixture.read_bytes())["bytes"])))
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()) as record:
        polls = [poll for _, poll in open_trace(_POLLED) if poll is not None]
        record.append_polls([*polls, msgspec.structs.replace(polls[-1], answered=False, status=500)])
        record.append_many([Batch(f"source/every/{n}", [event]) for n, event in enumerate(events)])
        assert {event.type for event in record.read()} == types.NAMES
