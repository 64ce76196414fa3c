"""Tasks that cannot run, jobs that never existed, and tools that answer oddly: a clear line and its exit code."""

import shutil
from pathlib import Path

import pytest
from stenolab.slurm import Cluster
from stenolab.steno import Steno

REJECTED, NOT_FOUND, UNREACHABLE = 2, 4, 3
JOB = ("--partition", "gpu-a6000", "--gpu", "a6000:1", "--memory", "500M")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--partition", "nope"), "invalid partition specified: nope"),
        (("--gpu", "h100:1"), "Requested node configuration is not available"),
        (("--account", "nope"), "Invalid account or account/partition combination specified"),
        (("--qos", "nope"), "Invalid qos specification"),
        (("--max-duration", "soon"), "soon"),
    ],
)
def test_what_the_cluster_does_not_have(on_slurm: Steno, options: tuple[str, ...], message: str) -> None:
    """Slurm's own words, once, and no job."""
    given = dict(zip(JOB[::2], JOB[1::2], strict=True)) | {options[0]: options[1]}
    words = [word for option in given.items() for word in option]
    done = on_slurm("submit", "--name", "bad", *words, "--", "true", code=REJECTED)
    lines = [line for line in done.err.splitlines() if "No price" not in line]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_plan_for_what_the_cluster_does_not_have(on_slurm: Steno) -> None:
    done = on_slurm("slurm", "plan", "--type", "h100", code=REJECTED)
    assert "the cluster has no GPU 'h100'; it has: a" in done.err
    assert "there is no partition 'nope'" in on_slurm("slurm", "plan", "--partition", "nope", code=REJECTED).err


def test_a_job_that_was_never_there(on_slurm: Steno) -> None:
    """Asked for by its number."""
    on_slurm("submit", "--wait", "--name", "one", *JOB, "--", "true")
    for command in (("stop", "424242"), ("logs", "424242"), ("show", "424242")):
        assert len(on_slurm(*command, code=NOT_FOUND).err.splitlines()) == 1


def test_a_machine_without_slurm(on_slurm: Steno, tmp_path: Path) -> None:
    """`steno slurm` and `steno submit` name the command that is missing, and what to do."""
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("env", "sh", "id", "mkdir"):
        (tools / name).symlink_to(shutil.which(name) or name)
    for command in (("slurm", "gpus"), ("submit", "--name", "nowhere", *JOB, "--", "true")):
        done = on_slurm(*command, code=UNREACHABLE, PATH=str(tools))
        assert "on this machine: install Slurm's commands, or set slurm.host" in done.err.splitlines()[-1]


def test_another_locale_another_zone_warnings_and_a_users_own_formats(
    on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path
) -> None:
    """None of them reaches what is read: a run ends as it ended, and its times are those of the cluster in UTC."""
    tools = tmp_path / "wrapped"
    tools.mkdir()
    path = slurm_cluster.environment["PATH"]
    for name in ("squeue", "sacct", "sbatch", "scontrol", "sinfo"):
        (tools / name).write_text(
            f"#!/bin/sh\necho 'Warning: this site moves on Monday'\necho \"$0: warning\" >&2\n"
            f'exec {shutil.which(name, path=path)} "$@"\n'
        )
        (tools / name).chmod(0o755)
    odd = {"LC_ALL": "de_DE.UTF-8", "TZ": "America/New_York", "SQUEUE_FORMAT": "%i", "SACCT_FORMAT": "JobID"}
    odd |= {"SQUEUE_PARTITION": "low", "SBATCH_PARTITION": "low", "PATH": f"{tools}:{path}"}
    run = on_slurm("submit", "--wait", "--json", "--name", "odd", *JOB, "--", "exit 4", code=1, **odd).json()
    assert (run["state"], run["reason"], run["exit_status"]) == ("failed", "exit_nonzero", 4)
    plain = on_slurm("show", "odd", "--json").json()
    assert plain["submitted_at"] <= plain["finished_at"]
    assert on_slurm("replay", "--json").json()["anomalies"] == []


def test_an_accounting_that_does_not_know_a_field(on_slurm: Steno, slurm_cluster: Cluster, tmp_path: Path) -> None:
    """An older sacct fails a whole call for one name: what it knows is asked of it at the start."""
    tools = tmp_path / "older"
    tools.mkdir()
    real = shutil.which("sacct", path=slurm_cluster.environment["PATH"])
    (tools / "sacct").write_text(
        '#!/bin/sh\ncase "$*" in *--helpformat*) '
        f"{real} \"$@\" | sed 's/SubmitLine//; s/Reason //; s/Comment  //'; exit;;\n"
        "*SubmitLine*|*,Reason*) echo 'sacct: error: Invalid field requested: \"SubmitLine\"' >&2; exit 1;; esac\n"
        f'exec {real} "$@"\n'
    )
    (tools / "sacct").chmod(0o755)
    path = f"{tools}:{slurm_cluster.environment['PATH']}"
    run = on_slurm("submit", "--wait", "--json", "--name", "old", *JOB, "--", "exit 5", code=1, PATH=path).json()
    assert (run["state"], run["exit_status"]) == ("failed", 5)
