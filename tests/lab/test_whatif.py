"""A demand that was run under six policies on a genuine server: `whatif` predicts five of them from the sixth.

With `STENO_KEEP_HISTORIES=1` the histories replace those of `tests/engine/whatif`, which need no server.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from stenolab.lab import Lab
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenotest.history_file import world_of_history, write_history
from stenotest.policies import HISTORIES, POLICIES, RECORDED, question, settings, truth, whole

from steno.engine.providers.registry import READINGS
from steno.events.clock import SystemClock
from steno.events.store.record import Record
from steno.projections.answers.whatif import WhatIfQuestion, what_if

pytestmark = [pytest.mark.long, pytest.mark.lab]

DEMAND = ((0, 6), (1, 9), (3, 4), (24, 5), (25, 6), (44, 4), (60, 5), (61, 3))
"""When each run is requested, and how long it works, seconds."""
AT_ONCE = 3  # policies, each in a project of its own


def history_of(name: str, steno: Steno, folder: Path) -> Path:
    """The history of the demand under a policy, until every machine is gone."""
    controller = steno.follow("0.5")
    began = time.monotonic()
    for number, (at, works) in enumerate(DEMAND):
        time.sleep(max(0.0, began + at - time.monotonic()))  # the timetable is the demand
        steno.submit(f"run-{number}", [f"sleep {works}"])

    def over() -> bool:
        world = steno.world()
        ended = all(run["state"] == "succeeded" for run in world.runs.values())
        return len(world.runs) == len(DEMAND) and ended and all(vm["state"] == "terminated" for vm in world.vms)

    steno.until(over, what="every run to succeed, and every machine to go")
    controller.kill()
    path = (HISTORIES if os.environ.get("STENO_KEEP_HISTORIES") else folder) / f"{name}.jsonl.zst"
    path.parent.mkdir(parents=True, exist_ok=True)
    with Record.open(steno.record, write=False, shapes=READINGS.shape, clock=SystemClock()) as record:
        write_history(record, path)
    return path


def test_five_policies_really_run_lie_within_the_bounds_of_their_predictions(
    dstack_22: Lab, steno_at: StenoAt, tmp_path: Path
) -> None:
    sites = {name: steno_at(dstack_22, dstack_22.project(), **settings(name)) for name in POLICIES}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        paths = pool.map(lambda site: history_of(*site, tmp_path / "histories"), sites.items())
        worlds = dict(zip(POLICIES, map(world_of_history, paths), strict=True))
    assert abs(what_if(worlds[RECORDED], WhatIfQuestion()).error) < 0.01
    for name, world in worlds.items():
        (predicted,) = what_if(worlds[RECORDED], question(name)).predictions
        assert predicted.low.bill_usd <= truth(world, whole(worlds[RECORDED])).bill <= predicted.high.bill_usd, name
