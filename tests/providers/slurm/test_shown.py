"""How a Slurm run is shown: why it waits, what each source says, its attempts, its array."""

from itertools import permutations
from pathlib import Path

import click
import msgspec
import pytest
from stenotest.slurm_polls import facts_of, poll

from steno.cli.render.runs import listing
from steno.engine.objects import RunObject, run_object
from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.providers.slurm.rounds import maintenance
from steno.engine.providers.slurm.words import waits
from steno.engine.replay.replay import NumberedPoll, open_trace, replay_polls
from steno.engine.rules.sets import CURRENT
from steno.engine.rules.why_ended import why
from steno.engine.state.facts import Waits
from steno.events.clock import parse_time

TRACES = Path(__file__).parents[2] / "traces" / "slurm-22.05"


def polls_of(name: str) -> list[NumberedPoll]:
    return list(open_trace(TRACES / f"{name}.jsonl.zst"))


@pytest.mark.parametrize(
    ("reason", "never", "words"),
    [
        ("(PartitionTimeLimit)", True, "ask for less time"),
        ("QOSMaxCpuPerJobLimit", True, "ask for less (--cpus-per-task)"),
        ("Resources", False, "the nodes it asks for are in use"),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", False, "(Reserved for maintenance)"),
        ("JobHeldUser", False, "scontrol release 17"),
        ("SomethingNew", False, "SomethingNew"),
        (None, False, "Slurm has not looked at it yet"),
    ],
)
def test_a_reason_is_said_in_words_with_what_to_do(reason: str | None, never: bool, words: str) -> None:
    """Bug 1 and its like: a job that never runs is marked as such; an unknown reason comes back unchanged."""
    waiting = waits(reason, "17")
    assert (waiting.never, words in str(waiting)) == (never, True)
    assert (str(waiting).partition(": ")[0] == "never runs as it is") == never


def seen(name: str, until: int | None = None) -> dict[str | None, RunObject]:
    return {run.name: run_object(run, CURRENT) for run in replay_polls(polls_of(name)[:until]).runs}


def test_a_job_that_squeue_forgot_awaits_accounting() -> None:
    """Bugs 2 and 7: it is finishing until its record is there, and every list says so."""
    polls = len(polls_of("fast_job"))
    waited = {str(seen("fast_job", cut)["fast"].waits) for cut in range(10, polls) if "fast" in seen("fast_job", cut)}
    assert "awaiting accounting" in waited
    assert seen("fast_job")["fast"].waits is None


def test_an_attempt_has_its_node_and_its_wait() -> None:
    """By accounting's own times: seconds from its submission to its allocation."""
    (attempt,) = seen("fast_job")["fast"].attempt_list
    assert attempt.hosts is not None
    assert attempt.waited_seconds is not None
    assert seen("fast_job")["fast"].execution_seconds is not None


@pytest.mark.parametrize("states", sorted(set(permutations(("succeeded", "failed", "succeeded")))))
def test_an_array_folds_up(states: tuple[str, ...]) -> None:
    """A single line counts its runs by state, the same in any order; unfolded, or in JSON, each has its own."""
    run = seen("fast_job")["fast"]
    tasks = [
        msgspec.structs.replace(run, run_id=f"r{number}", group="7", name="sweep", state=state)
        for number, state in enumerate(states)
    ]
    listed = click.unstyle(listing(tasks, 0, 200, waiting={}, machines={}))
    assert "sweep [3 runs]" in listed
    assert "1 failed · 2 succeeded" in listed
    assert len(listing(tasks, 0, 200, waiting={}, machines={}, unfold=True).splitlines()) == 4


def test_each_source_says_what_it_knows() -> None:
    """And what remains unknown: here the exit status of a job that was cancelled."""
    (run,) = (run for run in replay_polls(polls_of("cancel")).runs if run.name == "canrun")
    sentences = SlurmReading().testimony(run.views)
    assert sentences[-1].startswith("Unknown: the exit status")
    assert any(sentence.startswith("Accounting says CANCELLED: that is its record") for sentence in sentences)
    assert SlurmReading().testimony({}) == ()


def test_a_long_question_is_shortened() -> None:
    """The tool and the first jobs; the poll itself has the whole."""
    req = msgspec.json.encode(["env", "TZ=UTC", "STENO_CLUSTER=lab", "sacct", "-X", "-j", "1,2,30,4,5", "-o", "JobID"])
    assert SlurmReading().title("slurm:…", req) == "sacct 1, 2, 4 and 2 more"


def test_an_unread_wait_has_no_keys_of_its_own() -> None:
    """`never` and `remedy` are left out where they say nothing."""
    assert msgspec.to_builtins(Waits(why="so")) == {"why": "so"}


