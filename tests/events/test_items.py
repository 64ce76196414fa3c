"""Items of an answer that is a text: cut, stored, given back, and read as many runs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.fold.record_fold import RecordFold
from steno.engine.state.changes import Anomaly
from steno.engine.state.facts import AttemptFacts, JobFacts, RunFacts, VmFacts
from steno.engine.state.reading import Listing, Reading, Readings, Scope
from steno.engine.state.states import Reason, State
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll
from steno.events.shape.cut import joined_lines, split
from steno.events.shape.shape import LINES, BodyShape
from steno.events.store.record import Record

QUEUE = BodyShape(kind="run", items=LINES, identity="0")
STATES = {"PENDING": State.QUEUED, "RUNNING": State.RUNNING, "COMPLETING": State.FINISHING}


class SqueueReading(Reading):
    """`squeue -h -o "%i|%T"`: a row `12_[0-2]|PENDING` is three runs."""

    def scope(self, path: str, _req: bytes) -> Scope | None:
        if not path.startswith("slurm:"):
            return None
        return Scope(provider="slurm", source="slurm/c", listing=Listing.RUNS, watched=True)

    def shape(self, path: str, _req: bytes) -> BodyShape:
        return QUEUE

    def answered(
        self, _path: str, _req: bytes, status: int | None, body: bytes | None, error: str | None = None
    ) -> bool:
        return status == 0 and body is not None

    def says_not_exists(self, _status: int | None, _body: bytes | None) -> bool:
        return False

    def runs(self, item: bytes, scope: Scope) -> tuple[RunFacts, ...]:
        name, word = json.loads(item).split("|")
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
        by_submission = {attempt.submitted_at: attempt for row in rows for job in row.jobs for attempt in job.attempts}
        attempts = tuple(replace(by_submission[at], num=num) for num, at in enumerate(sorted(by_submission)))
        newest = max(rows, key=lambda row: row.jobs[0].newest.submitted_at)
        listed = next((row for row in rows if not row.final and row.state is State.QUEUED), None)
        requeued = listed is not None and len(attempts) > 1
        jobs = (JobFacts(attempts=attempts),)
        return replace(listed or newest, jobs=jobs, requeued=requeued)


READINGS = Readings(("accounting", "slurm"), {"accounting": AccountingReading(), "slurm": SqueueReading()}.get)


def squeue(at: int, out: str, path: str = "slurm:squeue -h") -> Poll:
    """A poll, answered after a tenth of a second."""
    return Poll(
        source="slurm/c",
        path=path,
        started_at=at * SECOND,
        observed_at=at * SECOND + SECOND // 10,
        status=0,
        body=json.dumps(out).encode(),
        text=True,
        answered=True,
    )


TEXTS = [
    squeue(0, "12_[0-2]|PENDING\n13|RUNNING\n"),
    squeue(5, "12_[1-2]|PENDING\n12_0|RUNNING\n13|COMPLETED\n"),
    squeue(10, "12_2|PENDING\n12_1|RUNNING\n12_0|COMPLETED\n"),
]


@pytest.fixture
def record(tmp_path: Path) -> Record:
    return Record.open(tmp_path / "r.db", write=True, create=True, shapes=READINGS.shape, clock=SystemClock())


def test_an_answer_comes_back_and_its_items_are_stored_once(record: Record) -> None:
    """Byte for byte."""
    results = record.append_polls(TEXTS)
    assert [record.poll(result.position).body for result in results] == [poll.body for poll in TEXTS]
    names = {record.stream_name(number).partition("/")[0] for number in range(1, len(record.streams()) + 1)}
    assert names == {"source", "run"}


def test_the_fold_of_the_record_is_that_of_the_polls(record: Record) -> None:
    """An array is as many runs as it has tasks, whichever way it is read."""
    results = record.append_polls(TEXTS)
    folded, read, reader = Fold(READINGS), Fold(READINGS), PollReader(READINGS)
    RecordFold(record, folded).run()
    for result, poll in zip(results, TEXTS, strict=True):
        read.apply(reader.read(result.position, poll))
    right = {"12_0": State.SUCCEEDED, "12_1": State.RUNNING, "12_2": State.QUEUED, "13": State.SUCCEEDED}
    for world in (folded, read):
        assert {run.provider_id: run.state for run in world.state.runs.all()} == right


@given(st.text(max_size=40))
def test_any_text_is_its_lines(text: str) -> None:
    """Whatever its characters and escapes are."""
    body = json.dumps(text).encode()
    parts = split(body, QUEUE)
    assert parts is not None
    assert joined_lines(parts.frame, parts.items) == body
    lines = text.split("\n")
    assert [json.loads(item) for item in parts.items] == (lines[:-1] if lines[-1] == "" else lines)


@pytest.mark.parametrize("body", [b"{}", b"7", b'{"jobs": 1}'])
def test_an_answer_of_another_form_has_no_items(body: bytes) -> None:
    """It is stored whole."""
    assert split(body, BodyShape(kind="run", items="[]")) is None
    assert split(body, QUEUE) is None


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
    """The attempts that accounting lists, and what each of two sources knows; silence is not evidence."""
    polls = ATTEMPTS[:number]
    results = record.append_polls(polls)
    assert [record.poll(appended.position).body for appended in results] == [poll.body for poll in polls]
    folded, read, reader = Fold(READINGS), Fold(READINGS), PollReader(READINGS)
    RecordFold(record, folded).run()
    for result, poll in zip(results, polls, strict=True):
        changes = read.apply(reader.read(result.position, poll))
        assert not [change for change in changes if isinstance(change, Anomaly)]
    for world in (folded, read):
        (run,) = [run for run in world.state.runs.all() if run.provider_id == "12"]
        assert (run.state, run.attempts) == (state, attempts)
    assert reader.read(1, ATTEMPTS[3]).runs[0].cost == 10
