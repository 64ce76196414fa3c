"""The bill of a real job, against what accounting itself counts."""

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

PAUSE_S = 5


def counted(cluster: Cluster, job: str, column: str) -> str:
    """Accounting's value of the job in that column."""
    return cluster.run("sacct", "-X", "-n", "-P", "-o", column, "-j", job).strip()


def test_a_suspended_job_is_billed_for_the_time_it_ran(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """An A6000 of $1 an hour, typed in another case: `ElapsedRaw` seconds of it, with a free interval."""
    on_slurm.follow("1s")
    on_slurm(
        "submit", "--name", "paused", "--partition", "gpu-a6000", "--memory", "100M", "--gpu", "A6000:1", "--",
        f"until [ -e {on_slurm.work}/go ]; do sleep 0.2; done",
    ).done()  # fmt: skip
    job = on_slurm.wait("paused", "running")["provider_id"]
    slurm_cluster.run("scontrol", "suspend", job)
    wait(lambda: counted(slurm_cluster, job, "Suspended") >= f"00:00:{PAUSE_S:02}", what="it to be suspended")
    slurm_cluster.run("scontrol", "resume", job)
    (on_slurm.work / "go").touch()
    run = on_slurm.wait("paused", "succeeded")
    seconds = int(counted(slurm_cluster, job, "ElapsedRaw"))
    assert float(run["cost_usd"]) == pytest.approx(seconds / 3600, abs=2e-6)
    vms = on_slurm("vms", "--all", "--json").json()["vms"]
    (vm,) = [machine for machine in vms if machine["provider_id"].startswith(f"{job}@")]
    assert vm["cost_low_usd"] == vm["cost_usd"] == vm["cost_high_usd"]
    assert sum(float(part["cost_usd"]) for part in vm["intervals"]) == pytest.approx(float(vm["cost_usd"]), abs=1e-9)
    assert any(float(part["cost_usd"]) == 0 and part["from"] != part["to"] for part in vm["intervals"])
