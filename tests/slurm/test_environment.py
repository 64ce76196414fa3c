"""A job's environment: that of a login, and the variables that its task names; nothing of its submitter."""

import pytest
from stenolab.steno import Steno

JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")
OURS = {"SECRET_TOKEN": "hush", "SLURM_SECRET": "hush", "SLURM_MEM_PER_CPU": "77", "NAMED": "for the job"}
SHOW = "env; echo in a step; srun env"


def test_a_job_has_what_a_login_has_and_what_is_named(on_slurm: Steno) -> None:
    """Without a variable of the submitting shell or daemon; `srun` hands everything on to its tasks."""
    on_slurm("submit", "--wait", "--name", "plain", *JOB, "--env", "NAMED", "--", SHOW, TZ="Asia/Tokyo", **OURS)
    batch, _, step = on_slurm("logs", "plain").out.partition("in a step\n")
    assert "hush" not in batch + step
    for part in (batch, step):
        values = dict(line.split("=", 1) for line in part.splitlines() if "=" in line)
        assert values["NAMED"] == "for the job"
        assert values["HOME"].startswith("/")
        assert values["USER"]
        assert "/usr/bin" in values["PATH"].split(":")
        assert values["OMP_NUM_THREADS"] == "1"
        assert "TZ" not in values
        assert values.get("SLURM_MEM_PER_CPU") != "77"


@pytest.mark.ci
def test_a_command_of_a_race_names_variables_too(on_slurm: Steno) -> None:
    """`--env` of `slurm run`."""
    ran = on_slurm(
        "slurm", "run", "--json", "--name", "raced", "--partition", "gpu-a6000", "--mem", "500M", "--time", "5m",
        "--env", "NAMED", "-e", "OTHER=one", 'echo "$NAMED, $OTHER, $SECRET_TOKEN"', **OURS,
    )  # fmt: skip
    assert on_slurm("logs", ran.json()["run_id"]).out == "for the job, one, \n"
