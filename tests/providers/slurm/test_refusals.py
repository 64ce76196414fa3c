"""What an error of sbatch means, and the row that a refused submission leaves."""

import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.errors import ProviderError, ProviderUnreachable, TaskInvalid
from engine.providers.base import Submission
from engine.providers.slurm.provider import SlurmProvider
from engine.providers.slurm.question import question
from engine.providers.slurm.rows import rows
from engine.providers.slurm.settings import Site
from events.clock import SystemClock

Submit = Callable[[str], object]


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """A submission whose sbatch is this shell line."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def submitted(line: str) -> object:
        (tmp_path / "sbatch").write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "sbatch").chmod(0o755)
        provider = SlurmProvider(Site(cluster="lab", folder=str(tmp_path / "steno")), clock=SystemClock())
        task: dict[str, object] = {"commands": ["true"], "env": {}}
        return provider.submit(Submission(run_id=str(uuid.uuid4()), name="a", project="lab", configuration=task))

    return submitted


@pytest.mark.parametrize(
    "error",
    [
        "Socket timed out on send/recv operation",
        "Unable to contact slurm controller (connect failure)",
        "Unexpected message received",
        "Zero Bytes were transmitted or received",
        "Communication connection failure",
        "Message receive failure",
        "Protocol authentication error",
        "Connection reset by peer",
        "Slurm backup controller in standby mode",
        "Resource temporarily unavailable",
    ],
)
def test_an_error_of_the_way_to_the_controller_is_no_refusal(submit: Submit, error: str) -> None:
    """The job may be there: Steno looks for it by its mark."""
    with pytest.raises(ProviderUnreachable) as found:
        submit(f"echo 'sbatch: error: Batch job submission failed: {error}' >&2; exit 1")
    assert found.value.sent


@pytest.mark.parametrize("line", ["kill -9 $$", "exit 0", "echo welcome"])
def test_an_sbatch_without_an_answer_may_have_submitted(submit: Submit, line: str) -> None:
    with pytest.raises(ProviderUnreachable) as found:
        submit(line)
    assert found.value.sent


def test_a_refusal_is_one_and_a_wrappers_error_is_not_taken_for_slurms(submit: Submit) -> None:
    with pytest.raises(TaskInvalid, match=r"^Slurm refuses the job: no such thing; Invalid qos specification$"):
        submit("echo 'sbatch: error: no such thing\nsbatch: error: Invalid qos specification' >&2; exit 1")
    with pytest.raises(ProviderError, match="please load the module"):
        submit("echo 'please load the module' >&2; exit 1")


SACCT = ("sacct", "-X", "-D", "-P", "-n", "-o", "JobID,State,ExitCode,Submit,Start,End,NodeList,Partition,JobName")
SQUEUE = ("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%P|%u|%V|%S|%N|%k|%j")
SCONTROL = ("scontrol", "-o", "show", "job")
AT, LATER = "2026-11-28T20:34:52", "2026-11-28T20:34:59"


@pytest.mark.parametrize(
    ("command", "line", "kept"),
    [
        (SACCT, f"7|FAILED|1:0|{AT}|{AT}|{AT}|None assigned|gpu|train", False),
        (SQUEUE, f"7|FAILED|BadConstraints|gpu|me|{AT}|{AT}||steno:x|train", False),
        (
            SCONTROL,
            f"JobId=7 JobName=a JobState=FAILED SubmitTime={AT} StartTime={AT} EndTime={AT} NodeList= Licenses=",
            False,
        ),
        (SACCT, f"7|FAILED|1:0|{AT}|{AT}|{AT}|node1|gpu|train", True),  # it ran, and failed within a second
        (SACCT, f"7|FAILED|1:0|{AT}|{LATER}|{LATER}|None assigned|gpu|train", True),  # it waited, and failed there
        (SACCT, f"7|CANCELLED by 5|0:0|{AT}|{AT}|{AT}|None assigned|gpu|train", True),
    ],
)
def test_a_row_that_a_refused_submission_leaves_is_no_job(command: tuple[str, ...], line: str, kept: bool) -> None:
    """FAILED as it was submitted, without a node."""
    assert bool([*rows(question(command), line)]) is kept
