"""Lists of tasks that Slurm cut, and jobs of several components."""

import itertools
import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.slurm_polls import poll

from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.providers.slurm.rows import expand
from steno.engine.providers.slurm.witnesses import together
from steno.engine.replay.replay import replay_polls
from steno.engine.replay.result import Replay
from steno.engine.state.facts import RunFacts
from steno.events.clock import format_time, parse_time

ENV = ("env", "TZ=UTC", "STENO_CLUSTER=lab")
SQUEUE = (*ENV, "squeue", "-h", "-t", "all", "--me", "-o", "%i|%T|%r|%P|%u|%V|%S|%N|%k|%j")
SACCT = (
    *ENV, 'STENO_RATES={"cpu":1,"usd":0.01}', "xargs", "-n1", "sacct", "-X", "-D", "-P", "-n", "-o",
    "JobID,State,ExitCode,DerivedExitCode,Submit,Start,End,AllocTRES,NodeList,Partition,User,Reason,Comment,JobName",
    "-j",
)  # fmt: skip
BEGAN = "2026-11-20T11:00:00|2026-11-20T11:00:05"


def replayed(*answers: tuple[tuple[str, ...], Sequence[str]]) -> Replay:
    """Polls one second apart, each with the lines of its answer."""
    polls = (poll(at, words, "".join(f"{line}\n" for line in lines)) for at, (words, lines) in enumerate(answers, 1))
    return replay_polls(list(enumerate(polls, 1)))


@pytest.mark.parametrize(
    ("listed", "tasks"),
    [
        ("21100189_[1,3-4,8,10,15,17,22,2", (1, 3, 4, 8, 10, 15, 17, 22)),
        ("99_[1,3,5,7,9,11,13,15,...]", (1, 3, 5, 7, 9, 11, 13, 15)),
        ("99_[1,43...%3]", (1,)),
        ("99_[0-", (0,)),
        ("99_[7,1-200:1", (7, 1)),
        ("99_[1,12", (1,)),
        ("99_[12", ()),
    ],
)
def test_of_a_cut_list_only_whole_numbers_are_tasks(listed: str, tasks: tuple[int, ...]) -> None:
    """`2` may be the beginning of 25; dots are not a step."""
    array = listed.partition("_")[0]
    assert expand(listed) == ([f"{array}_{task}" for task in tasks], True)


@given(
    tasks=st.lists(st.tuples(st.integers(0, 300), st.integers(0, 5), st.integers(1, 3)), min_size=1, max_size=30),
    width=st.integers(8, 60),
    limit=st.integers(0, 9),
)
def test_no_width_of_a_column_makes_up_a_task(tasks: list[tuple[int, int, int]], width: int, limit: int) -> None:
    parts = [f"{a}-{a + more * step}:{step}" if step > 1 and more else f"{a}-{a + more}" if more else f"{a}"
             for a, more, step in tasks]  # fmt: skip
    whole = f"12_[{','.join(parts)}{f'%{limit}' if limit else ''}]"
    known, cut = expand(whole)
    assert not cut
    assert set(known) == {f"12_{a + n * step}" for a, more, step in tasks for n in range(more + 1)}
    for column in (whole[:width], f"{whole[: max(4, width - 3)]}..."):
        listed_tasks = expand(column)[0]
        assert set(listed_tasks) <= set(known)


def test_a_task_that_a_cut_list_leaves_out_is_still_queued() -> None:
    """Accounting's list is cut later than squeue's: what only one of them shows is unknown to the other."""
    squeue = ["99_[1,3,5,7,9,11,13,15,...]|PENDING|Priority|defq|me|2026-11-20T11:00:00|N/A||(null)|array"]
    sacct = [
        "99_[1,3,5,7,9,11,13,15,17,19,...]|PENDING|0:0|0:0|2026-11-20T11:00:00|Unknown|Unknown|||defq|me|None||array"
    ]
    replay = replayed((SQUEUE, squeue), (SACCT, sacct), (SQUEUE, squeue), (SACCT, sacct), (SQUEUE, squeue))
    assert {run.provider_id: run.state.value for run in replay.runs} == {f"99_{n}": "queued" for n in range(1, 20, 2)}
    gone = replayed((SQUEUE, squeue), (SACCT, sacct), (SQUEUE, []))
    assert {run.state.value for run in gone.runs} == {"finishing"}


