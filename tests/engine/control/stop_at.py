"""Run `steno` and end or stop it while it stops a machine: `python stop_at.py HOW LOG ARGS…`.

HOW: `before` and `after` the call to the provider it is killed; `asleep`: it is stopped (SIGSTOP) between the intent
and the call. Each call is a line of LOG.
"""

import os
import signal
import sys
from pathlib import Path

HOW, LOG = sys.argv[1], Path(sys.argv[2])


def main():
    from steno.cli.main import main as steno
    from steno.engine.providers.local.provider import LocalProvider
    from steno.events.store.record import Record

    append, stop_vm = Record.append_many, LocalProvider.stop_vm

    def appended(self, batches, **more):
        positions = append(self, batches, **more)
        if HOW == "asleep" and any(
            type(event).__name__ == "VmStopIntended" for batch in batches for event in batch.events
        ):
            os.kill(os.getpid(), signal.SIGSTOP)
        return positions

    def stopped(self, provider_id):
        if HOW == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        with LOG.open("a") as out:
            out.write(f"{os.getpid()}\n")
        stop_vm(self, provider_id)
        if HOW == "after":
            os.kill(os.getpid(), signal.SIGKILL)

    Record.append_many, LocalProvider.stop_vm = appended, stopped
    sys.argv = ["steno", *sys.argv[3:]]
    steno()


main()
