"""`steno events`: every event of a record is one line, and with --json one JSON value."""

import json

from stenotest.command_line import Steno
from stenotest.every_event import record_of_every_event

from events import types


def test_an_event_of_every_type_is_printed_as_json(steno: Steno, place: str) -> None:
    """A law over all types, with all fields and with none that can be left out."""
    record_of_every_event(place)
    done = steno("events", "--json")
    assert done.returncode == 0, done.stderr
    assert {json.loads(line)["type"] for line in done.stdout.splitlines()} == types.NAMES
    rows = steno("sql", "select data from events", "--json")
    assert rows.returncode == 0, rows.stderr
    found = [json.loads(row["data"]) for row in map(json.loads, rows.stdout.splitlines())]
    assert len(found) == len(done.stdout.splitlines())
