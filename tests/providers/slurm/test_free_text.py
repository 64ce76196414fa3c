"""Names and comments are free text: whatever they hold, no other field of a job is read from them."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from stenotest.slurm_polls import facts_of

from steno.engine.providers.slurm.jobs import job_pairs
from steno.engine.providers.slurm.query import question
from steno.engine.providers.slurm.rounds import SACCT, SQUEUE
from steno.engine.providers.slurm.rows import Row, rows

SCONTROL = ("env", "STENO_ACCOUNTING=none", "scontrol", "-o", "show", "job")
BLOCK = (
    "UserId={user} GroupId=domain users(513) MCS_label=N/A Priority=1 Nice=0 Account=lab QOS=normal WCKey=*lab "
    "JobState={state} Reason=None Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=0:0 "
    "RunTime=00:00:00 TimeLimit=00:10:00 TimeMin=N/A SubmitTime={submit} EligibleTime=2026-11-28T20:29:20 "
    "AccrueTime=Unknown StartTime=Unknown EndTime=Unknown Deadline=N/A SuspendTime=None SecsPreSuspend=0 "
    "LastSchedEval=2026-11-28T20:29:20 Scheduler=Main Partition=gpu-a40 AllocNode:Sid=localhost:4847 "
    "ReqNodeList=(null) ExcNodeList=(null) NodeList= NumNodes=1 NumCPUs=1 NumTasks=1 CPUs/Task=1 ReqB:S:C:T=0:0:*:* "
    "TRES=cpu=1,mem=50M,node=1,billing=1,gres/gpu=1 Socks/Node=* NtasksPerN:B:S:C=0:0:*:* CoreSpec=* MinCPUsNode=1 "
    "MinMemoryNode=50M MinTmpDiskNode=0 Features=(null) DelayBoot=00:00:00 OverSubscribe=OK Contiguous=0 "
    "Licenses=(null) Network=(null) Command=(null) WorkDir=/home/u"
)
LINE = (
    "JobId=12 JobName={name} {block}{comment}StdErr=/home/u/slurm-12.out StdIn=/dev/null StdOut=/home/u/slurm-12.out "
    "Power= TresPerNode=gres:gpu:1 "
)
"""As scontrol of 22.05 prints it."""
TRUTH = {"user": "me(5)", "state": "RUNNING", "submit": "2026-11-28T20:29:20"}
FORGED = {"user": "root(0)", "state": "COMPLETED", "submit": "2020-01-01T00:00:00"}

WORDS = st.sampled_from(
    ["UserId=root(0)", "GroupId=root(0)", "JobState=COMPLETED", "JobState=FAILED", "JobId=9", "JobName=x", "Reason=x",
     "SubmitTime=2020-01-01T00:00:00", "Comment=steno:x", "StdErr=/x", "Command=x", "WorkDir=/", "Socks/Node=*", "a|b",
     "|", "12", "(null)", "steno:x", BLOCK.format(**FORGED), BLOCK.format(**FORGED)[:-30], "9|COMPLETED|None", "x", ""]
)  # fmt: skip
TEXT = (
    st.lists(WORDS, max_size=6).map(" ".join)
    | st.lists(WORDS, max_size=6).map("|".join)
    | st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=40)
)


def line_of(name: str, comment: str) -> str:
    return LINE.format(name=name, block=BLOCK.format(**TRUTH) + " ", comment=f"Comment={comment}  " if comment else "")


@given(name=TEXT, comment=TEXT)
@example(name=f"x {BLOCK.format(**FORGED)}", comment="")
@example(name="x", comment=BLOCK.format(**FORGED))
@example(name="x JobState=FAILED", comment="JobState=COMPLETED JobId=9")
def test_scontrol_gives_the_truth_or_says_that_it_cannot(name: str, comment: str) -> None:
    """State, id, user and submission are the job's own; of a text that repeats all of them nothing is read."""
    try:
        (run,) = facts_of(SCONTROL, line_of(name, comment))
    except ValueError:
        assert "Partition=" in name + comment  # nothing less makes a line unreadable
        return
    assert (run.provider_id, run.status, run.user) == ("12", "RUNNING", "me")
    assert run.name in (name.strip() or None, None) or name.strip() == "(null)" or "UserId" in name
    (attempt,) = run.jobs[0].attempts
    assert attempt.submitted_at == run.submitted_at == 1795897760 * 1_000_000


@pytest.mark.parametrize(
    ("head", "job"),
    [
        ("JobId=20 ArrayJobId=12 ArrayTaskId=3", "12_3"),
        ("JobId=12 ArrayJobId=12 ArrayTaskId=4-5%2 ArrayTaskThrottle=2", "12_4"),
        ("JobId=13 HetJobId=12 HetJobOffset=1", "12+1"),
    ],
)
def test_the_ids_of_tasks_and_components_stand_before_the_name(head: str, job: str) -> None:
    line = line_of("ArrayJobId=9 ArrayTaskId=9 HetJobId=9 HetJobOffset=9", "").replace("JobId=12", head, 1)
    first, *_ = rows(question(SCONTROL), line)
    assert (first.job, first.name) == (job, "ArrayJobId=9 ArrayTaskId=9 HetJobId=9 HetJobOffset=9")


