"""The roles of a PostgreSQL database that keep, drop and read the output of runs."""

import psycopg
import pytest
from psycopg import errors
from stenotest.outputs import keep_output
from stenotest.postgres import MakeRole
from stenotest.records import StandingClock

from steno.events.store.outputs import chunks
from steno.events.store.record import Record


def test_a_role_that_appends_keeps_and_drops_output(postgres_url: str, make_role: MakeRole) -> None:
    """And changes none of it; a role that reads sees it."""
    Record.open(postgres_url, clock=StandingClock(), write=True, create=True).close()
    _, theirs = make_role(appends=True)
    with Record.open(theirs, clock=StandingClock(), write=True) as record:
        keep_output(record, "1", "p", b"one\n", b"two\n", drop=[0])
        assert record.verify().ok
    plain = psycopg.connect(theirs, autocommit=True, options="-c search_path=steno")
    with plain as role, pytest.raises(errors.InsufficientPrivilege):
        role.execute("UPDATE outputs SET data = ''")
    with Record.open(make_role(appends=False)[1], clock=StandingClock()) as record:
        assert [chunk.data for chunk in chunks(record, "1")] == [None, b"two\n"]
