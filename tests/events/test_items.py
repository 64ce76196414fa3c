"""Items of an answer that is an object around a list, or a text: cut, stored, given back, and read as many runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from engine.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from engine.fold.change import Anomaly
from engine.fold.record_fold import RecordFold
from engine.fold.tick import PollReader
from engine.fold.world import World
from engine.providers.reading import Listing, Reading, Readings, Scope
from engine.states import Reason, State
from events.clock import SECOND, SystemClock
from events.poll import Poll
from events.shape.cut import joined_lines, split
from events.shape.shape import LINES, BodyShape
from events.store.record import Record

QUEUE = BodyShape(kind="run", items=LINES, identity="0")
JOBS = BodyShape(kind="run", items="jobs[]", identity="job_id", secret=("environment",))
STATES = {"PENDING": State.QUEUED, "RUNNING": State.RUNNING, "COMPLETING": State.FINISHING}


class SqueueReading(Reading):
    """`squeue -h -o "%i|%T"` as text and `squeue --json`: a row `12_[0-2]|PENDING` is three runs."""

    def scope(self, path: str, _req: bytes) -> Scope | None:
        if not path.startswith("slurm:"):
            return None
        return Scope(provider="slurm", source="slurm/c", listing=Listing.RUNS, watched=True)

    def shape(self, path: str, _req: bytes) -> BodyShape:
        return JOBS if "--json" in path else QUEUE

    def answered(
        self, _path: str, _req: bytes, status: int | None, body: bytes | None, error: str | None = None
    ) -> bool:
        return status == 0 and body is not None

    def says_not_exists(self, _status: int | None, _body: bytes | None) -> bool:
        return False

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        row = json.loads(item)
        name, word = (str(row["job_id"]), row["job_state"]) if isinstance(row, dict) else row.split("|")
        job, _, tasks = name.partition("_")
        if not tasks.startswith("["):
            return (_facts(name, word),)
        first, _, last = tasks.strip("[]").partition("-")
        return tuple(_facts(f"{job}_{number}", word) for number in range(int(first), int(last) + 1))

    def vm(self, item: bytes, scope: Scope) -> VmFacts:
        raise ValueError(item)


def _facts(provider_id: str, word: str) -> RunFacts:
    final = word not in STATES
    attempt = AttemptFacts(status=word, state=STATES.get(word), over=final, exit_status=0 if final else None)
    return RunFacts(
        provider_id=provider_id,
        status=word,
        state=STATES.get(word),
        final=final,
        cause=Reason.EXIT_ZERO if final else None,
        jobs=(JobFacts(attempts=(attempt,)),),
    )


class AccountingReading(SqueueReading):
    """`slurm:all`: the lines of `squeue` and of `sacct -D` in one text, each behind the name of its source:
    `sacct|12|PREEMPTED|0:0|100`, `squeue|12|PENDING||0`; the last column is the time of its submission.
    """

    joins_items = True

    def scope(self, path: str, _req: bytes) -> Scope | None:
        return super().scope(path, _req) if path == "slurm:all" else None

    def shape(self, path: str, _req: bytes) -> BodyShape:
        return BodyShape(kind="run", items=LINES, identity="1")

    def answered(
        self, _path: str, _req: bytes, status: int | None, body: bytes | None, error: str | None = None
    ) -> bool:
        return status == 0 and body is not None

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        source, job, word, code, at = json.loads(item).split("|")
        if word == "unavailable":
            return ()  # a source that could not be asked says nothing of any run
        exit_status = int(code.partition(":")[0]) if code else None
        cause = {"COMPLETED": Reason.EXIT_ZERO, "PREEMPTED": Reason.INTERRUPTED}.get(word, Reason.EXIT_NONZERO)
        over = source == "sacct" and word not in STATES
        attempt = AttemptFacts(
            status=word,
            state=STATES.get(word),
            over=over,
            cause=cause if over and word != "COMPLETED" else None,
            exit_status=exit_status if over and word != "PREEMPTED" else None,
            submitted_at=int(at),
        )
        final = {"final": over, "cause": cause if over else None, "failed": over and word != "COMPLETED"}
        jobs = (JobFacts(attempts=(attempt,)),)
        return (RunFacts(provider_id=job, status=word, state=STATES.get(word), jobs=jobs, **final),)

    def costs(self, item: bytes) -> Mapping[str, int | None]:
        source, job, *_ = json.loads(item).split("|")
        return {job: 5} if source == "sacct" else {job: 0}

    def joined(self, rows: Sequence[RunFacts]) -> RunFacts:
        """Attempts in the order of their submission; a controller that still lists the job takes the end back."""
        shown = {one.submitted_at: one for row in rows for job in row.jobs for one in job.attempts}
        attempts = tuple(replace(shown[at], num=num) for num, at in enumerate(sorted(shown)))
        newest = max(rows, key=lambda row: row.jobs[0].newest.submitted_at)
        listed = next((row for row in rows if not row.final and row.state is State.QUEUED), None)
        requeued = listed is not None and len(attempts) > 1
        jobs = (JobFacts(attempts=attempts),)
        return replace(listed or newest, jobs=jobs, requeued=requeued)


READINGS = Readings(("accounting", "slurm"), {"accounting": AccountingReading(), "slurm": SqueueReading()}.get)


def squeue(at: int, out: Any, path: str = "slurm:squeue -h") -> Poll:
    """One poll, answered after a tenth of a second."""
    return Poll(
        source="slurm/c",
        path=path,
        started_at=at * SECOND,
        observed_at=at * SECOND + SECOND // 10,
        status=0,
        body=json.dumps(out).encode(),
        text=isinstance(out, str),
        answered=True,
    )


TEXTS = [
    squeue(0, "12_[0-2]|PENDING\n13|RUNNING\n"),
    squeue(5, "12_[1-2]|PENDING\n12_0|RUNNING\n13|COMPLETED\n"),
    squeue(10, "12_2|PENDING\n12_1|RUNNING\n12_0|COMPLETED\n"),
]
OBJECTS = [
    squeue(
        at,
        {
            "meta": {"slurm": "22.05", "token": "s3cret"},
            "jobs": [{"job_id": name, "job_state": word, "environment": "HOME=/h"} for name, word in rows],
            "errors": [],
        },
        "slurm:squeue --json",
    )
    for at, rows in ((0, [(12, "PENDING"), (13, "RUNNING")]), (5, [(12, "RUNNING"), (13, "COMPLETED")]), (10, []))
]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.open(tmp_path / "r.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock())


@pytest.mark.parametrize("polls", [TEXTS, OBJECTS])
def test_an_answer_comes_back_and_its_items_are_stored_once(record: Record, polls: list[Poll]) -> None:
    """Text byte for byte; an object but for its secrets."""
    positions = [one.position for one in record.append_polls(polls)]
    for position, poll in zip(positions, polls, strict=True):
        body = record.poll(position).body
        assert body is not None
        assert poll.body is not None
        if poll.text:
            assert body == poll.body
        else:
            assert b"s3cret" not in body
            assert b"HOME" not in body
            assert [job["job_state"] for job in json.loads(body)["jobs"]] == [
                job["job_state"] for job in json.loads(poll.body)["jobs"]
            ]
    names = {record.stream_name(number).partition("/")[0] for number in range(1, len(record.streams()) + 1)}
    assert names == {"source", "run"}


@pytest.mark.parametrize("polls", [TEXTS, OBJECTS])
def test_the_fold_of_the_record_is_that_of_the_polls(record: Record, polls: list[Poll]) -> None:
    """An array is as many runs as it has tasks, whichever way it is read."""
    results = record.append_polls(polls)
    folded, read, reader = World(READINGS), World(READINGS), PollReader(READINGS)
    RecordFold(record, folded).run()
    for result, poll in zip(results, polls, strict=True):
        read.apply(reader.read(result.position, poll))
    assert {run.provider_id: run.state for run in folded.state.runs.values()} == {
        run.provider_id: run.state for run in read.state.runs.values()
    }
    states = {run.provider_id: run.state for run in folded.state.runs.values()}
    if polls is TEXTS:
        assert states == {
            "12_0": State.SUCCEEDED,
            "12_1": State.RUNNING,
            "12_2": State.QUEUED,
            "13": State.SUCCEEDED,
        }
    else:
        assert states == {"12": State.RUNNING, "13": State.SUCCEEDED}


@given(st.text(max_size=40))
def test_any_text_is_its_lines(text: str) -> None:
    """Whatever its characters and escapes are."""
    body = json.dumps(text).encode()
    found = split(body, QUEUE)
    assert found is not None
    assert joined_lines(found.frame, found.items) == body
    lines = text.split("\n")
    assert [json.loads(item) for item in found.items] == (lines[:-1] if lines[-1] == "" else lines)


@pytest.mark.parametrize("body", [b"[]", b"7", b'{"jobs": 1}', b'{"rows": []}', b'{"jobs":[1],"jobs":[2]}'])
def test_an_answer_of_another_form_has_no_items(body: bytes) -> None:
    """It is stored whole."""
    assert split(body, JOBS) is None


ATTEMPTS = [
    squeue(0, "squeue|12|PENDING||10\nsacct|-|unavailable||0\n", "slurm:all"),
    squeue(5, "squeue|12|RUNNING||10\n", "slurm:all"),
    squeue(10, "squeue|12|PENDING||20\nsacct|12|PREEMPTED|0:0|10\n", "slurm:all"),
    squeue(15, "sacct|12|PREEMPTED|0:0|10\nsacct|12|COMPLETED|0:0|20\n", "slurm:all"),
    squeue(20, "squeue|-|unavailable||0\nsacct|-|unavailable||0\n", "slurm:all"),
]
"""A job that is preempted, requeued and succeeds: never more than one source knows all of it."""


@pytest.mark.parametrize(
    ("number", "state", "attempts"),
    [
        (1, State.QUEUED, 1),
        (2, State.RUNNING, 1),
        (3, State.QUEUED, 2),
        (4, State.SUCCEEDED, 2),
        (5, State.SUCCEEDED, 2),
    ],
)
def test_several_lines_of_one_answer_are_one_run(record: Record, number: int, state: State, attempts: int) -> None:
    """The attempts that accounting lists, and what each of two sources knows; silence is no evidence."""
    polls = ATTEMPTS[:number]
    results = record.append_polls(polls)
    assert [record.poll(one.position).body for one in results] == [poll.body for poll in polls]
    folded, read, reader = World(READINGS), World(READINGS), PollReader(READINGS)
    RecordFold(record, folded).run()
    for result, poll in zip(results, polls, strict=True):
        changes = read.apply(reader.read(result.position, poll))
        assert not [change for change in changes if isinstance(change, Anomaly)]
    for world in (folded, read):
        (run,) = [one for one in world.state.runs.values() if one.provider_id == "12"]
        assert (run.state, run.attempts) == (state, attempts)
    assert reader.read(1, ATTEMPTS[3]).runs[0].cost == 10