# -- het jobs ----------------------------------------------------------------------------------------------------------


def listed(part: int, state: str) -> str:
    return f"12+{part}|{state}|None|gpu|me|{BEGAN}|n{part}|(null)|het"


def accounted(part: int, state: str, code: str = "0:0") -> str:
    end = "Unknown" if state in ("PENDING", "RUNNING") else "2026-11-20T11:00:50"
    return f"12+{part}|{state}|{code}|0:0|{BEGAN}|{end}|cpu=1|n{part}|gpu|me|None||het"


def test_a_het_job_is_one_run_and_its_components_are_its_jobs() -> None:
    """It goes on while one of them does; its exit status is the first that is not zero."""
    going = [listed(0, "RUNNING"), listed(1, "COMPLETING")]
    half = [accounted(0, "RUNNING"), accounted(1, "COMPLETED")]
    over = [accounted(0, "COMPLETED"), accounted(1, "FAILED", "5:0"), accounted(2, "FAILED", "7:0")]
    (run,) = replayed((SQUEUE, going), (SACCT, half)).runs
    assert (run.provider_id, run.state.value) == ("12", "running")
    replay = replayed((SQUEUE, going), (SACCT, half), (SQUEUE, []), (SACCT, over))
    (run,) = replay.runs
    assert (run.state.value, str(run.reason), run.exit_status) == ("failed", "exit_nonzero", 5)
    assert [job.exit_status for job in run.reported.jobs] == [0, 5, 7]
    assert replay.anomalies == ()
    assert {vm.provider_id.partition("@")[0] for vm in replay.vms} == {"12+0", "12+1", "12+2"}
    assert {vm.runs for vm in replay.vms} == {(run.run_id,)}


def test_a_component_that_never_runs_keeps_all_of_a_het_job() -> None:
    """Seen: the first waits for resources, the second asks for more nodes than its partition has."""
    reasons = {0: "Resources", 1: "PartitionNodeLimit", 2: "None"}
    lines = [
        f"12+{part}|PENDING|{why}|gpu|me|{BEGAN.partition('|')[0]}|N/A||(null)|het" for part, why in reasons.items()
    ]
    (run,) = replayed((SQUEUE, lines)).runs
    assert run.facts is not None
    assert run.facts.waits is not None
    assert (run.facts.waits.never, run.reported.reason) == (True, "PartitionNodeLimit")


VERDICTS = {
    ("COMPLETED", "0:0"): ("succeeded", "exit_zero"),
    ("FAILED", "3:0"): ("failed", "exit_nonzero"),
    ("TIMEOUT", "0:0"): ("failed", "timed_out"),
    ("CANCELLED by 5", "0:0"): ("stopped", "stopped_by_user"),
}


WORST = [
    ("failed", "timed_out"),
    ("failed", "exit_nonzero"),
    ("stopped", "stopped_by_user"),
    ("succeeded", "exit_zero"),
]


@pytest.mark.parametrize("states", [*itertools.product(VERDICTS, repeat=2)])
def test_the_worst_component_decides(states: tuple[tuple[str, str], ...]) -> None:
    """A failure decides, by its cause before an exit status; else a stop; else all succeeded."""
    over = [accounted(part, *state) for part, state in enumerate(states)]
    (run,) = replayed((SQUEUE, [listed(0, "RUNNING")]), (SQUEUE, []), (SACCT, over)).runs
    ends = [VERDICTS[state] for state in states]
    expected = min(ends, key=WORST.index)
    assert (run.state.value, str(run.reason)) == expected


