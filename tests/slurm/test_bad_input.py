"""What cannot run, what was never there, and tools that answer oddly: one clear line and its exit code."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
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
    said = on_slurm("submit", "--name", "bad", *JOB, *options, "--", "true", code=REJECTED)
    lines = [line for line in said.err.splitlines() if "No price" not in line]
    assert len(lines) == 1
    assert message in lines[0]


def test_a_plan_for_what_the_cluster_does_not_have(on_slurm: Steno) -> None:
    said = on_slurm("slurm", "plan", "--type", "h100", code=REJECTED)
    assert "no GPU 'h100'; it has: a40, a6000, v100" in said.err
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
    for command in (("slurm", "gpus"), ("submit", "--name", "x", *JOB, "--", "true")):
        said = on_slurm(*command, code=UNREACHABLE, PATH=str(tools))
        assert "on this machine: install Slurm's commands, or set slurm.host" in said.err.splitlines()[-1]
