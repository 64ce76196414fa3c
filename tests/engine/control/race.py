"""A process of several that decide about one queue at once, none of them with the lease: `python race.py RECORD N`.

Asks for N runs, waits for the others' requests and goes on deciding until every run in the record is over.
"""

import platform
import sys
from pathlib import Path

from steno.engine.control.controller import Controller
from steno.engine.decide.decisions import decide
from steno.engine.errors import ProviderError
from steno.engine.live.live_world import LiveWorld
from steno.engine.providers.local.placement import LocalOffer
from steno.engine.providers.local.provider import LocalProvider
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.policy import HOUR, Policy
from steno.engine.submit.requests import submit
from steno.events.clock import SECOND, RandomIds, SystemClock
from steno.events.store.record import Record
from steno.events.store.sqlite import connection

RACERS = 3
POLICY = Policy(max_vms=2, idle_timeout=0, assumed_duration=HOUR)


def main(path, runs):
    clock, ids = SystemClock(), RandomIds()
    host = platform.node() or "localhost"
    provider = LocalProvider(
        path.with_name(path.name + ".local"),
        clock=clock,
        ids=ids,
        host=host,
        environment={},
        offer=LocalOffer(price=1_990_000),
    )
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock) as record:

        def slowly(*situation):
            decisions = decide(*situation)
            clock.sleep(SECOND // 20)  # time for the others to decide about the same queue
            return decisions

        controller = Controller(
            live=LiveWorld(READINGS, record), provider=provider, clock=clock, policy=POLICY, decide=slowly
        )
        for _ in range(runs):
            run_id = ids.new()
            submit(
                controller.journal,
                run_id=run_id,
                provider="local",
                project=host,
                task=Completed(
                    name=f"run-{run_id[:8]}",
                    configuration={"type": "task", "commands": [f"echo {run_id} >> ran.txt; sleep 0.05"]},
                    base=str(path.parent),
                ),
                submitter="ada",
            )
        end = clock.now() + 600 * SECOND
        while len(list(record.read(types={"RunRequested"}))) < runs * RACERS and clock.now() < end:
            clock.sleep(SECOND // 50)
        while clock.now() < end:
            try:
                controller.round()
                controller.effects.wait(SECOND, until=lambda: not controller.effects.busy)
            except ProviderError:
                continue
            state = controller.world.state
            if state.runs and all(run.terminal for run in state.runs.all()):
                return
        sys.exit("it took too long")


connection.BUSY_TIMEOUT = 600.0  # three that write at once on a machine that is busy: nobody gives up its turn
main(Path(sys.argv[1]), int(sys.argv[2]))
