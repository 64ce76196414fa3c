"""A genuine server at its own pace with more runs than machines: no idle machine waits while a run could go there."""

import msgspec
import pytest
from stenolab.lab import GPU, IMAGE, Lab
from stenolab.ledger import bills_of, most_at_once
from stenolab.plugin import StenoAt
from stenolab.steno import Steno
from stenolab.versions import NEWEST
from stenotest.waiting import LIMIT_S

from steno.engine.decide.machine import claims, looks_free
from steno.engine.decide.queue import is_due
from steno.engine.decide.situation import Situation
from steno.engine.fold.fold import Fold
from steno.engine.fold.record_fold import RecordFold
from steno.engine.live.journal import Journal
from steno.engine.providers.registry import READINGS
from steno.engine.providers.task import Completed
from steno.engine.state.changes import Change
from steno.engine.state.vm import Vm
from steno.engine.state.world import policy_of
from steno.engine.submit.requests import submit
from steno.events import types
from steno.events.clock import RandomIds, SystemClock
from steno.events.store.record import Record

pytestmark = [pytest.mark.long, pytest.mark.slow, pytest.mark.lab, pytest.mark.xdist_group(f"dstack-{NEWEST}")]

RUNS, MACHINES = 55, 12


def ask(steno: Steno, project: str) -> None:
    """Request all runs at once, of 2 to 12 s each."""
    clock, ids = SystemClock(), RandomIds()
    with Record.open(steno.record, write=True, shapes=READINGS.shape, clock=clock) as record:
        for number in range(RUNS):
            task = {"type": "task", "image": IMAGE, "resources": {"gpu": GPU}, "commands": [f"sleep {2 + number % 11}"]}
            submit(
                Journal(record),
                run_id=ids.new(),
                provider="dstack",
                project=project,
                task=Completed(name=f"run-{number}", configuration=task),
                submitter="lab",
            )


def kept_waiting(steno: Steno, source: str) -> list[tuple[int, int]]:
    """(position, machines) of every look after whose decision more machines were idle than runs on their way to one,
    though another run waited. dstack, which chooses, may leave one of them idle until the next look.
    """
    polls = {poll["position"]: poll["path"] for poll in steno("polls", "--json").lines()}
    counts: list[tuple[int, int]] = []
    seen: tuple[int, list[Vm], int] | None = None
    world = Fold(READINGS)

    def fold(position: int, _: tuple[Change, ...]) -> None:
        nonlocal seen
        if position > max(polls):
            return  # recorded since the polls were listed
        now = world.state.last_at or 0
        situation = Situation(state=world.state, source=source, policy=policy_of(world.state, source), now=now)
        if polls.get(position) == "/api/instances/list":
            if seen is not None and seen[2] > 0:
                counts.append((seen[0], seen[2]))
            idle = [msgspec.structs.replace(vm) for vm in situation.ours if looks_free(vm)]
        elif position not in polls and isinstance(record.event(position), types.RunPlaced) and seen is not None:
            position, idle, _missed = seen
        else:
            return
        waits = any(is_due(run.held, now) for run in situation.queue)
        seen = (position, idle, len(idle) - claims(situation, (), idle) if waits else 0)

    with Record.open(steno.record, shapes=READINGS.shape, clock=SystemClock()) as record:
        RecordFold(record, world).run(each=fold)
    return counts


def test_55_runs_over_12_machines_leave_no_machine_idle_for_more_than_one_poll(
    real_lab: Lab, steno_at: StenoAt
) -> None:
    """Near the limit one run went out per round: of 12 machines billed 2 to 3 worked, and 35 runs waited."""
    lab, project = real_lab, real_lab.project()
    settings = {"STENO_MAX_VMS": str(MACHINES), "STENO_IDLE_TIMEOUT": "5m", "STENO_BUDGET": "off"}
    steno = steno_at(lab, project, STENO_VMS_MODE="provider", **settings)
    steno.start("record")
    steno.until(lambda: steno.seen("PollRecorded"), what="a recorder")
    ask(steno, project)

    def over() -> bool:
        runs = steno.world().runs
        return len(runs) == RUNS and all(run["state"] in ("succeeded", "failed", "stopped") for run in runs.values())

    steno.until(over, seconds=4 * LIMIT_S, what="every run to end")
    assert {run["state"] for run in steno.world().runs.values()} == {"succeeded"}
    assert most_at_once(bills_of(lab, project)) <= MACHINES
    assert kept_waiting(steno, f"dstack/{project}") == []
