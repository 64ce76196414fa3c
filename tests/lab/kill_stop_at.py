"""Run `steno` and kill it with SIGKILL at the Nth boundary of ending a machine: `python kill_stop_at.py N ARGS…`.

A boundary is the moment before or after one of its steps: each fact about the end that is appended, and the request
that ends the machine at dstack. Polls are none, so that N means the same step however often the recorder looked.
"""

import os
import signal
import sys

COUNT = int(sys.argv[1])
STEPS = {"VmDrainStarted", "VmStopIntended", "VmStopSucceeded", "VmStopFailed"}
reached = 0


def boundary():
    global reached  # noqa: PLW0603 - one process, one count
    reached += 1
    if reached == COUNT:
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner, name, counts):
    """Make those calls of the method that count a pair of boundaries."""
    method = getattr(owner, name)

    def wrapped(self, first, *args, **kwargs):
        if not counts(first):
            return method(self, first, *args, **kwargs)
        boundary()
        result = method(self, first, *args, **kwargs)
        boundary()
        return result

    setattr(owner, name, wrapped)


def main():
    from steno.cli.main import main as steno
    from steno.engine.providers.dstack.client import Client
    from steno.events.store.record import Record

    around(Record, "append_many", lambda batches: any(type(e).__name__ in STEPS for b in batches for e in b.events))
    around(Client, "ask", lambda path: path.endswith("/delete_instances"))
    sys.argv = ["steno", *sys.argv[2:]]
    steno()


main()
