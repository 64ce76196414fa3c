"""The tables say what the record and the read models say: now, at any moment, and on both stores."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steno.cli.wiring.files import trace_reading
from steno.engine.wire import money
from steno.events.clock import format_time
from steno.events.errors import StenoError
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.traces.trace import import_trace
from steno.projections.frames import TABLES, costs, frame, intervals, machines, polls, runs, transitions
from steno.projections.frames.files import write_csv, write_parquet
from steno.projections.frames.source import opened
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.view import View

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]
TRACES = Path(__file__).parents[1] / "traces"
RECORDINGS = ("dstack-0.22.5/warm_reuse", "dstack-0.22.5/retry_success", "slurm-22.05/checkpoint")


def rows_of(name: str, record: Record | Path | str, at: int | str | None = None) -> list[dict[str, Any]]:
    return frame(name, record, at).to_arrow().to_pylist()


@pytest.fixture(scope="module", params=RECORDINGS)
def record(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, recording: Polls, recorded: Recorded
) -> Iterator[Record]:
    """No test writes to it."""
    with recorded(tmp_path_factory.mktemp("frames") / "record.db", recording(request.param)) as opened_record:
        yield opened_record


def test_runs_and_machines_are_the_public_objects(record: Record) -> None:
    """Same ids, words, times and sums; money without a rounding."""
    with caught_up(record) as store:
        view = View(store)
        shown_runs, shown_vms = view.runs(), view.vms()
    assert shown_runs
    for row, run in zip(rows_of("runs", record), shown_runs, strict=True):
        for name in ("run_id", "name", "provider_id", "state", "reason", "exit_status", "rule", "vm_id", "start"):
            assert row[name] == getattr(run, name)
        for name in ("submitted_at", "started_at", "finished_at"):
            assert iso(row[name]) == getattr(run, name)
        assert tuple(row["evidence"]) == run.evidence
        assert money(row["cost_microusd"]) == run.cost_usd
        assert money(row["provider_cost_microusd"]) == run.provider_cost_usd
        assert row["execution_seconds"] == run.execution_seconds
    for row, vm in zip(rows_of("machines", record), shown_vms, strict=True):
        assert (row["vm_id"], row["state"], tuple(row["runs"])) == (vm.vm_id, vm.state, vm.runs)
        assert money(row["cost_microusd"]) == vm.cost_usd
        assert money(row["price_microusd"]) == vm.price_usd_per_hour
    steps = [(run.run_id, step.position, step.origin, step.target) for run in shown_runs for step in run.transitions]
    rows = rows_of("transitions", record)
    assert [(row["run_id"], row["position"], row["from_state"], row["to_state"]) for row in rows] == steps


def iso(moment: Any) -> str | None:
    return None if moment is None else moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def test_the_sums_of_a_machine_are_its_bill(record: Record) -> None:
    """By phase and by purpose; and what a run pays is its cost."""
    bills = {row["vm_id"]: row["cost_microusd"] for row in rows_of("machines", record)}
    sums = {name: defaultdict[str, int](int) for name in ("costs", "intervals", "paid")}
    for name in ("costs", "intervals"):
        for row in rows_of(name, record):
            sums[name][row["vm_id"]] += row["cost_microusd"]
            if name == "costs" and row["run_id"] is not None:
                sums["paid"][row["run_id"]] += row["cost_microusd"]
    assert sums["costs"] == sums["intervals"] == {vm: bill for vm, bill in bills.items() if vm in sums["costs"]}
    assert all(not bill for vm, bill in bills.items() if vm not in sums["costs"])
    for row in rows_of("runs", record):
        assert sums["paid"].get(row["run_id"], 0) == (row["cost_microusd"] or 0)


def test_polls_and_events_are_the_whole_record(record: Record) -> None:
    """Every position once, in order, and every poll as it was taken."""
    events = rows_of("events", record)
    assert [row["position"] for row in events] == list(range(1, record.head().position + 1))
    taken = [row["position"] for row in events if row["type"] in ("PollRecorded", "PollFailed")]
    rows = rows_of("polls", record)
    assert [row["position"] for row in rows] == taken
    for row in rows[:: max(1, len(rows) // 20)]:
        poll = record.poll(row["position"])
        assert (row["source"], row["path"], row["status"], row["error"]) == (
            poll.source, poll.path, poll.status, poll.error,
        )  # fmt: skip
        assert iso(row["asked_at"]) == format_time(poll.started_at)
        assert iso(row["observed_at"]) == format_time(poll.observed_at)


def test_an_archive_is_as_far_as_its_own_clock_was(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """At a time, whenever it was imported; what was recorded live after that time is not there."""
    live, old = recording("dstack-0.22.5/success"), "dstack-0.22.5/warm_reuse"
    ahead = max(poll.observed_at for poll in recording(old)) - live[0].started_at
    later = [
        msgspec.structs.replace(row, started_at=row.started_at + ahead, observed_at=row.observed_at + ahead)
        for row in live
    ]
    with recorded(tmp_path / "record.db", later) as record:
        import_trace(record, str(TRACES / f"{old}.jsonl.zst"), trace_reading(), lenient=False, name="old")
        times = sorted(poll.observed_at for poll in recording(old))
        for part in (len(times) // 2, len(times) - 1):
            rows_then = rows_of("polls", record, format_time(times[part]))
            assert [iso(row["observed_at"]) for row in rows_then] == [format_time(time) for time in times[: part + 1]]
            assert {row["source"] for row in rows_then} == {"dstack/old"}
            assert {row["archive"] for row in rows_of("runs", record, format_time(times[part]))} == {"dstack/old"}
        assert len(rows_of("polls", record)) == len(times) + len(later)


@pytest.mark.parametrize("name", ["dstack-0.22.5/warm_reuse", "slurm-22.05/checkpoint"])
def test_a_moment_shows_what_a_record_that_ends_there_shows(
    name: str, tmp_path: Path, recording: Polls, recorded: Recorded
) -> None:
    """In every table, whatever was recorded since."""
    taken = recording(name)
    with recorded(tmp_path / "whole.db", taken) as whole:
        for part in (1, len(taken) // 3, 2 * len(taken) // 3):
            with recorded(tmp_path / f"{part}.db", taken[:part]) as begun:
                position = begun.head().position
                for table in TABLES:
                    own = {"hash", "recorded_at"}  # of each record
                    now, then = rows_of(table, begun), rows_of(table, whole, position)
                    assert [{key: row[key] for key in row if key not in own} for row in now] == [
                        {key: row[key] for key in row if key not in own} for row in then
                    ], (table, part)


def test_a_time_is_a_moment_too(record: Record) -> None:
    """The last poll then is the last row; a moment that cannot be is one line."""
    rows = rows_of("polls", record)
    middle = rows[len(rows) // 2]
    before = rows_of("polls", record, iso(middle["observed_at"]))
    assert before == rows[: len(before)]
    assert before[-1]["observed_at"] == middle["observed_at"]
    assert polls(record, at=middle["observed_at"]).to_arrow().num_rows == len(before)
    for wrong in (0, record.head().position + 1, "soon"):
        with pytest.raises(StenoError):
            rows_of("runs", record, wrong)
        with pytest.raises(StenoError):
            runs(record, at=5, known=wrong).to_arrow()
    with pytest.raises(StenoError, match="give at as well"):
        runs(record, known="now").to_arrow()


def test_a_moment_is_shown_by_what_was_known_later(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """A job that had ended by its provider's date, and was polled as ended later."""
    with recorded(tmp_path / "record.db", recording("slurm-22.05/fanout_one_winner")) as record:
        for known, state in ((None, "running"), (225, "running"), (400, "succeeded"), ("now", "succeeded")):
            rows = runs(record, at=225, known=known).to_arrow().to_pylist()
            assert next(row["state"] for row in rows if row["run_id"].startswith("98e5819b")) == state


