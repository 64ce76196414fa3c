"""Every reason for which a job of Slurm 22.05 may wait has a sentence, and a remedy where there is one."""

from pathlib import Path

import pytest

from steno.engine.providers.slurm.words import waits

WORDS = (Path(__file__).parent / "pending_reasons_22.05.txt").read_text().split()
"""The reasons of its library (`job_reason_string` of libslurmfull.so, 22.05.8) and of `man squeue`."""
UNAIDED = {
    "BeginTime", "Resources", "Priority", "Dependency", "Reservation", "Licenses", "Prolog", "Cleaning", "SchedDefer",
    "None", "WaitingForScheduling", "BlockFreeAction", "BurstBufferStageIn", "FedJobLock", "JobArrayTaskLimit",
}  # fmt: skip
"""Reasons that pass by themselves."""


@pytest.mark.parametrize("word", WORDS)
def test_every_reason_has_its_sentence(word: str) -> None:
    """Not Slurm's own word; and what to do, unless time alone helps."""
    waiting = waits(word, "17")
    assert word not in waiting.why
    assert " " in waiting.why
    assert (waiting.remedy is not None) == (word not in UNAIDED - {"BeginTime"})


@pytest.mark.parametrize(
    "word", [word for word in WORDS if "Grp" in word and ("Minutes" in word or word.endswith("GrpWallLimit"))]
)
def test_an_allocation_that_is_used_up_is_said_to_be(word: str) -> None:
    """The sum of minutes of an account or a QOS: only another one helps, or the site."""
    waiting = waits(word)
    group, option = ("QOS", "--qos") if word.startswith("QOS") else ("account", "--account")
    assert waiting.why.startswith(f"the allocation of its {group} is used up")
    assert option in (waiting.remedy or "")
    assert ("for now" in waiting.why) == ("RunMinutes" in word)
    assert not waiting.never


@pytest.mark.parametrize(
    ("word", "never"),
    [
        ("QOSMaxGRESPerJob", True),
        ("AssocMaxWallDurationPerJobLimit", True),
        ("QOSMinGRES", True),
        ("QOSMaxGRESPerUser", False),
        ("AssocGrpGRES", False),
        ("MaxJobsPerAccount", False),
    ],
)
def test_only_a_limit_of_one_job_keeps_it_for_ever(word: str, never: bool) -> None:
    """Resources of others are free again one day."""
    assert waits(word).never == never