def test_no_component_ends_the_run_before_the_others() -> None:
    """Whatever order the sources have, and with a component that accounting does not show yet."""
    first = [accounted(0, "RUNNING"), accounted(1, "RUNNING")]
    for partly in ([accounted(0, "COMPLETED"), accounted(1, "RUNNING")], [accounted(0, "COMPLETED")]):
        (run,) = replayed((SQUEUE, [listed(0, "RUNNING")]), (SACCT, first), (SQUEUE, []), (SACCT, partly)).runs
        assert not run.terminal
    (run,) = replayed((SACCT, first), (SACCT, [accounted(0, "FAILED", "1:0"), accounted(1, "RUNNING")])).runs
    assert run.state.value == "running"


def test_a_het_job_that_is_requeued_has_an_attempt_more_in_each_component() -> None:
    later = format_time(parse_time("2026-11-20T11:01:00Z")).partition(".")[0]
    again = [accounted(part, "RUNNING").replace("T11:00:00", "T11:01:00") for part in (0, 1)]
    rows = [accounted(0, "REQUEUED"), accounted(1, "REQUEUED"), *again]
    queued = [line.replace("T11:00:00", "T11:01:00") for line in (listed(0, "RUNNING"), listed(1, "RUNNING"))]
    (run,) = replayed((SQUEUE, queued), (SACCT, rows)).runs
    assert later in queued[0]
    assert (run.state.value, run.attempts) == ("running", 2)


def test_json_names_the_components_too() -> None:
    """As squeue and sacct of 22.05 write them."""
    reading = SlurmReading()
    het = {"name": "het", "nodes": "n1", "partition": "gpu"}
    views: dict[str, RunFacts | None] = {}
    for words, job in (
        (("squeue", "--json"), {"job_state": "RUNNING", "het_job_id": 12, "het_job_offset": 1, "submit_time": 5}),
        (
            ("sacct", "--json", "-j", "12"),
            {"state": {"current": "RUNNING"}, "het": {"job_id": 12, "job_offset": 1}, "time": {"submission": 5}},
        ),
    ):
        req = json.dumps(words).encode()
        scope = reading.scope("slurm:x", req)
        assert scope is not None
        assert scope.witness is not None
        (facts,) = reading.runs(json.dumps({"jobs": [{"job_id": 13, **het, **job}]}).encode(), scope)
        assert facts.provider_id == "12"
        views[scope.witness] = facts
    (job,) = together(facts, views).jobs
    assert job.job_num == 1


# -- waiting tasks that are cancelled --------------------------------------------------------------------------------


def controls(task: str, state: str) -> str:
    return f"12{task}|{state}|None|gpu|me|{BEGAN}|{'' if '[' in task else 'n1'}|(null)|many"


def accounts(task: str, state: str) -> str:
    waits, goes_on = "[" in task, state in ("PENDING", "RUNNING")
    start = "Unknown" if state == "PENDING" else "None" if waits else "2026-11-20T11:00:05"
    end = "Unknown" if goes_on else "2026-11-20T11:00:50"
    has = "|None assigned" if waits else "cpu=1|n1"
    return f"12{task}|{state}|0:0|0:0|2026-11-20T11:00:00|{start}|{end}|{has}|gpu|me|None||many"


WAITED = [(SQUEUE, [controls("_[2-4]", "PENDING")]), (SACCT, [accounts("_[2-4]", "PENDING")])]
REST = (SQUEUE, [controls("_2", "RUNNING"), controls("", "CANCELLED")])
"""Task 2 had begun when those that waited were cancelled (`scancel -t PENDING`): what is left has the array's id."""
LIST = accounts("_[2-4]", "CANCELLED by 0")


def test_a_task_that_runs_is_not_over_because_the_list_it_was_in_is() -> None:
    """Seen live: accounting wrote the list at once, and 5 s later that task 2 had left it."""
    going = replayed(*WAITED, REST, (SACCT, [LIST]))
    assert {run.provider_id: run.state.value for run in going.runs} == {
        "12_2": "running", "12_3": "stopped", "12_4": "stopped",
    }  # fmt: skip
    late = [(SACCT, [LIST]), (SACCT, [accounts("_2", "COMPLETED"), LIST]), (SQUEUE, [])]
    answers: list[list[tuple[tuple[str, ...], list[str]]]] = [
        [], [REST], [(SQUEUE, [controls("_2", "COMPLETED")])], [(SQUEUE, [])]
    ]  # fmt: skip
    for meanwhile in answers:
        over = replayed(*WAITED, REST, (SACCT, [LIST]), *meanwhile, *late)
        (run,) = [run for run in over.runs if run.provider_id == "12_2"]
        assert (run.state.value, run.attempts, len(over.runs)) == ("succeeded", 1, 3)
        assert over.anomalies == ()


