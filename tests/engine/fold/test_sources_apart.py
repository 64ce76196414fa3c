"""An answer of a source takes nothing from what is known of another."""

import json
import shlex

import pytest
from msgspec.structs import replace
from stenotest.dstack_history import START, DstackHistory
from stenotest.machines import machine_event, machine_item

from steno.engine.replay.replay import replay_polls
from steno.engine.state.reading import Listing, Scope
from steno.engine.state.sources import Sweep, sweep_ended
from steno.events.clock import SECOND, format_time
from steno.events.poll import Poll


def squeue(cluster: str, second: int, line: str) -> Poll:
    """An answer of a cluster's controller."""
    words = ("env", f"STENO_CLUSTER={cluster}", "squeue", "-h", "-o", "%i|%T|%r|%V|%N")
    return Poll(
        source=f"slurm/{cluster}",
        path=f"slurm:{shlex.join(words)}",
        req=json.dumps(words).encode(),
        started_at=START + second * SECOND,
        observed_at=START + second * SECOND + 1,
        status=0,
        body=json.dumps(line).encode(),
        text=True,
        answered=True,
    )


@pytest.mark.parametrize("other", ["big", "small"])
def test_a_cluster_does_not_miss_the_jobs_of_another(other: str) -> None:
    """Its list has all of its own jobs: only those are not listed any more."""
    line = f"7|RUNNING|None|{format_time(START)[:19]}|node1\n"
    polls = [squeue("big", 1, line), squeue(other, 2, "")]
    (run,) = replay_polls(list(enumerate(polls, 1))).runs
    assert run.state.value == ("finishing" if other == "big" else "running")


def test_a_list_in_pages_ends_whoever_else_reads_pages() -> None:
    """Seventeen projects do, one page of each after the other."""
    sweeps: dict[str, Sweep] = {}
    for after, ids in ((None, ["a", "b"]), ("b", ["c"])):
        for number in range(17):
            project = f"p{number}"
            scope = Scope(
                provider="dstack", source=project, listing=Listing.RUNS, project=project, page_after=after, limit=2
            )
            ended = sweep_ended(sweeps, scope, f"dstack/{project}", 1, ids)
            assert (ended is None) == (after is None)


def test_dates_are_kept_however_many_machines_another_source_names() -> None:
    """The log of one project names a hundred that nobody shows; that of the other project, which is shown later."""
    logs = [DstackHistory(project="a").logged(machine_event("pending", "provisioning", 1, "one"))]
    others = [machine_event("pending", "provisioning", 1, f"never-{number}") for number in range(100)]
    logs.append(DstackHistory(project="b", now=5).logged(*others))
    logs.append(DstackHistory(project="a", now=9).machines(machine_item("one")))
    polls = [
        replace(poll, source=f"dstack/{log.project}") for log in logs for _, poll in log.polls() if poll is not None
    ]
    (vm,) = replay_polls(list(enumerate(polls, 1))).vms
    assert len(vm.dates) == 1
