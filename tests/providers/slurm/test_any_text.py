"""Whatever a cluster prints: nothing but ValueError comes out of the reading, and nothing unknown ends a run."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno.engine.providers.slurm.kind import KIND
from steno.engine.providers.slurm.query import PREFIX, question
from steno.engine.providers.slurm.reading import SlurmReading
from steno.engine.providers.slurm.rows import rows
from steno.engine.providers.slurm.words import ENDED, LIVE, exit_status, state_word, waits
from steno.engine.state.facts import RunFacts

READING = SlurmReading()
SQUEUE = ("squeue", "-h", "-t", "all", "--me", "-o", "%i|%T|%r|%P|%u|%V|%S|%N|%k|%j")
SACCT = (
    "sacct", "-X", "-D", "-P", "-n", "-j", "1", "-o",
    "JobID,State,ExitCode,Submit,Start,End,AllocTRES,NodeList,JobName",
)  # fmt: skip
COMMANDS = {
    "squeue": SQUEUE,
    "sacct": SACCT,
    "scontrol": ("env", "STENO_ACCOUNTING=none", "scontrol", "-o", "show", "job"),
    "ends": ("env", "STENO_ACCOUNTING=none", "grep", "-rHs", "", "/home/u/steno/ends"),
    "squeue json": ("squeue", "--json"),
    "sacct json": ("sacct", "--json", "-j", "1"),
}
LINES = {
    "squeue": "12|{}|None|gpu|u|2026-11-20T13:49:08|N/A||steno:x|name",
    "sacct": "12|{}|0:0|2026-11-20T13:49:08|2026-11-20T13:49:09|Unknown|cpu=1,node=1|node1|name",
    "scontrol": "JobId=12 JobName=name UserId=u(0) JobState={} Reason=None Restarts=0 ExitCode=0:0 NodeList=node1",
}


def facts(command: tuple[str, ...], text: str) -> tuple[RunFacts, ...]:
    """The runs that the reading finds in an item; () if the item is unreadable."""
    req = msgspec.json.encode(list(command))
    scope = READING.scope(PREFIX + " ".join(command), req)
    assert scope is not None
    item = msgspec.json.encode(text)
    READING.answered(PREFIX, req, 0, item)
    try:
        READING.machines(item, scope)
        return READING.runs(item, scope)
    except ValueError:
        return ()


SOUP = st.text(alphabet=st.sampled_from('|=:,_[]%+.-0123456789 \n\x00\x1cJobIdState{}"é'), max_size=80)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
KEYS = ("job_id", "job_state", "state", "time", "array", "array_job_id", "array_task_id", "array_task_string", "tres",
        "exit_code", "nodes", "comment", "submit_time", "restart_cnt")  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
@given(text=st.text(max_size=120) | SOUP)
def test_any_text_is_read_or_refused(command: str, text: str) -> None:
    """Never another exception."""
    facts(COMMANDS[command], text)


@pytest.mark.parametrize("command", ["squeue json", "sacct json"])
@given(job=st.dictionaries(st.sampled_from(KEYS), VALUES))
def test_any_json_is_read_or_refused(command: str, job: dict[str, Any]) -> None:
    facts(COMMANDS[command], json.dumps({"jobs": [{"job_id": 7, **job}]}))


@pytest.mark.parametrize("command", LINES)
@given(word=st.text(alphabet=st.characters(categories=["Lu", "Ll", "Nd"], include_characters="_+ "), min_size=1))
def test_an_unknown_state_ends_nothing(command: str, word: str) -> None:
    """It is drift, shown as it came."""
    if state_word(word) in ENDED or state_word(word) in LIVE:
        return
    for run in facts(COMMANDS[command], LINES[command].format(word)):
        assert not run.final
        assert not run.failed
        assert run.drift


@pytest.mark.parametrize("command", LINES)
@given(state=st.sampled_from(sorted({*ENDED, *LIVE})), cut=st.integers(0, 120))
def test_a_truncated_line_ends_nothing_that_the_whole_does_not(command: str, state: str, cut: int) -> None:
    """A state cut in the middle is not another state, and a lost exit status is not 0."""
    whole = LINES[command].format(state)
    full = facts(COMMANDS[command], whole)
    for run in facts(COMMANDS[command], whole[:cut]):
        assert not run.final or (full[0].final and run.status == state)


@given(text=st.text(max_size=40) | SOUP)
def test_words_take_any_text(text: str) -> None:
    for state in ("COMPLETED", "FAILED", "CANCELLED", text):
        status = exit_status(state, text)
        assert status is None or status >= 0
    assert isinstance(waits(text).why, str)
    assert waits(text).never in (True, False)


def number(value: int) -> dict[str, Any]:
    """As 23.11 and later write it."""
    return {"set": True, "infinite": False, "number": value}


SUBMITTED, STARTED, ENDED_AT = 1_795_182_548, 1_795_182_549, 1_795_182_560
VERSIONS: dict[str, dict[str, Any]] = {
    "22.05": {"flags": False, "list": False},
    "23.02": {"flags": False, "list": False},
    "23.11": {"flags": True, "list": True},
    "24.05": {"flags": True, "list": True},
    "25.05": {"flags": True, "list": True},
}


def answer(version: str, tool: str, state: str, code: int) -> str:
    """A job that ran for 11 s, as that version's `--json` has it: numbers and states in its own form."""
    form = VERSIONS[version]
    count = number if form["flags"] else int
    word: Any = [state] if form["list"] else state
    none = {"set": False, "infinite": False, "number": 0} if form["flags"] else None
    ended = {"status": ["ERROR"] if form["list"] else "ERROR", "return_code": count(code)}
    if tool == "squeue":
        job = {
            "job_id": 12, "name": "name", "user_name": "u", "partition": "gpu", "comment": "steno:x", "nodes": "node1",
            "job_state": word, "state_reason": "None", "submit_time": count(SUBMITTED), "start_time": count(STARTED),
            "end_time": count(ENDED_AT), "array_job_id": count(0), "array_task_string": "",
            "array_task_id": none,
            "tres_alloc_str": "cpu=1,node=1", "restart_cnt": 0, "exit_code": ended,
        }  # fmt: skip
    else:
        job = {
            "job_id": 12, "name": "name", "user": "u", "partition": "gpu", "nodes": "node1",
            "comment": {"administrator": "", "job": "steno:x", "system": ""},
            "state": {"current": word, "reason": "None"}, "exit_code": ended, "derived_exit_code": ended,
            "time": {"submission": SUBMITTED, "start": STARTED, "end": ENDED_AT, "elapsed": 11},
            "array": {"job_id": 0, "task_id": none},
            "tres": {"allocated": [{"type": "cpu", "name": "", "id": 1, "count": 1},
                                   {"type": "node", "name": "", "id": 4, "count": 1}]},
        }  # fmt: skip
    return json.dumps({"meta": {"Slurm": {"release": version}}, "jobs": [job], "errors": [], "warnings": []})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("state", "code"), [("COMPLETED", 0), ("TIMEOUT", 0), ("CANCELLED", 0), ("FAILED", 3)])
