"""A submission that is killed between the call and its answer is one job, found again by our mark."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno
from stenolab.waiting import wait

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
LONG_S = 200.0


@pytest.mark.parametrize(
    ("cluster", "forgotten", "behind"),
    [
        pytest.param("slurm_cluster", False, False, id="it waits or runs"),
        pytest.param("slurm_cluster", True, False, id="the controller forgot it"),
        pytest.param("slurm_cluster", True, True, id="the controller forgot it, accounting is behind"),
        pytest.param("slurm_unaccounted", False, False, id="it waits or runs-unaccounted", marks=pytest.mark.long),
        pytest.param("slurm_unaccounted", True, False, id="the controller forgot it-unaccounted"),
    ],
)
def test_a_crash_between_the_call_and_its_answer(
    request: pytest.FixtureRequest, tmp_path: Path, cluster: str, forgotten: bool, behind: bool
) -> None:
    """Accounting has the command line of sbatch; where it does not know the job yet, or there is none, the job's own
    script wrote whose it was.
    """
    slurm: Cluster = request.getfixturevalue(cluster)
    tools = tmp_path / "tools"
    tools.mkdir()
    sbatch, sacct = (shutil.which(name, path=slurm.environment["PATH"]) for name in ("sbatch", "sacct"))
    (tools / "sbatch").write_text(f'#!/bin/sh\n{sbatch} "$@" >> {tmp_path}/answers; kill -9 $PPID\n')
    # The database on a busy day: a search by name does not find the job yet.
    (tools / "sacct").write_text(f'#!/bin/sh\ncase " $* " in *" --name "*) exit;; esac\nexec {sacct} "$@"\n')
    for tool in ("sbatch", *(["sacct"] if behind else [])):
        (tools / tool).chmod(0o755)
    folder = str(slurm.folder / "jobs" / tmp_path.name)
    where = {"STENO_PROVIDER": "slurm", "STENO_SLURM_FOLDER": folder, "STENO_SLURM_CLUSTER": "lab"}
    steno = Steno(folder=tmp_path, **where, **slurm.environment)
    name = f"once-{cluster.partition('_')[2]}-{'gone' if forgotten else 'there'}{'-late' * behind}"
    path = f"{tools}:{slurm.environment['PATH']}"
    command = "exit 6" if forgotten else "sleep 20; exit 6"
    steno("submit", "--name", name, *JOB, "--", command, code=-9, PATH=path)
    (job,) = (tmp_path / "answers").read_text().split()

    def gone() -> bool:
        return job not in slurm.run("squeue", "-h", "-t", "all", "-o", "%i").split()

    if forgotten:
        wait(gone, seconds=LONG_S, what="the controller to forget it")
    steno.follow("0.5", PATH=path)
    run = steno.wait(name, "failed", "succeeded", "stopped")
    steno.close()

    assert (run["provider_id"], run["state"], run["exit_status"]) == (job, "failed", 6)
    assert (tmp_path / "answers").read_text().split() == [job]


def test_a_submission_is_dated_by_the_cluster_just_before_it(on_slurm: Steno, slurm_cluster: Cluster) -> None:
    """Never after the Submit of its job: both times are whole seconds of the cluster's clock."""
    job = on_slurm("submit", "--json", "--name", "dated", *JOB, "--", "sleep 60").json()["provider_id"]
    (event,) = on_slurm.events("SubmitSucceeded")
    submit = slurm_cluster.run("env", "SLURM_TIME_FORMAT=%s", "squeue", "-h", "-j", job, "-o", "%V")
    assert int(submit) - 30 <= event["data"]["submitted_at"] // 1_000_000 <= int(submit)