def test_postgresql_has_the_same_tables(
    tmp_path: Path, recording: Polls, recorded: Recorded, postgres_url: str
) -> None:
    """Every row of every table, but for what a record says of itself."""
    taken = recording("dstack-0.22.5/retry_success")
    with recorded(tmp_path / "record.db", taken) as here, recorded(postgres_url, taken) as there:  # type: ignore[arg-type]
        for table in TABLES:
            left, right = rows_of(table, here), rows_of(table, there)
            assert left or table == "samples"
            for row in (*left, *right):
                row.pop("hash", None)
                row.pop("recorded_at", None)
            assert left == right


def test_pandas_and_polars_keep_types(record: Record) -> None:
    """Sums stay integers beside unknown sums, and times know their zone."""
    pandas = runs(record).to_pandas()
    assert str(pandas["cost_microusd"].dtype) == "Int64"
    assert str(pandas["submitted_at"].dtype) == "datetime64[us, UTC]"
    polars = machines(record).to_polars()
    assert str(polars.schema["cost_microusd"]) == "Int64"
    for made in (costs, intervals, transitions):
        assert made(record).to_polars().height == made(record).to_arrow().num_rows
        assert made(record).to_polars().columns == list(made(record).to_pandas().columns)


def test_a_frame_is_read_again(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """By path and without `at`: as the record is when it is read."""
    taken = recording("dstack-0.22.5/success")
    table = polls(tmp_path / "record.db")
    counts = []
    for end in (10, len(taken)):
        recorded(tmp_path / "record.db", taken[:end] if not counts else taken[10:]).close()
        counts.append(table.to_arrow().num_rows)
    assert counts == [10, len(taken)]


def test_files_hold_the_rows(record: Record, tmp_path: Path) -> None:
    """Parquet reads back equal; CSV has as many lines, with exact sums."""
    import csv

    from pyarrow.parquet import read_table

    for table in TABLES.values():
        with opened(record) as source:
            count = write_parquet(table, source, tmp_path / "one.parquet")
            assert count == write_csv(table, source, tmp_path / "one.csv")
        written = read_table(tmp_path / "one.parquet")
        assert written.to_pylist() == rows_of(table.name, record)
        with (tmp_path / "one.csv").open(newline="") as file:
            lines = list(csv.DictReader(file))
        assert len(lines) == count
        sums = [name for name in written.column_names if name.endswith("microusd")]
        for line, row in zip(lines, written.to_pylist(), strict=True):
            assert all(line[name] == ("" if row[name] is None else str(row[name])) for name in sums)
    assert not list(tmp_path.glob("*.part"))


def test_a_file_that_could_not_be_written_whole_is_not_there(record: Record, tmp_path: Path) -> None:
    """The file that was there stays."""
    target = tmp_path / "runs.parquet"
    target.write_text("before")

    def fail(_done: int, _total: int) -> None:
        raise OSError(28, "No space left on device")

    for write in (write_parquet, write_csv):
        with opened(record) as source:
            source.advance = fail
            with pytest.raises(OSError, match="No space"):
                write(TABLES["runs"], source, target)
    assert target.read_text() == "before"
    assert not list(tmp_path.glob("*.part"))
