"""A signal that raises in the middle of a call to the database: the session goes on, and nothing is lost or doubled."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from events.clock import SystemClock
from events.store.record import Record

PROGRAM: Final = """
import random, signal, sys
from events import types
from events.clock import SystemClock
from events.store.record import Batch, Record
from events.store.store import store_at

class Interrupted(BaseException): pass

came = False

def interrupt(*_):
    global came
    came = True  # Python drops what is raised in a destructor
    raise Interrupted

signal.signal(signal.SIGALRM, interrupt)
chance = random.Random(sys.argv[3])
with Record.open(sys.argv[1], write=True, create=True, clock=SystemClock()) as record:
    def append(why):
        fact = types.RecorderStopped(source="a/b", why=why)
        return record.append_many([Batch("source/a/b", [fact])], durable=True)[-1]

    store = store_at(sys.argv[1])
    append("first")
    for number in range(int(sys.argv[2])):
        came = False
        try:
            signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00001, 0.004))
            while not came:
                record.head()
                if number % 2:
                    append("perhaps")
                if number % 5 == 0:
                    store.leases()
        except Interrupted:
            pass
        at = append(str(number))
        assert record.event(at).why == str(number)
        assert record.head().position == at
"""


def test_a_session_goes_on_after_a_signal_in_the_middle_of_a_call(postgres_url: str) -> None:
    """As SIGTERM does to a recorder that then records its end: it hung, or was a bug in Steno."""
    turns = 100
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, postgres_url, str(turns), "seed"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    with Record.open(postgres_url, clock=SystemClock()) as record:
        assert record.verify().ok
        whys = [stored.data.why for stored in record.read()]
    assert [why for why in whys if why.isdecimal()] == [str(number) for number in range(turns)]
