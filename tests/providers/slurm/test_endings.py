"""Ends of a job that an exit code alone does not explain."""

import pytest
from stenotest.slurm_polls import facts_of, poll

from steno.engine.providers.slurm.witnesses import ACCOUNTING, CONTROLLER, together
from steno.engine.replay.replay import replay_polls
from steno.engine.rules.why_ended import why
from steno.engine.state.run import Run

SACCT = ("sacct", "-X", "-D", "-P", "-n", "-j", "9", "-o", "JobID,State,ExitCode,Submit,Start,End,NodeList,JobName")
SQUEUE = ("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%V|%j")
SCONTROL = ("env", "STENO_ACCOUNTING=none", "scontrol", "-o", "show", "job")
ENDS = ("env", "STENO_ACCOUNTING=none", "grep", "-rHs", "", "/home/u/steno/ends")
TIMES = "2026-11-28T12:00:01|2026-11-28T12:00:02|2026-11-28T12:00:02"


def ended(state: str, code: str) -> Run:
    """The run of a job of which accounting says that."""
    (run,) = replay_polls([(1, poll(86_400 * 9, SACCT, f"9|{state}|{code}|{TIMES}|node7|x\n"))]).runs
    return run


def test_a_job_whose_output_file_could_not_be_opened_never_ran() -> None:
    """`0:53` is not a signal of the script: it has no exit status, and the sentence says where to look."""
    run = ended("FAILED", "0:53")
    assert (run.state.value, str(run.reason), run.exit_status) == ("failed", "provider_error", None)
    assert why(run) == (
        "Its script never ran: Slurm could not open its output file or its work folder; "
        "check that both exist on node7 and may be written by you."
    )


def test_a_preempted_job_lost_its_nodes_to_another() -> None:
    """No machine was taken away, as of a spot machine."""
    answer = SACCT, f"9|PREEMPTED|0:0|{TIMES}|node7|x\n"
    polls = [answer, (SQUEUE, ""), answer]
    (run,) = replay_polls([(at, poll(86_400 * 9 + at, *each)) for at, each in enumerate(polls, 1)]).runs
    assert (str(run.reason), why(run)) == ("interrupted", "Slurm gave node7 to a job of higher priority; run it again.")


def test_a_revoked_job_was_stopped_by_nobody() -> None:
    """Another cluster of the federation runs it: here it is over, and whether it succeeds is not known here."""
    run = ended("REVOKED", "0:0")
    assert (run.state.value, str(run.reason), run.exit_status) == ("stopped", "unknown_reason", None)
    assert "another cluster of its federation runs it" in why(run)
    assert "`squeue --federation -j 9`" in why(run)


BY = ("sacct", "-P", "-o", "JobID,State,ExitCode,Submit,Start,End,NodeList,User,UID,Reason,JobName")


@pytest.mark.parametrize(
    ("state", "user", "reason", "sentence"),
    [
        ("CANCELLED by 0", "root|0", "stopped_by_user", "A user stopped it."),
        ("CANCELLED by 7", "ann|7", "stopped_by_user", "A user stopped it."),
        (
            "CANCELLED by 0",
            "ann|7",
            "stopped_by_user",
            "Root or Slurm itself cancelled it, as Slurm does if a node's prolog fails; ask the site why.",
        ),
        ("CANCELLED by 5", "ann|7", "stopped_by_user", "User 5 of the cluster cancelled it; ask the site why."),
        (
            "CANCELLED",  # seen after `--kill-on-invalid-dep=yes`
            "ann|7",
            "unknown_reason",
            (
                "Slurm itself cancelled it, as it does if the job that it waits for cannot end as it asks; "
                "submit it again once that job has."
            ),
        ),
    ],
)
def test_who_cancelled_a_job_is_said_if_it_was_not_its_owner(state: str, user: str, reason: str, sentence: str) -> None:
    line = f"9|{state}|0:0|2026-11-28T12:00:01|None|2026-11-28T12:00:02|None assigned|{user}|Dependency|x\n"
    (run,) = replay_polls([(1, poll(86_400 * 9, BY, line))]).runs
    assert (run.state.value, str(run.reason), why(run)) == ("stopped", reason, sentence)


