"""Run `steno` and kill it with SIGKILL at its Nth boundary: `python kill_at.py N ARGS…`.

A boundary is the moment before or after anything that leaves a trace outside the process: a commit to the record, a
write of the vault, a request to the provider, the start of a local run, the end of a machine, a notice. With `N!` polls
are none, so that a recorder's effects can be counted. Where there are fewer than N, the command runs to its end.
"""

import os
import signal
import sys

COUNT = int(sys.argv[1].removesuffix("!"))
POLLS = not sys.argv[1].endswith("!")
reached = 0


def boundary(what):
    global reached  # noqa: PLW0603 - one process, one count
    reached += 1
    if reached == COUNT:
        sys.stderr.write(f"killed at boundary {COUNT}: {what}\n")
        sys.stderr.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def around(owner, name):
    """Make the method a pair of boundaries."""
    method = getattr(owner, name)

    def wrapped(*args, **kwargs):
        boundary(f"before {owner.__name__}.{name}")
        result = method(*args, **kwargs)
        boundary(f"after {owner.__name__}.{name}")
        return result

    setattr(owner, name, wrapped)


def main():
    from steno.cli.main import main as steno
    from steno.engine.notify import notices
    from steno.engine.providers.dstack.client import Client
    from steno.engine.providers.local.provider import LocalProvider
    from steno.events.store.record import Record
    from steno.events.store.vault import Vault

    for owner, names in (
        (Record, ("append_many", "append_polls") if POLLS else ("append_many",)),
        (Vault, ("conceal", "erase")),
        (Client, ("ask", "upload")),
        (LocalProvider, ("submit", "stop", "stop_vm")),
        (notices, ("send",)),
    ):
        for name in names:
            around(owner, name)
    sys.argv = ["steno", *sys.argv[2:]]
    try:
        steno()
    finally:
        sys.stderr.write(f"boundaries: {reached}\n")


main()