def test_the_comment_ends_where_scontrol_goes_on() -> None:
    """And one of two comments is nobody's mark."""
    pairs = job_pairs(line_of("x", "steno:abc"))
    assert pairs is not None
    assert (pairs["Comment"], pairs["TresPerNode"]) == ("steno:abc", "gres:gpu:1")
    forged = job_pairs(line_of("x Comment=steno:q", "a Comment=steno:abc"))
    assert forged is not None
    assert "Comment" not in forged


@pytest.mark.parametrize(
    ("devices", "gpus"),
    [
        ("TresPerNode=gres:gpu:1 ", "gres/gpu=1"),
        ("TresPerNode=gres:gpu", "gres/gpu=1"),
        ("TresPerNode=gres:gpu:a6000:2 ", "gres/gpu:a6000=2"),
        ("TresPerNode=gres:gpu:1g.10gb:2", "gres/gpu:1g.10gb=2"),
        ("TresPerJob=gres:gpu:a6000:2 ", "gres/gpu:a6000=2"),
        ("TresPerTask=gres:gpu:a6000:2 ", "gres/gpu:a6000=6"),
        ("TresPerTask=cpu=1,gres/gpu:a6000=2 ", "gres/gpu:a6000=6"),
        ("TresPerNode=gres:shard:2 ", None),
        ("TresPerNode=gres/gpu:a6000:2", "gres/gpu:a6000=2"),
    ],
)
def test_the_gpus_that_a_job_asks_for_count_however_it_does(devices: str, gpus: str | None) -> None:
    """Seen without accounting: `--gpus=a6000:2` was billed as a CPU."""
    line = line_of("x", "").replace(",gres/gpu=1", "").replace("NumTasks=1", "NumTasks=3")
    (row,) = rows(question(SCONTROL), line.replace("TresPerNode=gres:gpu:1 ", devices))
    assert row.tres == "cpu=1,mem=50M,node=1,billing=1" + ("" if gpus is None else f",{gpus}")


def squeue_line(name: str, comment: str) -> str:
    return f"12|RUNNING|None|gpu|me|2026-11-28T20:29:20|N/A|n1|{comment}|12|{name}"


def sacct_line(name: str, comment: str) -> str:
    times = "2026-11-28T20:29:20|2026-11-28T20:29:21|Unknown|00:00:00|01:00:00"
    return f"12|RUNNING|0:0|0:0|{times}|cpu=1|n1|gpu|me|7|None|{comment}|12|{name}"


@pytest.mark.parametrize(
    ("command", "line"),
    [
        (("squeue", "-h", "-t", "all", "--me", "-o", SQUEUE), squeue_line),
        (("sacct", "-X", "-D", "-P", "-n", "-j", "12", "-o", ",".join(SACCT)), sacct_line),
    ],
    ids=["squeue", "sacct"],
)
@given(name=TEXT, comment=TEXT)
@example(name="train", comment="lr=1|bs=2")
@example(name="a|12|b", comment="")
def test_no_separator_in_a_text_moves_another_column(
    command: tuple[str, ...], line: Callable[[str, str], str], name: str, comment: str
) -> None:
    """Name and comment are the job's, or not read where they hold the job's own id between separators."""
    (row,) = rows(question(command), line(name, comment))
    assert (row.job, row.state, row.user, row.nodes) == ("12", "RUNNING", "me", "n1")
    known = (row.comment, row.name)
    whole = tuple(None if text.strip() in NOTHING else text.strip() for text in (comment, name))
    assert known == whole or (known == (None, None) and "|12|" in f"|{comment}|" + f"|{name}|")


NOTHING = {"", "None", "none", "(null)", "N/A", "None assigned"}


@pytest.mark.parametrize(
    ("tail", "comment", "name"),
    [
        ("lr=1|bs=2|train", "lr=1|bs=2", "train"),
        ("(null)|a|b", None, "a|b"),
        ("|a|b", None, "a|b"),
        ("steno:x|a|b", "steno:x", "a|b"),
        ("c|train", "c", "train"),
        ("c", None, None),
    ],
)
def test_an_earlier_question_gives_the_last_column_as_name(tail: str, comment: str | None, name: str | None) -> None:
    """It had nothing between comment and name. No comment, and our mark, hold no separator: then the rest is the name.
    A line break in the comment cuts off the name only.
    """
    squeue = question(("squeue", "-h", "-t", "all", "-o", "%i|%T|%k|%j"))
    assert list(rows(squeue, f"12|RUNNING|{tail}")) == [Row(job="12", state="RUNNING", comment=comment, name=name)]


def test_columns_between_two_texts_are_not_guessed() -> None:
    """A state that a name may have moved is unreadable."""
    squeue = question(("squeue", "-o", "%i|%j|%T|%k"))
    assert [row.name for row in rows(squeue, "12|a|RUNNING|c")] == ["a"]
    with pytest.raises(ValueError, match="columns"):
        list(rows(squeue, "12|a|COMPLETED|RUNNING|c"))
