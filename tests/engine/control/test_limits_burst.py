"""Limits by owner across processes: a hundred submissions through four processes by five users, on one record."""

import os
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

import pytest
from stenotest import steno_process
from stenotest.gated_run import holding

from steno.engine.decide.limits import OwnerLimits
from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.providers.registry import READINGS
from steno.engine.state.policy import HOUR, OwnerLimit, Policy, Rate, dump_policy
from steno.engine.state.states import State
from steno.engine.wire import DOLLAR
from steno.events.clock import SystemClock
from steno.events.store.record import Record

pytestmark = pytest.mark.slow

PROCESSES, EACH, USERS = 4, 25, tuple("abcde")
POLICY = Policy(
    max_vms=None,
    idle_timeout=0,
    assumed_duration=HOUR,
    assumed=(Rate(gpu="", hourly=DOLLAR),),
    limits=tuple(OwnerLimit(owner=f"user/{user}", budget=4 * DOLLAR, runs=2) for user in USERS),
)
"""A run of an hour costs a dollar at worst: each user may have requested four at once, and two of them run."""
WAITED = DOLLAR // 10
"""Six minutes: a machine is billed while its run starts, and the hour of `max_duration` begins only then."""

SENDER = """
import sys, time
from contextlib import nullcontext
from pathlib import Path
from steno.engine.control.controller import Controller
from steno.engine.errors import RefusedByPolicy
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.local.placement import LocalOffer
from steno.engine.providers.local.provider import LocalProvider
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.policy import load_policy
from steno.engine.submit.requests import submit
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.store.record import Record

path, number, each, users, policy, task, gate = sys.argv[1:]
clock, ids = SystemClock(), RandomIds()
record = Record.open(Path(path), write=True, create=False, shapes=READINGS.shape, clock=clock)
provider = LocalProvider(
    Path(path + ".local" + number), clock=clock, ids=ids, host="host" + number,
    environment={"PATH": "/usr/bin:/bin"}, offer=LocalOffer(price=1_000_000),
)
controller = Controller(live=LiveWorld(READINGS, record), provider=provider, clock=clock, policy=load_policy(policy))
controller.stays = True
controller.hold()
journal, refused, configuration = controller.journal, 0, {"type": "task", "commands": [task]}
for count in range(int(each)):
    try:
        submit(
            journal, run_id=ids.new(), provider="local", project=provider.project,
            task=Completed(name=f"r{number}-{count}", configuration=configuration, base=str(Path(path).parent)),
            submitter=users[count % len(users)],
            newest=lambda: nullcontext((journal.state(), controller.policy, clock.now())),
        )
    except RefusedByPolicy:
        refused += 1
    if count % 5 == 4:
        controller.round()
print(refused, flush=True)
while not Path(gate).exists() or any(run.project == provider.project for run in controller.live.state.runs.open()):
    controller.round()
    clock.sleep(SECOND // 5)
controller.release()
"""


def test_limits_hold_in_a_burst_through_four_processes(tmp_path: Path) -> None:
    """While all runs wait for their gate, every user has four requests and two places, whoever sent them: the others
    were refused. Then all that were accepted run, and no place in the record took a user above a limit.
    """
    path, gate = tmp_path / "record.db", tmp_path / "open"
    Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=SystemClock()).close()
    env = {key: value for key, value in os.environ.items() if not key.startswith(("STENO_", "DSTACK_"))}
    with ExitStack() as started:
        senders = []
        for number in range(PROCESSES):
            given = (EACH, "".join(USERS), dump_policy(POLICY).decode(), holding(gate), gate)
            words = [str(word) for word in (path, number, *given)]
            out = started.enter_context((tmp_path / f"out{number}").open("w"))
            sender = steno_process.Popen(words, program=SENDER, env=env, cwd=tmp_path, stdout=out)
            started.callback(sender.kill)
            senders.append(sender)
        refused = [wait_for(tmp_path / f"out{number}", sender) for number, sender in enumerate(senders)]
        gate.touch()
        assert [sender.wait(600) for sender in senders] == [0] * PROCESSES
    assert sum(refused) == PROCESSES * EACH - 4 * len(USERS)

    places = 0
    with Record.open(path, shapes=READINGS.shape, clock=SystemClock()) as record:
        positions = {stored.position for stored in record.read(types={"RunPlaced"})}
        world = Fold(READINGS)

        def look(position: int, _: object) -> None:
            nonlocal places
            if position in positions:
                places += 1
                facts = OwnerLimits(world.state, POLICY, world.state.last_at or 0)
                for user in USERS:
                    assert facts.runs[f"user/{user}"] <= 2
                    assert facts.spent[f"user/{user}"] + facts.committed()[f"user/{user}"] <= 4 * DOLLAR + WAITED

        RecordFold(record, world).run(each=look)
        requested = Counter(run.terms.submitter for run in world.state.runs.all() if run.terms is not None)
        assert requested == dict.fromkeys(USERS, 4)
        assert all(run.state is State.SUCCEEDED for run in world.state.runs.all())
    assert places == 4 * len(USERS)


def wait_for(printed: Path, sender: "steno_process.Forked") -> int:
    """How many of its requests a sender had refused, once it has sent all."""
    late = time.monotonic() + 600
    while not printed.read_text().endswith("\n"):
        assert sender.poll() is None, "the sender has ended"
        assert time.monotonic() < late, "it takes too long"
        time.sleep(0.05)
    return int(printed.read_text())