def test_a_task_that_no_source_lists_any_more_was_cancelled_while_it_waited() -> None:
    """Seen after `scancel 9_3`: its script, of which the sentence spoke, had never begun."""
    squeue = ("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%V|%j")
    sacct = ("sacct", "-X", "-D", "-P", "-n", "-j", "9", "-o", "JobID,State,ExitCode,Submit,Start,End,NodeList,JobName")
    polls = []
    for second, tasks in ((0, "2-3"), (10, "2")):
        polls.append(poll(second, squeue, f"9_[{tasks}%1]|PENDING|None|2026-11-28T12:00:01|x"))
        row = f"9_[{tasks}%1]|PENDING|0:0|2026-11-28T12:00:01|Unknown|Unknown|None assigned|x"
        polls.append(poll(second + 1, sacct, row))
    gone = next(run for run in replay_polls(list(enumerate(polls, 1))).runs if run.provider_id == "9_3")
    assert gone.facts is not None
    assert (gone.state.value, str(gone.facts.waits)) == (
        "finishing",
        "neither source lists it any more, as of a task that was cancelled while it waited",
    )


def test_a_suspended_job_is_not_said_to_work() -> None:
    """Seen: `It is running` of a job that `scontrol suspend` had paused. It keeps its nodes, so it is still running."""
    squeue = ("squeue", "-h", "-t", "all", "-o", "%i|%T|%r|%V|%S|%N|%j")
    sacct = ("sacct", "-X", "-D", "-P", "-n", "-j", "9", "-o", "JobID,State,ExitCode,Submit,Start,End,NodeList,JobName")
    times = "2026-11-28T12:00:01|2026-11-28T12:00:02"
    polls = [poll(1, squeue, f"9|SUSPENDED|None|{times}|n1|x"), poll(2, sacct, f"9|SUSPENDED|0:0|{times}|Unknown|n1|x")]
    (run,) = replay_polls(list(enumerate(polls, 1))).runs
    assert (run.state.value, why(run)) == (
        "running",
        "slurm calls it running, but it does not work: it is suspended, for another job or by the site.",
    )


RESERVATION = (
    "ReservationName=root_1 StartTime={} EndTime={} Duration=08:00:00 Nodes=node[1-4] NodeCnt=4 Features=(null) "
    "Flags=MAINT,SPEC_NODES,ALL_NODES TRES=cpu=64 Users=root Accounts=(null) State=INACTIVE\n"
)
NOW = parse_time("2026-11-20T12:00:00Z")


@pytest.mark.parametrize(
    ("listed", "why", "remedy"),
    [
        (
            RESERVATION.format("2026-11-20T15:00:00", "2026-11-20T23:00:00"),
            "down for maintenance until 2026-11-20 23:00Z",
            "ask for less time: it has to end before 2026-11-20 15:00Z",
        ),
        (
            RESERVATION.format("2026-11-20T11:00:00", "2026-11-20T23:00:00"),
            "down for maintenance until 2026-11-20 23:00Z",
            "wait, or use other nodes",
        ),
        (
            RESERVATION.format("2026-11-19T11:00:00", "2026-11-19T23:00:00").replace("MAINT", "FLEX"),
            "a node it needs is not available (Reserved for maintenance)",
            "ask for less time, or for other nodes",
        ),
        (
            "No reservations in the system\n",
            "a node it needs is not available (Reserved for maintenance)",
            "ask for less time, or for other nodes",
        ),
    ],
    ids=["ahead", "begun", "another", "none"],
)
def test_a_job_that_waits_for_maintenance_says_until_when(listed: str, why: str, remedy: str) -> None:
    waiting = waits("ReqNodeNotAvail, Reserved for maintenance", "17", maintenance(listed, NOW))
    assert (waiting.why, waiting.remedy, waiting.never) == (why, remedy, False)


@pytest.mark.parametrize(
    ("words", "row"),
    [
        (
            ("sacct", "-P", "-o", "JobID,State,ExitCode,Submit,Start,End,AllocTRES,NodeList,JobName"),
            "12|CANCELLED by 0|0:0|2026-11-25T20:00:14|2026-11-25T20:00:15|2026-11-25T20:00:15||None assigned|name",
        ),
        (
            ("env", "STENO_ACCOUNTING=none", "scontrol", "-o", "show", "job"),
            (
                "JobId=12 JobName=name UserId=u(0) JobState=CANCELLED Reason=Resources Restarts=0 ExitCode=0:0 "
                "SubmitTime=2026-11-25T20:00:14 StartTime=2026-11-25T20:00:15 EndTime=2026-11-25T20:00:15 "
                "NodeList=(null)"
            ),
        ),
    ],
    ids=["sacct", "scontrol"],
)
def test_a_job_cancelled_in_the_queue_never_started(words: tuple[str, ...], row: str) -> None:
    """Slurm 22.05 gives it the moment of the cancelling as its start, but no node: seen where the controller had just
    looked at it.
    """
    (facts,) = facts_of(words, row)
    (attempt,) = facts.jobs[0].attempts
    assert (facts.final, attempt.started_at, attempt.hosts) == (True, None, None)
    assert attempt.finished_at is not None
