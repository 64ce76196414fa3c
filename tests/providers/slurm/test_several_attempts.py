"""A job that is tried again: what controller and accounting say of it together where they differ."""

import pytest
from stenotest import slurm_histories
from stenotest.slurm_histories import START, Attempt, Cluster, Job
from stenotest.slurm_polls import facts_of

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.registry import READINGS
from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.providers.slurm.witnesses import ACCOUNTING, AWAITING, CONTROLLER, together
from steno.engine.state.facts import RunFacts
from steno.engine.state.states import Reason, State
from steno.events import clock

SACCT = ("sacct", "-X", "-D", "-P", "-n", "-j", "7", "-o", "JobID,State,ExitCode,Submit,Start,End")
SQUEUE = ("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%V")
FIRST, SECOND = "2026-11-23T01:00:00", "2026-11-23T01:10:00"


def read(words: tuple[str, ...], *lines: str) -> RunFacts:
    """The job by the answer of one source."""
    return SlurmReading().joined(facts_of(words, *lines))


BEGUN = read(SQUEUE, f"7|RUNNING|None|{FIRST}")
"""The job as it was known before."""


def accounted(state: str, submitted: str = FIRST) -> str:
    """A row of accounting."""
    return f"7|{state}|0:0|{submitted}|{submitted}|Unknown"


def test_an_end_is_none_while_the_controller_has_not_made_up_its_mind() -> None:
    """While the processes of an attempt end, the job may still go back into the queue."""
    ended = read(SACCT, accounted("NODE_FAIL"))
    for state in ("COMPLETING", "RUNNING", "PENDING"):
        views = {CONTROLLER: read(SQUEUE, f"7|{state}|None|{FIRST}"), ACCOUNTING: ended}
        assert not together(BEGUN, views).final, state
    for decided in (None, read(SQUEUE, f"7|NODE_FAIL|NodeDown|{FIRST}")):
        both = together(BEGUN, {CONTROLLER: decided, ACCOUNTING: ended})
        assert (both.final, both.cause) == (True, Reason.NODE_FAILED)


def test_old_rows_after_an_outage_do_not_end_a_job_that_was_tried_again() -> None:
    """The controller showed a second attempt and forgot it; the database, back again, knows only the first."""
    old = read(SACCT, accounted("PREEMPTED"))
    queued = {CONTROLLER: read(SQUEUE, f"7|RUNNING|None|{SECOND}"), ACCOUNTING: old}
    before = together(BEGUN, queued)
    assert [attempt.num for attempt in before.jobs[0].attempts] == [0, 1]
    after = together(before, {CONTROLLER: None, ACCOUNTING: old})
    assert (after.final, after.state, after.reason) == (False, State.FINISHING, AWAITING)
    assert len(after.jobs[0].attempts) == 2
    whole = read(SACCT, accounted("PREEMPTED"), accounted("COMPLETED", SECOND))
    after = together(after, {CONTROLLER: None, ACCOUNTING: whole})
    assert (after.final, after.cause, len(after.jobs[0].attempts)) == (True, Reason.EXIT_ZERO, 2)


