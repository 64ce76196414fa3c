"""The bill of an allocation that ended while one of Slurm's sources was silent."""

import pytest
from stenotest.slurm_polls import START, clock, poll

from steno.engine.replay.replay import replay_polls
from steno.events.clock import SECOND

DOLLAR = 1_000_000
"""Micro-dollars; the job costs one a second."""
ENV = ("env", "STENO_CLUSTER=lab", 'STENO_RATES={"a6000": 3600, "usd": 1}')
SACCT = (
    *ENV, "sacct", "-X", "-D", "-P", "-n", "-j", "7", "-o",
    "JobID,State,ExitCode,Submit,Start,End,NodeList,AllocTRES",
)  # fmt: skip
SQUEUE = (*ENV, "squeue", "-h", "-o", "%i|%T|%r|%V|%N")
REPORTS = (*ENV, "find", "/f/reports", "(", "-name", "7", ")", "-exec", "grep", "-H", "", "{}", "+")
HEARD_AT, TOLD_AT = 5.1, 54
"""When a source is last heard before the outage, and when accounting says that the job ended."""


def accounted(state: str, end: str) -> str:
    return f"7|{state}|0:0|{clock(0)}|{clock(0)}|{end}|node1|cpu=1,gres/gpu:a6000=1\n"


@pytest.mark.parametrize("back", [50, 60], ids=["the controller answers first", "accounting answers first"])
@pytest.mark.parametrize("silent", [True, False])
def test_an_end_in_an_outage_of_the_controller_is_suspect(back: int, silent: bool) -> None:
    """The bill goes to accounting's end; its low bound to where the controller was last heard."""
    queued = f"7|RUNNING|None|{clock(0)}|node1\n"
    polls = []
    for second in range(0, 70, 2):
        unheard = silent and 6 <= second < back
        polls.append(poll(second, SQUEUE, None if unheard else queued if second < TOLD_AT else ""))
        running = second < TOLD_AT + 2
        polls.append(
            poll(
                second + 1,
                SACCT,
                accounted("RUNNING", "Unknown") if running else accounted("COMPLETED", clock(TOLD_AT)),
            )
        )
    replay = replay_polls(list(enumerate(polls, 1)))
    (run,) = replay.runs
    assert (run.state.value, run.exit_status) == ("succeeded", 0)
    (bill,) = replay.bills.values()
    assert (bill.cost, bill.high) == (TOLD_AT * DOLLAR, TOLD_AT * DOLLAR)
    assert bill.low == round((HEARD_AT if silent else TOLD_AT) * DOLLAR)


@pytest.mark.parametrize("tool", ["sacct", "squeue"])
def test_an_outage_of_one_source_is_one_gap(tool: str) -> None:
    """Seen: 36 s without accounting were 15 gaps of 2 s, for the controller answered between them."""
    queued = f"7|RUNNING|None|{clock(0)}|node1\n"
    polls = []
    for second in range(0, 70, 2):
        silent = 6 <= second < 50
        polls.append(poll(second, SQUEUE, None if silent and tool == "squeue" else queued))
        running = accounted("RUNNING", "Unknown")
        polls.append(poll(second + 1, SACCT, None if silent and tool == "sacct" else running))
    (whole,) = replay_polls(list(enumerate(polls, 1))).blind
    heard, back = (5, 50) if tool == "squeue" else (6, 51)
    assert (whole.since, whole.until) == tuple(START + second * SECOND + SECOND // 10 for second in (heard, back))
    (now,) = replay_polls(list(enumerate(polls[:30], 1))).blind
    assert (now.since, now.until) == (whole.since, None)


def test_a_report_that_cannot_be_read_makes_no_bill_suspect() -> None:
    """It is asked for only until it is there, so nobody would ever hear that it can be read again."""
    queued = f"7|RUNNING|None|{clock(0)}|node1\n"
    polls = [
        poll(0, SQUEUE, queued),
        poll(1, SACCT, accounted("RUNNING", "Unknown")),
        poll(2, REPORTS, None),
        poll(60, SQUEUE, ""),
        poll(61, SACCT, accounted("COMPLETED", clock(TOLD_AT))),
    ]
    (bill,) = replay_polls(list(enumerate(polls, 1))).bills.values()
    assert bill.low == bill.cost == TOLD_AT * DOLLAR
