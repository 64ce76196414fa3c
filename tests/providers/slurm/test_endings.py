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


def test_a_revoked_job_was_stopped_by_nobody() -> None:
    """Another cluster of the federation runs it: here it is over, and whether it succeeds is not known here."""
    run = ended("REVOKED", "0:0")
    assert (run.state.value, str(run.reason), run.exit_status) == ("stopped", "unknown_reason", None)
    assert "another cluster of its federation runs it" in why(run)
    assert "`squeue --federation -j 9`" in why(run)


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
