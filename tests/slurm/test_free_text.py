"""Names, comments, arrays and het jobs of a real Slurm, as the record has them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenotest.waiting import wait

from steno.engine.providers.slurm.query import question
from steno.engine.providers.slurm.rows import rows

ENDS = ("succeeded", "failed", "stopped")
SMALL = ("-p", "gpu-a6000", "--mem=50M")
HOSTILE = "x UserId=root(0) JobState=FAILED JobId=9 Reason=None Command=y|z"


@pytest.fixture
def sbatch(slurm_cluster: Cluster, on_slurm: Steno) -> Callable[..., str]:
    """Submits a script outside Steno, in the folder of this test; the id of its job."""
    del on_slurm

    def submit(folder: Path, *options: str, script: str = "#!/bin/bash\nsleep 2\n") -> str:
        file = folder / "script.sh"
        file.write_text(script)
        output = () if any(option.startswith("--output") for option in options) else (f"--output={folder}/%j.out",)
        return slurm_cluster.run("sbatch", "--parsable", *output, f"--chdir={folder}", *options, str(file)).strip()

    return submit


def of(steno: Steno, job: str, *, ended: bool = False) -> list[dict[str, Any]]:
    """The runs of that job, once there are some; `ended`: once each has its verdict. Others run beside it."""

    def look() -> list[dict[str, Any]] | None:
        every = steno("ps", "--all", "--json").json()["runs"]
        runs = [run for run in every if (run["provider_id"] or "").startswith(job)]
        return runs if runs and (not ended or all(run["state"] in ENDS for run in runs)) else None

    return wait(look, what=f"job {job}", pause=0.5)


@pytest.fixture
def place(slurm_cluster: Cluster, tmp_path: Path) -> Path:
    """A folder of this test's jobs: they are cancelled with it."""
    folder = slurm_cluster.folder / "jobs" / tmp_path.name
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def test_a_hostile_name_and_comment_change_nothing(
    slurm_cluster: Cluster, on_slurm: Steno, sbatch: Callable[..., str], place: Path
) -> None:
    """The name, the comment and the verdict are the job's own; `scontrol` of the same job is read so too."""
    comment = "steno: JobState=COMPLETED|lr=1 JobId=8"
    job = sbatch(place, *SMALL, f"--job-name={HOSTILE}", f"--comment={comment}")
    line = slurm_cluster.run("scontrol", "-o", "show", "job", job).rstrip("\n")
    (row,) = rows(question(("scontrol", "-o", "show", "job")), line)
    assert (row.job, row.name, row.comment, row.user) == (job, HOSTILE, comment, "root")
    assert row.state in ("PENDING", "RUNNING")
    on_slurm.follow("0.5")
    (run,) = of(on_slurm, job, ended=True)
    assert (run["provider_id"], run["name"], run["state"]) == (job, HOSTILE, "succeeded")


def test_every_waiting_task_of_a_long_list_is_known(on_slurm: Steno, sbatch: Callable[..., str], place: Path) -> None:
    """Slurm prints 30 characters of it by itself."""
    tasks = [*range(1, 200, 2), *range(300, 311)]
    job = sbatch(place, *SMALL, "--hold", "--array=1-199:2,300-310%3")
    on_slurm.follow("0.5")
    runs = of(on_slurm, job)
    assert {run["provider_id"] for run in runs} == {f"{job}_{task}" for task in tasks}
    assert {run["state"] for run in runs} == {"queued"}


def test_a_het_job_is_one_run(on_slurm: Steno, sbatch: Callable[..., str], place: Path) -> None:
    """Its components are its jobs, and each has an allocation."""
    script = (
        "#!/bin/bash\n#SBATCH --job-name=het -n1 --mem=50M -p gpu-a6000 --gres=gpu:1\n#SBATCH hetjob\n"
        "#SBATCH -n1 --mem=50M -p gpu-v100 --gres=gpu:1\nsleep 3\nexit 5\n"
    )
    job = sbatch(place, script=script)
    on_slurm.follow("0.5")
    (run,) = of(on_slurm, job, ended=True)
    assert (run["provider_id"], run["state"], run["reason"], run["exit_status"]) == (job, "failed", "exit_nonzero", 5)
    assert [component["exit_status"] for component in run["reported"]["jobs"]] == [5, 5]
    vms = [vm for vm in on_slurm.world().vms if vm["provider_id"].startswith(job)]
    assert {vm["provider_id"].partition("@")[0] for vm in vms} == {f"{job}+0", f"{job}+1"}
    assert {tuple(vm["runs"]) for vm in vms} == {(run["run_id"],)}