def test_the_list_ends_no_task_before_the_controller_is_heard_again() -> None:
    """Both are asked at once: the task may have begun between the two answers."""
    waiting = replayed(*WAITED, (SQUEUE, [controls("_[2-4]", "PENDING")]), (SACCT, [LIST]))
    assert {run.state.value for run in waiting.runs} == {"queued"}
    over = replayed(*WAITED, (SACCT, [LIST]), (SQUEUE, [controls("_[2-4]", "CANCELLED")]), (SACCT, [LIST]))
    assert {run.state.value for run in over.runs} == {"stopped"}


def test_a_row_of_its_own_adds_the_times_of_a_task_that_was_in_the_list() -> None:
    """Cancelled in the second in which it began: one attempt, one machine, and no verdict is taken back."""
    gone = (SQUEUE, [controls("_2", "CANCELLED"), controls("", "CANCELLED")])
    replay = replayed(*WAITED, gone, (SACCT, [LIST]), (SACCT, [accounts("_2", "CANCELLED by 0"), LIST]))
    (run,) = [run for run in replay.runs if run.provider_id == "12_2"]
    assert (run.state.value, run.attempts, run.vm_id is not None) == ("stopped", 1, True)
    assert (replay.anomalies, len(replay.runs)) == ((), 3)


@pytest.mark.parametrize("gone", [[controls("", "CANCELLED")], []])
def test_accounting_may_call_the_tasks_that_waited_by_the_array_s_id(gone: list[str]) -> None:
    """Seen live: the list had lost its numbers. The row is of every task without one of its own."""
    own, left = accounts("_2", "COMPLETED"), accounts("", "CANCELLED by 0").replace("cpu=1|n1", "|None assigned")
    left = left.replace("2026-11-20T11:00:05", "2026-11-20T11:00:50")
    first = replayed(*WAITED, (SQUEUE, [controls("_2", "RUNNING"), *gone]), (SACCT, [left]))
    assert {run.provider_id: run.state.value for run in first.runs} == {
        "12_2": "running", "12_3": "stopped", "12_4": "stopped",
    }  # fmt: skip
    for answer in ([own, left], [left, own]):
        over = replayed(*WAITED, (SQUEUE, gone), (SACCT, answer), (SQUEUE, []), (SACCT, answer))
        assert {run.provider_id: (run.state.value, run.attempts) for run in over.runs} == {
            "12_2": ("succeeded", 1), "12_3": ("stopped", 1), "12_4": ("stopped", 1),
        }  # fmt: skip
        assert over.anomalies == ()


def test_a_later_job_with_an_array_s_id_is_a_run_of_its_own() -> None:
    """Job ids come again: another time of submission is another job."""
    later = accounts("", "CANCELLED by 0").replace("11:00:00", "12:00:00").replace("cpu=1|n1", "|None assigned")
    replay = replayed(*WAITED, (SQUEUE, []), (SACCT, [later]))
    assert {run.provider_id: run.state.value for run in replay.runs} == {
        "12_2": "finishing", "12_3": "finishing", "12_4": "finishing", "12": "stopped",
    }  # fmt: skip


def test_what_is_left_of_an_array_is_no_run_after_its_tasks_have_ended() -> None:
    ended = [(SACCT, [LIST]), (SQUEUE, [controls("", "CANCELLED")])]
    replay = replayed(*WAITED, *ended, *ended)
    assert {run.provider_id: run.state.value for run in replay.runs} == dict.fromkeys(
        ("12_2", "12_3", "12_4"), "stopped"
    )
    alone = replayed((SQUEUE, [controls("", "CANCELLED")]))  # a job that ended before it was seen
    assert [(run.provider_id, run.state.value) for run in alone.runs] == [("12", "finishing")]