@pytest.mark.parametrize("state", ["CANCELLED+", "CANCELLED by 7"])
def test_who_cancelled_a_job_is_not_said_if_it_is_not_known(state: str) -> None:
    """A column that was cut, and a record whose question had no user id."""
    assert why(ended(state, "0:0")) == "A user stopped it."


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("9:0", "It exited 9; or 137, which Slurm before 25.11 shows as 9: its command was killed (SIGKILL), in most "),
        ("11:0", "It exited 11; or 139, which Slurm before 25.11 shows as 11: its command accessed memory that is "),
        ("127:0", "It exited 127: a command was not found; or 255, which Slurm before 25.11 shows as 127; check its "),
        ("2:0", "It exited 2; read its output"),
    ],
)
def test_an_exit_status_may_be_128_more(code: str, sentence: str) -> None:
    """Seen on 22.05: `exit 255` is accounted as 127:0, and 139 of a script whose last program crashed as 11:0."""
    assert why(ended("FAILED", code)).startswith(sentence)


def test_an_exit_status_of_our_own_script_is_exact_below_127() -> None:
    """It ends itself by the signal, and accounting keeps that unchanged; no signal has the number 127."""
    for code, words in (("9:0", "It exited 9; read"), ("127:0", "It exited 127: a command was not found; or 255")):
        line = f"9|FAILED|{code}|2026-11-28T12:00:01|steno:1b4e28ba-2fa1-11d2-883f-0016d3cca427|x\n"
        columns = ("sacct", "-P", "-o", "JobID,State,ExitCode,Submit,Comment,JobName")
        (run,) = replay_polls([(1, poll(86_400 * 9, columns, line))]).runs
        assert why(run).startswith(words)


def test_why_a_job_waited_is_no_word_about_how_it_ended() -> None:
    """Accounting keeps that reason: a job that failed in its second attempt read `FAILED / BeginTime`."""
    (ran,) = facts_of(BY, f"9|FAILED|1:0|{TIMES}|node7|ann|7|BeginTime|x")
    (waiting,) = facts_of(BY, "9|PENDING|0:0|2026-11-28T12:00:01|Unknown|Unknown|None assigned|ann|7|BeginTime|x")
    assert [ran.reason, ran.jobs[0].attempts[0].reason] == [None, None]
    assert waiting.reason == "BeginTime"


def test_the_controllers_spelling_of_a_name_stands() -> None:
    """Accounting cuts it at 255 bytes and writes a quote as a backtick; whoever is heard first."""
    spelt = 'train "new" ' + "é" * 200
    (listed,) = facts_of(SQUEUE, f"9|RUNNING|None|2026-11-28T12:00:01|{spelt}")
    (accounted,) = facts_of(SACCT, f"9|RUNNING|0:0|{TIMES}|node7|train `new` {'é' * 120}")
    both = together(accounted, {ACCOUNTING: accounted, CONTROLLER: listed})
    assert both.name == spelt
    assert together(both, {CONTROLLER: None, ACCOUNTING: accounted}).name == spelt
    assert together(accounted, {ACCOUNTING: accounted}).name == accounted.name


@pytest.mark.parametrize("status", [143, 0])
def test_without_accounting_a_script_has_the_last_word_only_once_the_controller_has_none(status: int) -> None:
    """A cancelled job's script writes what SIGTERM made of it while the controller still says COMPLETING."""
    job = "JobId=9 JobName=x UserId=u(0) JobState={} Reason=None Restarts=0 ExitCode={} SubmitTime=2026-11-28T12:00:01"
    wrote = f"/home/u/steno/ends/9:{status} 1795867205 run x\n"
    rounds = [(SCONTROL, job.format("COMPLETING", "0:0")), (ENDS, wrote), (SCONTROL, job.format("CANCELLED", "0:15"))]
    polls = [(at, poll(86_400 * 9 + at, *answer)) for at, answer in enumerate(rounds, 1)]
    (going,) = replay_polls(polls[:2]).runs
    (stopped,) = replay_polls(polls).runs
    assert (going.state, going.reason) == ("finishing", None)
    assert (stopped.state, stopped.reason, stopped.exit_status) == ("stopped", "stopped_by_user", None)
    (forgotten,) = replay_polls([*polls[:2], (3, poll(86_400 * 9 + 3, SCONTROL, ""))]).runs
    assert (forgotten.state, forgotten.exit_status) == (("failed", 143) if status else ("succeeded", 0))
