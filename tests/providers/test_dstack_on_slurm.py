"""A dstack run on dstack's own Slurm backend is a Slurm job, too: one run, with the job's allocation as its machine."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace
from stenotest.dstack_history import DstackHistory, Item, job, moment, run_item, submission
from stenotest.inline_pool import InlinePool
from stenotest.machines import machine_item

from steno.cli.program import steno
from steno.cli.wiring.app import App
from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.fold.record_fold import RecordFold
from steno.engine.notify.collector import is_counted
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, replay_polls, replay_record, world_of
from steno.engine.replay.result import Replay, fill_costs
from steno.engine.state.world import dump, load
from steno.events.clock import SystemClock, foreign_run_id
from steno.events.store.record import Record

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


def by_slurm(story: DstackHistory, cmd: list[str], *lines: str) -> None:
    line = {"t": moment(story.now), "kind": "poll", "cmd": cmd, "rc": 0, "ms": 10, "err": ""}
    story.lines.append({**line, "out": "".join(f"{text}\n" for text in lines)})


def run(status: str = "running", *, name: str = JOB, exit_status: int | None = None) -> Item:
    """The dstack run, on node7 as job 1234 of that name."""
    ended = exit_status is not None
    attempt = submission(
        status, exit_status=exit_status, finished=HOUR if ended else None, hostname="10.0.0.7", price=0.0
    )
    attempt["job_provisioning_data"] |= {"backend": "slurm", "instance_id": f"{name}:1234:node7"}
    return run_item("train", "done" if ended else "running", job(attempt), reason="all_jobs_done" if ended else None)


def accounted(state: str) -> str:
    end = clock(HOUR) if state == "COMPLETED" else "Unknown"
    return f"1234|{state}|0:0|{clock(1)}|{clock(2)}|{end}|billing=4,cpu=4,node=1|node7|gpu|me||1234|{JOB}"


def listed(state: str) -> str:
    return f"1234|{state}|None|gpu|me|{clock(1)}|{clock(2)}|node7|(null)|1234|{JOB}"


def history(order: tuple[str, ...], *, name: str = JOB) -> DstackHistory:
    """Each source answers while the run goes on, in that order, and again when it is over."""
    story = DstackHistory()
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


def replayed(story: DstackHistory, folder: Path) -> Replay:
    return replay_polls(list(open_trace(story.write(folder / "trace.jsonl"))))


@pytest.mark.parametrize("order", [*itertools.permutations(("runs", "machines", "squeue", "sacct"))])
def test_it_is_one_run_and_one_machine_with_one_bill(order: tuple[str, ...], tmp_path: Path) -> None:
    """Whichever source is heard first. Four CPUs for an hour, less two seconds, at a dollar an hour each."""
    replay = replayed(history(order), tmp_path)
    (run,) = replay.runs
    (vm,) = replay.vms
    assert (run.name, run.provider, run.state.value, run.exit_status) == ("train", "dstack", "succeeded", 0)
    assert vm.provider_id.startswith("1234@")
    assert (run.vm_id, vm.runs) == (vm.vm_id, (run.run_id,))
    assert [occupancy.run_id for occupancy in vm.occupancies] == [run.run_id]
    assert replay.bills[vm.vm_id].cost == replay.costs[run.run_id] == 3_997_778
    assert replay.anomalies == ()


def test_a_job_of_another_name_is_another_run(tmp_path: Path) -> None:
    """Ids come again: the job's name must be that of the `instance_id`, too."""
    replay = replayed(history(("runs", "squeue", "sacct"), name="another-1111"), tmp_path)
    assert [other.provider for other in replay.runs] == ["dstack", "slurm"]
    assert replay.runs[0].vm_id is None
    assert replay.vms[0].runs == (replay.runs[1].run_id,)


def test_lists_and_costs_show_it_once(tmp_path: Path) -> None:
    """In a record as in a replay; the job itself can still be shown by its id."""
    env = {"STENO_RECORD": str(tmp_path / "record.db"), "HOME": str(tmp_path), "STENO_PROVIDER": ""}

    def run_json(*words: object) -> Any:
        done = CliRunner(env=env).invoke(steno, [*map(str, words), "--json"], obj=App())
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    run_json("import", history(("squeue", "sacct", "machines", "runs")).write(tmp_path / "trace.jsonl"))
    assert [(row["name"], row["cost_usd"]) for row in run_json("ps", "--all")["runs"]] == [("train", "3.997778")]
    assert len(run_json("vms", "--all")["vms"]) == 1
    assert run_json("show", "1234")["run_id"] == foreign_run_id("slurm", "1234")


@contextmanager
def recorded(folder: Path) -> Iterator[Record]:
    """A record of dstack's list and Slurm's answers."""
    polls = [poll for _, poll in open_trace(history(("runs", "squeue", "sacct")).write(folder / "t.jsonl")) if poll]
    path = folder / "record.db"
    with Record.open(path, clock=SystemClock(), write=True, create=True, shapes=READINGS.shape) as record:
        record.append_polls(polls)
        yield record


def test_metrics_count_it_once(tmp_path: Path) -> None:
    """As lists show it; nor do they count a run that keeps a machine for kernels."""
    with recorded(tmp_path) as record:
        runs = tuple(world_of(record).state.runs.all())
    assert [run.provider for run in runs if is_counted(run)] == ["dstack"]
    assert len(runs) == 2
    (ours,) = (run for run in runs if run.provider == "dstack")
    for name, counts in ((JOB, True), ("kernels-mi300x-0123456789ab", False)):
        assert is_counted(replace(ours, name=name, requested_at=1)) is counts
    assert not is_counted(replace(ours, archive="dstack/old"))


def test_its_sources_are_folded_together_and_resumed_anywhere(tmp_path: Path) -> None:
    """In pieces, and from a snapshot taken after any poll, the result is that of the whole record."""
    with recorded(tmp_path) as record:
        whole = replay_record(record).to_json()
        assert len(whole["runs"]) == 1
        assert replay_record(record, pool=InlinePool(size=2)).to_json() == whole
        for position in range(record.head().position):
            world = Fold(READINGS, state=load(dump(world_of(record, until=Until(position=position)).state)))
            RecordFold(record, world).run()
            fill_costs(record, world.state.runs.all())
            assert Replay(world).to_json() == whole
