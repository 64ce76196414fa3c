"""Samples of a real job, through the provider: one job, and a stand-in for the vendor's tool."""

import os
from pathlib import Path
from typing import Any

import pytest
from stenolab.sites import SlurmSite
from stenolab.slurm import Cluster
from stenolab.slurm_slow import batch
from stenolab.steno import Steno
from stenotest import smi
from stenotest.waiting import wait

from steno.engine.state.samples import TASK, Sample


def test_a_job_has_samples_while_it_runs_and_afterwards(
    slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The duty is within 3 points of the load's; a tool that ignores SIGTERM does not keep the job; output and exit
    status are the command's own. A job that is not there has none.
    """
    site = SlurmSite(tmp_path, slurm_cluster, monkeypatch)
    (forgotten := slurm_cluster.folder / "jobs" / tmp_path.name / "samples" / "7.old").parent.mkdir(parents=True)
    forgotten.touch()
    os.utime(forgotten, (0, 0))
    path = smi.stand_in(tmp_path / "tools", "nvidia-smi", 25)
    tool = tmp_path / "tools" / "nvidia-smi"
    tool.write_text(tool.read_text().replace("exec sleep", "trap '' TERM; exec sleep"))
    gate = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done; echo over; exit 7"
    run_id = site.submit(gate, env={"PATH": path})

    def read(since: int = 0) -> list[Sample]:
        tool, samples = site.provider.samples(run_id, "", since=since) or ("", [])
        return samples if tool == "nvidia-smi" else []

    def gpu(since: int = 0) -> list[Sample]:
        return [sample for sample in read(since) if sample.device == "0"]

    assert not forgotten.exists(), "samples of last year are deleted"
    wait(lambda: len(gpu()) == smi.LINES and len(read()) > smi.LINES, what="its samples")
    uses = [sample.use or 0 for sample in gpu()]
    assert abs(sum(uses) / len(uses) - 25) <= 3
    (task, *_) = [sample for sample in read() if sample.device == TASK]
    assert task.memory is not None
    last = gpu()[-3:]
    assert gpu(last[0].at) == last[1:]
    (tmp_path / "go").touch()
    assert site.ended(run_id) == ("failed", "exit_nonzero", 7)
    assert b"".join(site.provider.logs(run_id, "", follow=False)) == b"over\n"
    assert gpu(last[0].at) == last[1:], "the file is still there"
    assert site.provider.samples("999999", "", since=0) is None
    assert site.provider.samples("../ends/1", "", since=0) is None
    site.close()


def test_the_duty_of_jobs_side_by_side_is_that_of_their_loads(
    slurm_cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each job has the samples of its own load, within 3 points."""
    site = SlurmSite(tmp_path, slurm_cluster, monkeypatch)
    gate = f"until [ -e {tmp_path}/go ]; do sleep 0.05; done"
    paths = {duty: smi.stand_in(tmp_path / str(duty), "nvidia-smi", duty) for duty in (0, 50, 100)}
    run_ids = {duty: site.submit(gate, env={"PATH": path}) for duty, path in paths.items()}

    def uses(duty: int) -> list[int]:
        _, samples = site.provider.samples(run_ids[duty], "", since=0) or ("", [])
        return [sample.use or 0 for sample in samples if sample.device == "0"]

    for duty in run_ids:
        wait(lambda duty=duty: len(uses(duty)) == smi.LINES, what=f"the samples of {duty} %")
        assert abs(sum(uses(duty)) / smi.LINES - duty) <= 3
    (tmp_path / "go").touch()
    assert [site.ended(run_id)[0] for run_id in run_ids.values()] == ["succeeded"] * 3
    site.close()


@pytest.mark.ci
def test_a_job_without_a_sampler_has_what_accounting_measured(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """A job of somebody's own `sbatch` shows the memory that it had and the work of its core."""
    on_slurm.follow("1s")
    load = "import time; taken = b'x' * (150 << 20); any(time.process_time() > 8 for _ in iter(int, 1))"
    batch(slurm_cluster, "theirs", f'python3 -c "{load}"', "-p", "gpu-a6000", "--mem=400M", "-c", "2")
    run = on_slurm.wait("theirs", "succeeded")
    about = ("--stream", f"run/{run['run_id']}", "--type", "SamplesRecorded", "--json")

    def recorded() -> list[dict[str, Any]]:
        return [event["data"] for event in on_slurm("events", *about).lines()]

    (event,) = wait(recorded, what="the sums of accounting")
    (sample,) = event["samples"]
    assert (event["source"], sample["device"]) == ("sacct", TASK)
    assert 150 <= sample["memory"] < 250
    assert 3 < run["execution_seconds"] * sample["use"] / 100 < 12, "8 s of work, looked at every 2 s"
