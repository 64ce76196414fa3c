"""Several processes at the projections of one record, and processes killed while they write them."""

import os
import re
import signal
import time
from contextlib import ExitStack, closing

import pytest
from stenotest import steno_process
from stenotest.growing_record import CLOCK, Growing, child, looked, same_as_replay
from stenotest.waiting import wait

from steno.projections.read_models.projector import caught_up, rebuilt
from steno.projections.read_models.reader_pool import Pool

_BUILDER = """
import os, signal, sys
from steno.projections.read_models import projection_writer, projector
from steno.projections.read_models import read_models, store
from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.read_models.projector import caught_up, rebuilt
projection_writer.SPACING = 64
calls = 0
real = {module}.{name}
def killed(*args, **more):
    global calls
    calls += 1
    if {after} and calls == {call}:
        real(*args, **more)
    if calls == {call}:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*args, **more)
{module}.{name} = killed
with Record.open(sys.argv[1], clock=SystemClock(), shapes=READINGS.shape) as record:
    {work}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "module", "name", "call", "after"),
    [
        ("caught_up(record).close()", "projection_writer", "save_world", 1, False),
        ("caught_up(record).close()", "projection_writer", "save_world", 3, True),
        ("caught_up(record).close()", "store", "ProjectionStore.keep_moment", 1, True),
        ("caught_up(record).close()", "store", "ProjectionStore.set_checkpoint", 2, True),
        ("rebuilt(record)", "projection_writer", "costed", 2, False),
        ("rebuilt(record)", "read_models", "ReadModels._publish", 1, False),
        ("rebuilt(record)", "read_models", "ReadModels._publish", 1, True),
        ("rebuilt(record)", "read_models", "_remove", 1, False),
        ("rebuilt(record)", "read_models", "Path.symlink_to", 1, True),
        ("rebuilt(record)", "read_models", "Path.replace", 1, True),
    ],
)
def test_a_process_killed_anywhere_leaves_what_others_go_on_with(
    growing: Growing, work: str, module: str, name: str, call: int, after: bool
) -> None:
    """In the middle of a transaction, before, in and behind the swap: readers read on, and the next one finishes."""
    caught_up(growing.record).close()
    rebuilt(growing.record)
    with closing(Pool(growing.path, clock=CLOCK, wake=lambda: None)) as pool:
        with pool.now() as look:
            before = look.position
        head = growing.grow(200)
        program = _BUILDER.format(module=module, name=name, call=call, after=after, work=work)
        done = steno_process.run([str(growing.path)], program=program, env=os.environ)
        assert done.returncode == -signal.SIGKILL, done.stderr
        with pool.now() as look:
            assert look.position >= before
            same_as_replay(look)
        with caught_up(growing.record) as store:
            checkpoint = store.checkpoint()
            assert checkpoint is not None
            assert checkpoint.position == head
        with pool.now() as look:
            assert look.position == head
            same_as_replay(look)
        rebuilt(growing.record)
        there = [path for path in growing.path.parent.iterdir() if re.fullmatch(r".*\.[0-9a-f]{8}", path.name)]
        assert len(there) <= 2


_FOLLOWER = """
import sys, time
from pathlib import Path
from steno.events.clock import SystemClock
from steno.projections.read_models.projector import Projector
projector = Projector(Path(sys.argv[1]), clock=SystemClock())
projector.start()
while not projector.position:
    time.sleep(0.01)
print("it follows", flush=True)
head = int(sys.stdin.readline() or 0)
while projector.position < head:
    time.sleep(0.01)
projector.stop()
print(projector.position)
"""


@pytest.mark.slow
def test_several_projectors_may_follow_one_record(growing: Growing) -> None:
    """Each in a process of its own, as `steno up` beside `steno serve`; together they write what one would."""
    with ExitStack() as stack:
        pool = stack.enter_context(closing(Pool(growing.path, clock=CLOCK, wake=lambda: None)))
        running = [stack.enter_context(child(_FOLLOWER, growing.path)) for _ in range(3)]
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "it follows\n", process.communicate()
        for _ in range(100):
            head = growing.grow(4)
            time.sleep(0.02)
        wait(looked(pool, head))
        for process in running:
            output, trouble = process.communicate(f"{head}\n")
            assert (process.returncode, trouble) == (0, "")
            assert int(output) == head
        with pool.now() as look:
            same_as_replay(look)
