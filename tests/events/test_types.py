"""Events are read for ever: every type and version that was ever written has a fixture here."""

import typing
from pathlib import Path

import msgspec
import pytest

from steno.events import types
from steno.events.codec import CODES, KINDS, POLLS, decode, encode, type_of, upcast
from steno.events.errors import RecordDamaged, RecordTooNew

FIXTURES = Path(__file__).parent / "fixtures"
OBSERVED = {CODES[kind] for kind in types.OBSERVED.values()}
WRITTEN = {kind: named for kind, named in KINDS.items() if kind not in POLLS and kind not in OBSERVED}
"""Polls and observations keep their facts in the columns of their rows; a stored record proves those."""

JSON_TEXTS = {"configuration", "policy", "body", "kernel", "frame"}
"""Fields that hold JSON text as bytes."""


def fixture(kind: int) -> Path:
    name, version = KINDS[kind]
    return FIXTURES / f"{name}.v{version}.json"


@pytest.mark.parametrize("kind", sorted(WRITTEN), ids=lambda kind: f"{KINDS[kind][0]}.v{KINDS[kind][1]}")
def test_an_event_of_every_version_is_still_read(kind: int) -> None:
    """`bytes` is what a record holds, as hex; `event` what must be read from it."""
    kept = msgspec.json.decode(fixture(kind).read_bytes())
    event = decode(kind, bytes.fromhex(kept["bytes"]))
    assert type(event).__name__ == KINDS[kind][0]
    assert msgspec.to_builtins(event, builtin_types=(bytes,)) == {
        key: value.encode()
        if key in JSON_TEXTS
        else bytes.fromhex(value)
        if key == "block"
        else tuple(value)
        if isinstance(value, list)
        else value
        for key, value in kept["event"].items()
    }


def test_every_kind_of_event_has_one_number_and_a_version() -> None:
    """A number is never used twice, and every class of the union can be written."""
    assert set(CODES) == set(typing.get_args(types.Event))
    assert len(set(KINDS.values())) == len(KINDS)
    assert {name for name, _ in KINDS.values()} == types.NAMES
    assert {path.name for path in FIXTURES.glob("*.json")} == {fixture(kind).name for kind in WRITTEN}


@pytest.mark.parametrize("kind", sorted(WRITTEN))
def test_what_is_written_is_what_is_read(kind: int) -> None:
    """The newest version of a type comes back equal."""
    event = decode(kind, bytes.fromhex(msgspec.json.decode(fixture(kind).read_bytes())["bytes"]))
    assert decode(CODES[type(event)], encode(event)) == event


def test_a_field_that_is_added_with_a_default_needs_no_version() -> None:
    """Old bytes lack it, newer bytes may have more than we know."""
    fields = {"run_id": "1", "provider": "local", "more": [1]}
    assert decode(16, msgspec.msgpack.encode(fields)) == types.StopSucceeded(run_id="1", provider="local")


def test_upcasters_are_applied_step_by_step() -> None:
    """From version 1 to 2 to 3; a version nobody upcasts is the newest."""
    registry = {
        ("StopSucceeded", 1): lambda fields: {"run_id": fields["run"], "host": fields["host"]},
        ("StopSucceeded", 2): lambda fields: {"run_id": fields["run_id"], "provider": f"local/{fields['host']}"},
        ("Other", 3): lambda fields: {},
    }
    assert upcast("StopSucceeded", 1, {"run": "7", "host": "h"}, registry) == {"run_id": "7", "provider": "local/h"}
    assert upcast("StopSucceeded", 3, {"run_id": "7"}, registry) == {"run_id": "7"}
    old = msgspec.msgpack.encode({"run": "7", "host": "h"})
    assert decode(16, old, registry) == types.StopSucceeded(run_id="7", provider="local/h")


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x80", msgspec.msgpack.encode({"run_id": 7, "provider": "x"})])
def test_bytes_that_are_no_event_are_damage(data: bytes) -> None:
    """Never a traceback of the decoder."""
    with pytest.raises(RecordDamaged):
        decode(16, data)


def test_a_kind_of_a_later_version_is_named() -> None:
    """A record with events we do not know was written by a newer Steno."""
    with pytest.raises(RecordTooNew, match="999"):
        type_of(999)
