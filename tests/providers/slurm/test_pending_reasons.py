"""Every reason for which a job of Slurm may wait has a sentence, and a remedy where there is one."""

from pathlib import Path

import pytest

from steno.engine.providers.slurm.words import waits

WORDS = (Path(__file__).parent / "pending_reasons_22.05.txt").read_text().split()
"""The reasons of its library (`job_reason_string` of libslurmfull.so, 22.05.8) and of `man squeue`."""
NEWER = [
    "Constraints", "MaxPoweredUpNodes", "MpiPortsBusy", "NvidiaImexChannels", "ReservationInvalid", "RaisedSignal",
    "MaxCpuRunMinsPerAccount", "MaxCpuRunMinsPerUser", "MaxGRESRunMinsPerUser", "MaxMemoryRunMinsPerUser",
]  # fmt: skip
"""The reasons that 23.02 to 26.05 have besides (`src/common/job_state_reason.c`); of each kind of limit some."""
UNAIDED = {
    "BeginTime", "Resources", "Priority", "Dependency", "Reservation", "Licenses", "Prolog", "Cleaning", "SchedDefer",
    "None", "WaitingForScheduling", "BlockFreeAction", "BurstBufferStageIn", "FedJobLock", "JobArrayTaskLimit",
    "MaxPoweredUpNodes", "MpiPortsBusy", "NvidiaImexChannels",
}  # fmt: skip
"""Reasons that pass by themselves."""


@pytest.mark.parametrize("word", WORDS + NEWER)
def test_every_reason_has_its_sentence(word: str) -> None:
    """Not Slurm's own word; and what to do, unless time alone helps."""
    waiting = waits(word, "17")
    assert word not in waiting.why
    assert " " in waiting.why
    assert (waiting.remedy is not None) == (word not in UNAIDED)
    assert "more (fewer" not in f"{waiting.remedy}"
    assert "()" not in f"{waiting.remedy}"


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


@pytest.mark.parametrize("word", ["QOSGrpCpuLimit", "QOSMaxCpuPerUserLimit", "AssocGrpGRES", "QOSResourceLimit"])
def test_a_shared_limit_is_not_said_to_be_in_use(word: str) -> None:
    """Seen: QOSGrpCpuLimit of a job of 4 CPUs, the limit 3 and nothing running; and of one of 2 beside one of 2."""
    waiting = waits(word)
    assert "running jobs" not in waiting.why
    assert "would have more" in waiting.why
    assert "ask for less" in (waiting.remedy or "")


@pytest.mark.parametrize(
    ("text", "why", "remedy", "never"),
    [
        (
            "Job's account not permitted to use this partition (gpu allows other not lab)",
            "its account may not use this partition (gpu allows other not lab)",
            "use another account or partition",
            True,
        ),
        (
            "Job's QOS not permitted to use this partition (gpu allows capped not normal)",
            "its QOS may not be used here (gpu allows capped not normal)",
            "use another QOS or partition",
            True,
        ),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions",
            "its nodes are down, drained or kept for a partition of higher priority",
            "ask for fewer nodes, or use another partition",
            False,
        ),
        (
            "ReqNodeNotAvail, UnavailableNodes:node[1-2]",
            "a node it needs is down or drained (node[1-2])",
            "ask for other nodes, or for fewer",
            False,
        ),
        ("job requeued in held state", "its owner holds it", "scontrol release 17", False),
        ("launch failed requeued held", "it failed to start, so Slurm holds it", "scontrol release 17", False),
    ],
)
def test_a_text_that_slurm_gives_instead_of_its_reason(text: str, why: str, remedy: str, never: bool) -> None:
    """Seen on 22.05: squeue's %r is then a sentence, and accounting has the reason."""
    waiting = waits(text, "17")
    assert (waiting.why, waiting.remedy, waiting.never) == (why, remedy, never)


@pytest.mark.parametrize(
    ("word", "known"),
    [
        ("PartitionNodeLimit", ("or fewer", "another number of nodes")),  # seen: 1 node of a partition with MinNodes=2
        ("PartitionConfig", ("or does not take such a job", "another partition")),  # seen: ReqResv, DisableRootJobs
        ("BadConstraints", ("Slurm holds it", "scontrol release 17")),  # seen: still held once a node has it
    ],
)
def test_what_never_runs_says_each_cause_that_slurm_has_one_word_for(word: str, known: tuple[str, str]) -> None:
    waiting = waits(word, "17")
    assert waiting.never
    assert known[0] in waiting.why
    assert known[1] in (waiting.remedy or "")