def test_json_of_every_version_is_read_as_its_text(version: str, state: str, code: int) -> None:
    """The same facts of the same job, from the controller and from accounting."""
    stamp = "2026-11-20T13:49:08", "2026-11-20T13:49:09", "2026-11-20T13:49:20"
    line = f"12|{state}|None|gpu|u|{stamp[0]}|{stamp[1]}|node1|steno:x|name"
    columns = "JobID,State,ExitCode,Submit,Start,End,AllocTRES,NodeList,Partition,User,Reason,Comment,JobName"
    ended = "CANCELLED by 7" if state == "CANCELLED" else state  # JSON does not say by whom
    row = f"12|{ended}|{code}:0|{stamp[0]}|{stamp[1]}|{stamp[2]}|cpu=1,node=1|node1|gpu|u|None|steno:x|name"
    assert facts(COMMANDS["squeue json"], answer(version, "squeue", state, code)) == facts(SQUEUE, line)
    text = facts((*SACCT[:-1], columns), row)
    if version == "22.05" and state == "FAILED":
        code = 0  # its JSON gives a job that exited 1 the code 0, so that it says of no failed job how it ended
        (run,) = facts(COMMANDS["sacct json"], answer(version, "sacct", state, code))
        assert not run.final
        return
    assert facts(COMMANDS["sacct json"], answer(version, "sacct", state, code)) == text


def test_a_line_is_parsed_once_and_always_alike() -> None:
    """The provider and every reader of polls share the rows, however many came between: a line can have thousands."""
    reading, req = KIND.reading(), msgspec.json.encode(list(SQUEUE))
    line = LINES["squeue"].format("RUNNING")
    arrays = [line.replace("12|", f"{number}_[0-4999]|", 1) for number in range(3)]
    for text in (line, *arrays, line, arrays[2], *arrays, line):
        listed = reading.rows(req, text)
        assert listed == tuple(rows(question(SQUEUE), text))
        assert KIND.reading().rows(req, text) is listed
