"""Forks writers and readers of one record on command: `python chaos.py URL FOLDER PAUSE`, lines `write NAME` and `read`
on its standard input; for each it prints the process id. A killed process continues where its file ends:
`FOLDER/NAME` has the positions that were acknowledged, `FOLDER/seen` what was read.
"""

import hashlib
import os
import random
import signal
import sys
import time
import traceback
from pathlib import Path

from stenotest.records import START, poll_of

from steno.events import types
from steno.events.clock import SystemClock
from steno.events.errors import RecordLocked, RecordUnreachable
from steno.events.store.postgres import store  # noqa: F401 - before it forks
from steno.events.store.record import Batch, Record

AGAIN_S = 0.05


def lines(path):
    """The whole lines of a file; a last line that was cut is taken away."""
    if not path.exists():
        return []
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    os.truncate(path, len(whole))
    return whole.decode().splitlines()


def patiently(url, work, *, write):
    """Do `work(record)` until it is done; a database that is away is waited for."""
    while True:
        try:
            with Record.open(url, clock=SystemClock(), write=write) as record:
                return work(record)
        except (RecordUnreachable, RecordLocked):
            time.sleep(AGAIN_S)


def append(record, name, number):
    """The positions of one step: an event of its own, one on the stream of all, and sometimes a poll."""
    ids = [hashlib.md5(f"{name}/{number}/{part}".encode()).hexdigest() for part in range(3)]
    event = types.SubmitIntended(run_id=str(number), provider="local", name=name)
    batches = [Batch(f"run/{name}", (event,), ids=ids[:1]), Batch("run/shared", (event,), ids=ids[1:2])]
    positions = record.append_many(batches, durable=number % 2 == 0)
    if number % 3 == 0:
        body = b'[{"id":"%s","n":%d}]' % (name.encode(), number // 9)
        poll = poll_of(body, at=START + number, source=f"dstack/{name}")
        positions += (record.append_polls([poll], ids=ids[2:])[0].position,)
    return positions


def write(url, folder, name, pause):
    path, stop = folder / name, folder / "stop"
    number = len(lines(path))
    with path.open("ab", buffering=0) as out:

        def go_on(record):
            nonlocal number
            while not stop.exists():
                out.write(f"{' '.join(map(str, append(record, name, number)))}\n".encode())
                number += 1
                time.sleep(random.expovariate(1 / pause))

        patiently(url, go_on, write=True)


def read(url, folder):
    path, over = folder / "seen", folder / "over"
    seen = lines(path)
    last = int(seen[-1].split()[0]) if seen else 0
    with path.open("ab", buffering=0) as out:

        def go_on(record):
            nonlocal last
            while True:
                end = int(over.read_text()) if over.exists() else None
                for stored in record.read(after=last, limit=1000):
                    out.write(f"{stored.position} {stored.hash[:16]}\n".encode())
                    last = stored.position
                if end is not None and last >= end:
                    return
                time.sleep(0.005)

        patiently(url, go_on, write=False)


def main():
    url, folder, pause = sys.argv[1], Path(sys.argv[2]), float(sys.argv[3])
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that end
    for line in sys.stdin:
        what, *name = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                write(url, folder, name[0], pause) if what == "write" else read(url, folder)
            except BaseException:  # noqa: BLE001 - the test looks there
                with (folder / "trouble").open("a") as out:
                    traceback.print_exc(file=out)
                os._exit(1)
            os._exit(0)
        print(pid, flush=True)


main()
