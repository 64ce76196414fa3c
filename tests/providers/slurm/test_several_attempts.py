"""A job that is tried again: what controller and accounting say of it together where they differ."""

from __future__ import annotations

from engine.facts import RunFacts
from engine.providers.slurm.reading import SlurmReading
from engine.providers.slurm.witnesses import ACCOUNTING, AWAITING, CONTROLLER, together
from engine.states import Reason, State

SACCT = b'["sacct","-X","-D","-P","-n","-j","7","-o","JobID,State,ExitCode,Submit,Start,End"]'
SQUEUE = b'["squeue","-h","-t","all","-o","%i|%T|%r|%V"]'
FIRST, SECOND = "2026-11-23T01:00:00", "2026-11-23T01:10:00"


def read(req: bytes, *lines: str) -> RunFacts:
    """What one source says of the job."""
    reading = SlurmReading()
    scope = reading.scope("slurm:", req)
    assert scope is not None
    return reading.joined([facts for line in lines for facts in reading.runs(f'"{line}"'.encode(), scope)])


BEGUN = read(SQUEUE, f"7|RUNNING|None|{FIRST}")
"""What was known of the job before."""


def accounted(state: str, submitted: str = FIRST) -> str:
    """A row of accounting."""
    return f"7|{state}|0:0|{submitted}|{submitted}|Unknown"


def test_an_end_is_none_while_the_controller_has_not_made_up_its_mind() -> None:
    """While the processes of an attempt end, nobody knows whether the job goes back into the queue."""
    ended = read(SACCT, accounted("NODE_FAIL"))
    for state in ("COMPLETING", "RUNNING", "PENDING"):
        views = {CONTROLLER: read(SQUEUE, f"7|{state}|None|{FIRST}"), ACCOUNTING: ended}
        assert not together(BEGUN, views).final, state
    for decided in (None, read(SQUEUE, f"7|NODE_FAIL|NodeDown|{FIRST}")):
        said = together(BEGUN, {CONTROLLER: decided, ACCOUNTING: ended})
        assert (said.final, said.cause) == (True, Reason.NODE_FAILED)


def test_old_rows_after_an_outage_do_not_end_a_job_that_was_tried_again() -> None:
    """The controller showed a second attempt and forgot it; the database, back again, knows only the first."""
    old = read(SACCT, accounted("PREEMPTED"))
    queued = {CONTROLLER: read(SQUEUE, f"7|RUNNING|None|{SECOND}"), ACCOUNTING: old}
    before = together(BEGUN, queued)
    assert [one.num for one in before.jobs[0].attempts] == [0, 1]
    said = together(before, {CONTROLLER: None, ACCOUNTING: old})
    assert (said.final, said.state, said.reason) == (False, State.FINISHING, AWAITING)
    assert len(said.jobs[0].attempts) == 2
    whole = read(SACCT, accounted("PREEMPTED"), accounted("COMPLETED", SECOND))
    said = together(said, {CONTROLLER: None, ACCOUNTING: whole})
    assert (said.final, said.cause, len(said.jobs[0].attempts)) == (True, Reason.EXIT_ZERO, 2)


def test_an_end_stands_when_the_controller_forgets_the_job() -> None:
    """It lists a preempted job as such for some seconds; then that it does not is nothing new."""
    ended = read(SACCT, accounted("PREEMPTED"))
    listed = read(SQUEUE, f"7|PREEMPTED|None|{FIRST}")
    said = together(BEGUN, {CONTROLLER: listed, ACCOUNTING: ended})
    assert (said.final, said.cause) == (True, Reason.INTERRUPTED)
    said = together(said, {ACCOUNTING: ended, CONTROLLER: None})
    assert (said.final, said.cause) == (True, Reason.INTERRUPTED)
    again = together(said, {ACCOUNTING: ended, CONTROLLER: read(SQUEUE, f"7|PENDING|None|{SECOND}")})
    assert (again.final, again.state) == (False, State.QUEUED)


def test_half_a_row_of_accounting_is_none() -> None:
    """Until accounting has heard of a start, a task of an array has the id of the whole, and no partition."""
    reading = SlurmReading()
    request = SACCT.replace(b'End"', b'End,Partition,JobName"')
    scope = reading.scope("slurm:", request)
    assert scope is not None
    half = f"7|FAILED|3:0|{FIRST}|{FIRST}|{SECOND}||allocation"
    whole = f"7_3|FAILED|3:0|{FIRST}|{FIRST}|{SECOND}|gpu|sweep"
    assert reading.runs(f'"{half}"'.encode(), scope) == ()
    assert [one.provider_id for one in reading.runs(f'"{whole}"'.encode(), scope)] == ["7_3"]


def test_phases_of_one_second_are_in_the_order_of_the_report() -> None:
    """In every process: the order of a set is another in each."""
    names = ("environment", "command", "checkpoint", "cleaning", "ending", "over")
    rows = [RunFacts(provider_id="7", phases=((name, 5),)) for name in names]
    found = SlurmReading().joined([*rows, RunFacts(provider_id="7", phases=(("before", 4),)), rows[0]])
    assert [name for name, _ in found.phases] == ["before", *names]
