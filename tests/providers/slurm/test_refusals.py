"""The meaning of an error of sbatch, and the row that a refused submission leaves."""

import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.errors import ProviderError, ProviderUnreachable, TaskInvalid
from steno.engine.providers.base import Submission
from steno.engine.providers.slurm.provider import SlurmProvider
from steno.engine.providers.slurm.query import question
from steno.engine.providers.slurm.rows import rows
from steno.engine.providers.slurm.settings import Site
from steno.engine.providers.slurm.spec import spec_of
from steno.events.clock import SystemClock

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
    with pytest.raises(ProviderUnreachable) as error_info:
        submit(f"echo 'sbatch: error: Batch job submission failed: {error}' >&2; exit 1")
    assert error_info.value.sent


@pytest.mark.parametrize("line", ["kill -9 $$", "exit 0", "echo welcome"])
def test_an_sbatch_without_an_answer_may_have_submitted(submit: Submit, line: str) -> None:
    with pytest.raises(ProviderUnreachable) as error_info:
        submit(line)
    assert error_info.value.sent


def test_a_refusal_is_one_and_a_wrappers_error_is_not_taken_for_slurms(submit: Submit) -> None:
    with pytest.raises(TaskInvalid, match=r"^Slurm refuses the job: no such thing; Invalid qos specification$"):
        submit("echo 'sbatch: error: no such thing\nsbatch: error: Invalid qos specification' >&2; exit 1")
    with pytest.raises(ProviderError, match="please load the module"):
        submit("echo 'please load the module' >&2; exit 1")


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(["1d", "4..", "٣"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["name", "count"]), inner),
    max_leaves=4,
)
_FIELDS = ("nodes", "checkpoint", "max_duration", "total_time", "resubmissions", "partition", "array", "constraint",
           "environment", "workers", "working_dir")  # fmt: skip


@given(
    fields=st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=4),
    resources=_VALUES | st.dictionaries(st.sampled_from(["gpu", "cpu", "memory"]), _VALUES),
)
def test_a_task_is_a_job_or_is_refused(fields: dict[str, object], resources: object) -> None:
    """Whatever its fields hold: any other exception would end the recorder that submits it."""
    with suppress(TaskInvalid):
        spec_of({"commands": ["true"], "resources": resources, **fields})


@pytest.mark.parametrize(("cpu", "cpus"), [(4, 4), ("4..8", 4), ("..8", 1), (None, None)])
def test_the_least_number_of_cpus_is_asked_for(cpu: object, cpus: int | None) -> None:
    assert spec_of({"commands": ["true"], "resources": {"cpu": cpu}}).cpus == cpus


@pytest.mark.parametrize("cpu", ["abc", "-1", {"min": 2}, [4]])
def test_another_text_is_no_number_of_cpus(cpu: object) -> None:
    with pytest.raises(TaskInvalid, match=r"^resources.cpu: .* is not a number of CPUs; write 4$"):
        spec_of({"commands": ["true"], "resources": {"cpu": cpu}})


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
