"""Names of jobs are free, as with sbatch: they may come again, and a name means the newest."""

import pytest
from stenolab.steno import Steno

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")


@pytest.mark.ci
def test_a_name_is_used_again_while_its_run_goes_on(on_slurm: Steno) -> None:
    """Two runs of one name at the same time, then a third after them: each its own job; commands take the newest."""
    ids = []
    for number in (1, 2):
        submitted = on_slurm("submit", "--json", "--name", "namesake", *JOB, "--", f"echo number {number}; sleep 600")
        ids.append(submitted.json()["run_id"])
        on_slurm.until(lambda: on_slurm("logs", ids[-1]).out, what="its first line")
    listed = [run for run in on_slurm.json("ps")["runs"] if run["name"] == "namesake"]
    assert {run["run_id"] for run in listed} == set(ids)
    assert len({run["provider_id"] for run in listed}) == 2
    assert on_slurm.json("show", "namesake")["run_id"] == ids[1]
    assert on_slurm("logs", "namesake").out == "number 2\n"
    on_slurm("stop", "namesake")
    assert on_slurm.json("show", ids[0])["state"] == "running", "the other goes on"
    assert on_slurm.json("show", "namesake")["run_id"] == ids[0], "the open one of that name"
    on_slurm("stop", "namesake")
    third = on_slurm("submit", "--wait", "--json", "--name", "namesake", *JOB, "--", "echo number 3").json()
    assert on_slurm.json("show", "namesake")["run_id"] == third["run_id"]
    assert on_slurm("logs", "namesake").out == "number 3\n"