def test_old_rows_do_not_end_an_attempt_that_only_the_controller_showed() -> None:
    """It forgot the second attempt before accounting was first heard."""
    second = read(SQUEUE, f"7|COMPLETED|None|{SECOND}")
    before = together(second, {CONTROLLER: second})
    after = together(before, {CONTROLLER: None, ACCOUNTING: read(SACCT, accounted("PREEMPTED"))})
    assert (after.final, after.state, after.reason) == (False, State.FINISHING, AWAITING)
    whole = read(SACCT, accounted("PREEMPTED"), accounted("COMPLETED", SECOND))
    after = together(after, {CONTROLLER: None, ACCOUNTING: whole})
    assert (after.final, after.cause, len(after.jobs[0].attempts)) == (True, Reason.EXIT_ZERO, 2)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ("squeue 9, squeue 13", ("running", 1, 13)),
        ("squeue 10, squeue 13", ("running", 1, 13)),
        ("squeue 10, sacct 13", ("running", 2, 13)),
        ("squeue 9, sacct 13", ("running", 2, 13)),
        ("squeue 10, sacct 13, squeue 14", ("running", 2, 13)),
        ("squeue 9, squeue 13, sacct 14", ("running", 2, 13)),
        ("squeue 10, squeue 13, sacct 14", ("running", 2, 13)),
        ("squeue 13, sacct 14", ("running", 2, 13)),
        ("sacct 9, squeue 10, squeue 13, sacct 14", ("running", 2, 13)),
        ("sacct 9, squeue 10, norow 10, squeue 13, sacct 14", ("running", 2, 13)),
        ("squeue 9, squeue 11", ("queued", 1, None)),
        ("squeue 10, sacct 11", ("queued", 2, None)),
    ],
)
def test_a_later_submission_is_a_new_attempt(answers: str, expected: tuple[str, int, int | None]) -> None:
    """Submitted at 0, running from 1, preempted at 10, submitted again at 11, running from 12. The number of attempts
    is accounting's.
    """
    job = Job(7, (Attempt(0, 1, 10, "PREEMPTED", "0:0"), Attempt(11, 12, 99, "COMPLETED", "0:0")), completing=1)
    cluster, world, reader = Cluster((job,), 0, (-40, -40)), Fold(READINGS), PollReader(READINGS)
    tools = {
        "squeue": (slurm_histories.SQUEUE, cluster.squeue),
        "sacct": (slurm_histories.SACCT, cluster.sacct),
        "norow": (slurm_histories.SACCT, lambda _: []),  # its database is back
    }
    for number, question in enumerate(answers.split(", "), 1):
        tool, second = question.split()
        words, lines = tools[tool]
        at = int(second) * clock.SECOND
        world.apply(reader.read(number, slurm_histories.poll(words, lines(int(second)), at, at)))
    (run,) = world.state.runs.all()
    started = None if run.started_at is None else (run.started_at - START) // clock.SECOND
    assert (run.state.value, run.attempts, started) == expected
    assert not world.state.anomalies


def test_an_end_stands_when_the_controller_forgets_the_job() -> None:
    """It lists a preempted job as such for some seconds; then that it does not is nothing new."""
    ended = read(SACCT, accounted("PREEMPTED"))
    listed = read(SQUEUE, f"7|PREEMPTED|None|{FIRST}")
    both = together(BEGUN, {CONTROLLER: listed, ACCOUNTING: ended})
    assert (both.final, both.cause) == (True, Reason.INTERRUPTED)
    both = together(both, {ACCOUNTING: ended, CONTROLLER: None})
    assert (both.final, both.cause) == (True, Reason.INTERRUPTED)
    again = together(both, {ACCOUNTING: ended, CONTROLLER: read(SQUEUE, f"7|PENDING|None|{SECOND}")})
    assert (again.final, again.state) == (False, State.QUEUED)


def test_half_a_row_of_accounting_is_none() -> None:
    """Until accounting has heard of a start, a task of an array has the id of the whole, and no partition."""
    words = (*SACCT[:-1], f"{SACCT[-1]},Partition,JobName")
    half = f"7|FAILED|3:0|{FIRST}|{FIRST}|{SECOND}||allocation"
    whole = f"7_3|FAILED|3:0|{FIRST}|{FIRST}|{SECOND}|gpu|sweep"
    assert [facts.provider_id for facts in facts_of(words, half, whole)] == ["7_3"]


def test_phases_of_one_second_are_in_the_order_of_the_report() -> None:
    """In every process: the order of a set is another in each."""
    names = ("environment", "command", "checkpoint", "cleaning", "ending", "over")
    rows = [RunFacts(provider_id="7", phases=((name, 5),)) for name in names]
    joined = SlurmReading().joined([*rows, RunFacts(provider_id="7", phases=(("before", 4),)), rows[0]])
    assert [name for name, _ in joined.phases] == ["before", *names]
