"""A dstack run on dstack's own Slurm backend is a Slurm job, too: one run, with the job's allocation as its machine."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from stenotest.inline_pool import InlinePool
from stenotest.machines import machine_item
from stenotest.story import Item, Story, job, moment, run_item, submission

from cli.program import steno
from cli.wiring.app import App
from engine.fold.record_fold import RecordFold
from engine.fold.tick import Until
from engine.fold.world import World
from engine.fold.world_codec import dump, load
from engine.providers.readings import READINGS
from engine.replay.provider_costs import fill_costs
from engine.replay.record import replay_record, world_of
from engine.replay.result import Replay
from engine.replay.trace import open_trace, replay_polls
from events.clock import SystemClock, foreign_run_id
from events.store.record import Record

JOB = "train-7f3a"
ENV = ["env", "TZ=UTC", "STENO_CLUSTER=lab"]
RATES = 'STENO_RATES={"cpu":1,"usd":1}'
SQUEUE = [*ENV, "squeue", "-h", "-t", "all", "--me", "-o", "%i|%T|%r|%P|%u|%V|%S|%N|%k|%i|%j"]
SACCT = [
    *ENV, RATES, "xargs", "-n1", "sacct", "-X", "-D", "-P", "-n", "-o",
    "JobID,State,ExitCode,Submit,Start,End,AllocTRES,NodeList,Partition,User,Comment,JobID,JobName", "-j",
]  # fmt: skip
HOUR = 3600


def clock(seconds: float) -> str:
    return moment(seconds).partition(".")[0]


def by_slurm(story: Story, cmd: list[str], *lines: str) -> None:
    line = {"t": moment(story.now), "kind": "poll", "cmd": cmd, "rc": 0, "ms": 10, "err": ""}
    story.lines.append({**line, "out": "".join(f"{one}\n" for one in lines)})


def run(status: str = "running", *, name: str = JOB, exit_status: int | None = None) -> Item:
    """The dstack run, on node7 as job 1234 of that name."""
    ended = exit_status is not None
    shown = submission(
        status, exit_status=exit_status, finished=HOUR if ended else None, hostname="10.0.0.7", price=0.0
    )
    shown["job_provisioning_data"] |= {"backend": "slurm", "instance_id": f"{name}:1234:node7"}
    return run_item("train", "done" if ended else "running", job(shown), reason="all_jobs_done" if ended else None)


def accounted(state: str) -> str:
    end = clock(HOUR) if state == "COMPLETED" else "Unknown"
    return f"1234|{state}|0:0|{clock(1)}|{clock(2)}|{end}|billing=4,cpu=4,node=1|node7|gpu|me||1234|{JOB}"


def listed(state: str) -> str:
    return f"1234|{state}|None|gpu|me|{clock(1)}|{clock(2)}|node7|(null)|1234|{JOB}"


def told(order: tuple[str, ...], *, name: str = JOB) -> Story:
    """Each source answers while the run goes on, in that order, and again when it is over."""
    story = Story()
    for state, exit_status in (("RUNNING", None), ("COMPLETED", 0)):
        for source in order:
            story.wait(10)
            match source:
                case "runs":
                    story.listed(run("running" if exit_status is None else "done", name=name, exit_status=exit_status))
                case "machines":
                    story.machines({**machine_item("vm", hostname="10.0.0.7", price=0.0), "backend": "slurm"})
                case "squeue":
                    by_slurm(story, SQUEUE, *([listed(state)] if exit_status is None else []))
                case "sacct":
                    by_slurm(story, SACCT, accounted(state))
        story.now = HOUR + 60
    return story


def replayed(story: Story, folder: Path) -> Replay:
    return replay_polls(list(open_trace(story.write(folder / "trace.jsonl"))))


@pytest.mark.parametrize("order", [*itertools.permutations(("runs", "machines", "squeue", "sacct"))])
def test_it_is_one_run_and_one_machine_with_one_bill(order: tuple[str, ...], tmp_path: Path) -> None:
    """Whichever source is heard first. Four CPUs for an hour, less two seconds, at a dollar an hour each."""
    replay = replayed(told(order), tmp_path)
    (found,) = replay.runs
    (vm,) = replay.vms
    assert (found.name, found.provider, found.state.value, found.exit_status) == ("train", "dstack", "succeeded", 0)
    assert vm.provider_id.startswith("1234@")
    assert (found.vm_id, vm.runs) == (vm.vm_id, (found.run_id,))
    assert [one.run_id for one in vm.occupancies] == [found.run_id]
    assert replay.bills[vm.vm_id].cost == replay.costs[found.run_id] == 3_997_778
    assert replay.anomalies == ()


def test_a_job_of_another_name_is_another_run(tmp_path: Path) -> None:
    """Ids come again: the job's name must be that of the `instance_id`, too."""
    replay = replayed(told(("runs", "squeue", "sacct"), name="another-1111"), tmp_path)
    assert [one.provider for one in replay.runs] == ["dstack", "slurm"]
    assert replay.runs[0].vm_id is None
    assert replay.vms[0].runs == (replay.runs[1].run_id,)


def test_lists_and_costs_show_it_once(tmp_path: Path) -> None:
    """In a record as in a replay; the job itself can still be shown by its id."""
    env = {"STENO_RECORD": str(tmp_path / "record.db"), "HOME": str(tmp_path), "STENO_PROVIDER": ""}

    def said(*words: object) -> Any:
        done = CliRunner(env=env).invoke(steno, [*map(str, words), "--json"], obj=App())
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    said("import", told(("squeue", "sacct", "machines", "runs")).write(tmp_path / "trace.jsonl"))
    assert [(one["name"], one["cost_usd"]) for one in said("ps", "--all")["runs"]] == [("train", "3.997778")]
    assert len(said("vms", "--all")["vms"]) == 1
    assert said("show", "1234")["run_id"] == foreign_run_id("slurm", "1234")


def test_its_sources_are_folded_together_and_resumed_anywhere(tmp_path: Path) -> None:
    """In pieces, and from a snapshot taken after any poll, the result is that of the whole record."""
    polls = [poll for _, poll in open_trace(told(("runs", "squeue", "sacct")).write(tmp_path / "t.jsonl")) if poll]
    with Record.open(
        tmp_path / "record.db", clock=SystemClock(), write=True, create=True, shapes=READINGS.shape
    ) as record:
        record.append_polls(polls)
        whole = replay_record(record).to_json()
        assert len(whole["runs"]) == 1
        assert replay_record(record, pool=InlinePool(size=2)).to_json() == whole
        for position in range(record.head().position):
            world = World(READINGS, state=load(dump(world_of(record, until=Until(position=position)).state)))
            RecordFold(record, world).run()
            fill_costs(record, world.state.runs.values())
            assert Replay(world).to_json() == whole
