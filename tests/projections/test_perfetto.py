"""The trace for Perfetto: valid, rows without overlaps, the sums of the bills, and the tables' own facts."""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from steno.cli.wiring.files import trace_reading
from steno.engine.state.samples import Sample, pack
from steno.events.clock import SECOND, parse_time
from steno.events.poll import Poll
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.events.traces.trace import import_trace
from steno.events.types import SamplesRecorded
from steno.projections.frames import frame
from steno.projections.frames.perfetto import END, PerfettoTrace
from steno.projections.frames.source import opened

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]
Event = dict[str, Any]
TRACES = Path(__file__).parents[1] / "traces"
RECORDINGS = (
    "dstack-0.22.5/warm_reuse", "dstack-0.22.5/retry_success", "dstack-0.22.5/several", "dstack-0.22.5/no_capacity",
    "slurm-22.05/checkpoint",
)  # fmt: skip


@pytest.fixture(params=RECORDINGS)
def record(request: pytest.FixtureRequest, tmp_path: Path, recording: Polls, recorded: Recorded) -> Iterator[Record]:
    with recorded(tmp_path / "record.db", recording(request.param)) as opened_record:
        yield opened_record


def rows_of(name: str, record: Record, at: int | None = None) -> list[dict[str, Any]]:
    return frame(name, record, at).to_arrow().to_pylist()


def strict(text: bytes) -> Any:
    """The value of JSON text by RFC 8259, with each key of an object once."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        assert len(dict(pairs)) == len(pairs)
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(constant)

    return json.loads(text.decode(), object_pairs_hook=unique, parse_constant=refuse, parse_float=Decimal)


def trace_of(
    record: Record, *names: str, at: int | None = None, since: int = 0, until: int = END
) -> tuple[list[Event], dict[str, Any]]:
    """(the events, what the trace says about itself), checked against the form of the format."""
    file = BytesIO()
    with opened(record, at) as source:
        runs = [source.view.row(name).run_id for name in names]
        written = PerfettoTrace(source, runs, since, until).write(file)
    whole = strict(file.getvalue())
    events: list[Event] = whole["traceEvents"]
    assert len(events) == written
    titled = {(event["pid"], event["tid"]) for event in events if event["ph"] == "M"}
    ends: dict[tuple[int, int], int] = defaultdict(int)
    for event in events:
        assert event["ph"] in ("M", "X", "i", "C")
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["ts"], int)
        assert event["ts"] >= 0
        if event["ph"] in ("X", "i"):
            assert (event["pid"], event["tid"]) in titled
            assert (event["pid"], event["pid"]) in titled
        if event["ph"] == "X":
            assert isinstance(event["dur"], int)
            assert event["dur"] > 0
            assert event["ts"] >= ends[event["pid"], event["tid"]]  # the slices of a row do not overlap
            ends[event["pid"], event["tid"]] = event["ts"] + event["dur"]
        if event["ph"] == "C":
            assert list(event["args"]) == ["value"]
            assert math.isfinite(event["args"]["value"])
    return events, whole["otherData"]


def titles(events: list[Event], what: str = "process_name") -> dict[int, str]:
    return {event["tid"]: event["args"]["name"] for event in events if event["name"] == what}


def costs_in(events: list[Event]) -> dict[int, list[Decimal]]:
    """Process → its cost, at each point."""
    points: dict[int, list[Decimal]] = defaultdict(list)
    for event in events:
        if event["ph"] == "C" and event["name"].startswith("cost"):
            points[event["pid"]].append(Decimal(event["args"]["value"]))
    return points


def test_the_cost_of_a_machine_is_its_bill(record: Record) -> None:
    """To the micro-dollar: the last point, the slices together, and the table of the sums."""
    events, about = trace_of(record)
    assert (about["record"], about["position"]) == (record.id, record.head().position)
    bills = {row["vm_id"]: Decimal(row["cost_microusd"] or 0) / 1_000_000 for row in rows_of("machines", record)}
    slices: dict[str, Decimal] = defaultdict(Decimal)
    process: dict[str, int] = {}
    for event in events:
        if event["ph"] == "X" and "vm_id" in event["args"]:
            slices[event["args"]["vm_id"]] += Decimal(event["args"]["cost_usd"] or 0)
            process[event["args"]["vm_id"]] = event["pid"]
    points = costs_in(events)
    assert all(left <= right for each in points.values() for left, right in pairwise(each))
    for vm_id, number in process.items():
        assert points[number][-1] == slices[vm_id] == bills[vm_id]
        paid = [row["cost_microusd"] for row in rows_of("costs", record) if row["vm_id"] == vm_id]
        assert sum(paid) == bills[vm_id] * 1_000_000
    assert sum(bills.values()) == sum(points[number][-1] for number in points)


def test_runs_and_polls_are_those_of_the_tables(record: Record) -> None:
    """Each state when it was, each verdict, and each poll once."""
    events, about = trace_of(record)
    begin = parse_time(about["begins_at"])
    ends = {
        event["args"]["run_id"]: event["name"] for event in events if event["ph"] == "i" and "rule" in event["args"]
    }
    over = ("succeeded", "failed", "stopped")
    assert ends == {row["run_id"]: row["state"] for row in rows_of("runs", record) if row["state"] in over}
    steps = {(row["run_id"], row["position"]): row for row in rows_of("transitions", record)}
    states = [event for event in events if event["ph"] == "X" and event["args"].get("position")]
    assert states
    for event in states:
        step = steps[event["args"]["run_id"], event["args"]["position"]]
        at = round(step["observed_at"].timestamp() * SECOND) - begin
        assert event["name"] == step["to_state"]
        assert at <= event["ts"]
        assert step["seconds"] is None or event["ts"] + event["dur"] <= at + round(step["seconds"] * SECOND)
    polls = [event for event in events if event["ph"] == "i" and "run_id" not in event["args"]]
    assert sorted(event["args"]["position"] for event in polls) == [row["position"] for row in rows_of("polls", record)]
    assert len({event["tid"] for event in polls}) == len({row["source"] for row in rows_of("polls", record)})


def test_a_run_is_on_its_machine_and_waits_before(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """A row in the process of its machine while it was there, else in that of its source."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/retry_success")) as record:
        events, _ = trace_of(record)
        processes, rows = titles(events), titles(events, "thread_name")
        machines = {event["pid"] for event in events if event["ph"] == "X" and "vm_id" in event["args"]}
        where: dict[str, set[str]] = defaultdict(set)
        for event in events:
            if event["ph"] == "X" and "run_id" in event["args"]:
                where["machine" if event["pid"] in machines else processes[event["pid"]]].add(event["name"])
        assert "running" in where["machine"]
        assert all("running" not in states for place, states in where.items() if place != "machine")
        assert set(where) <= {"machine", *(title for title in processes.values() if title.endswith("a machine"))}
        names = {f"{run['name']} {run['run_id'][:13]}" for run in rows_of("runs", record)}
        assert names <= set(rows.values()) <= names | {"polls", "phases"}


def test_a_part_of_it(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """A single run with its machine and its source; two halves of the time, whose costs go on; a moment past."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/warm_reuse")) as record:
        whole, about = trace_of(record)
        begin = parse_time(about["begins_at"])
        run = next(row for row in rows_of("runs", record) if row["name"] == "warm-b")
        part, of = trace_of(record, "warm-b")
        assert {event["args"]["run_id"] for event in part if "run_id" in event["args"]} == {run["run_id"]}
        assert parse_time(of["begins_at"]) >= begin
        assert 0 < len(part) < len(whole)
        middle = begin + max(event["ts"] for event in whole) // 2
        (left, _), (right, after) = trace_of(record, until=middle), trace_of(record, since=middle)
        assert parse_time(after["begins_at"]) == middle
        assert all(event["ts"] + event.get("dur", 0) <= middle - begin for event in left)
        (first,), (second,), (all_of_it,) = (costs_in(events).values() for events in (left, right, whole))
        assert first[-1] == second[0]
        assert second[-1] == all_of_it[-1]
        cut = [event["dur"] for events in (left, right) for event in events if event["ph"] == "X"]
        assert sum(cut) == sum(event["dur"] for event in whole if event["ph"] == "X")
        assert {event["ph"] for event in trace_of(record, since=begin + (1 << 50))[0]} == {"M"}
        place = record.head().position // 2
        (then, known), (now, _) = trace_of(record, at=place), trace_of(record)
        assert known["position"] == place
        assert len(then) < len(now)


HOSTILE = 'x"},{"ph":"X\\\n\t\x00\x7f</script>\u2028\u202e😀' + "é" * 3_000


def test_a_name_breaks_nothing(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """Whatever a provider calls a run or a machine is text of the trace."""
    polls = [
        poll if poll.body is None else replaced(poll, b'"warm-a"', json.dumps(HOSTILE).encode())
        for poll in recording("dstack-0.22.5/warm_reuse")
    ]
    with recorded(tmp_path / "record.db", polls) as record:
        events, _ = trace_of(record)
        assert any(title.startswith(HOSTILE) for title in titles(events, "thread_name").values())


def replaced(poll: Poll, old: bytes, new: bytes) -> Poll:
    fields = {name: getattr(poll, name) for name in poll.__struct_fields__}
    return Poll(**fields | {"body": poll.body.replace(old, new)})  # type: ignore[union-attr]


def test_an_empty_record_is_an_empty_trace(tmp_path: Path, recorded: Recorded) -> None:
    """And it is valid."""
    with recorded(tmp_path / "record.db", ()) as record:
        events, about = trace_of(record)
        assert events == []
        assert about["position"] == 0


def test_an_archive_is_at_its_own_time(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """Its machines are not as far away as the import is."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/success")) as record:
        import_trace(
            record, str(TRACES / "dstack-0.22.5/several.jsonl.zst"), trace_reading(), lenient=False, name="old"
        )
        events, about = trace_of(record)
        first = min(row["created_at"] for row in rows_of("machines", record))
        assert parse_time(about["begins_at"]) <= round(first.timestamp() * SECOND)
        assert any(title.startswith("dstack/old:") for title in titles(events).values())


def sampled(record: Record, run: dict[str, Any], samples: list[Sample], block: bytes | None = None) -> None:
    event = SamplesRecorded(
        run_id=run["run_id"],
        provider=run["provider"],
        provider_id=run["provider_id"],
        source="amd-smi",
        block=pack(samples) if block is None else block,
    )
    record.append_many([Batch(f"run/{run['run_id']}", [event])])


def test_samples_are_counters_and_rows(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """They are of the machine that the run was on; what is unknown or cannot be read is left out."""
    with recorded(tmp_path / "record.db", recording("dstack-0.22.5/warm_reuse")) as record:
        assert not [event for event in trace_of(record)[0] if "GPU" in event["name"]]
        assert rows_of("samples", record) == []
        run = next(row for row in rows_of("runs", record) if row["name"] == "warm-a")
        at = round(run["started_at"].timestamp()) * SECOND + SECOND
        samples = [
            Sample(at=at, device="0", use=7, memory=100, memory_total=1000, power=300, throttled=0, errors=2, event=79),
            Sample(at=at + SECOND, device="0", use=93, temperature=60, throttled=1),
            Sample(at=at, device="", use=250),
        ]
        sampled(record, run, samples)
        sampled(record, run, [], b"not a block")
        events, about = trace_of(record)
        counted = [event for event in events if event["ph"] == "C" and "cost" not in event["name"]]
        title = f"warm-a {run['run_id'][:13]}"
        assert [(event["name"].removesuffix(f", {title}"), event["args"]["value"]) for event in counted] == [
            ("processes use (%)", 250), ("GPU 0 use (%)", 7), ("GPU 0 memory (MiB)", 100), ("GPU 0 power (W)", 300),
            ("GPU 0 use (%)", 93),
        ]  # fmt: skip
        assert counted[0]["ts"] == at - parse_time(about["begins_at"])
        assert {event["pid"] for event in counted} == set(costs_in(events))
        rows = rows_of("samples", record)
        assert [(row["device"], row["use"], row["throttled"]) for row in rows] == [
            ("", 250, None), ("0", 7, False), ("0", 93, True)
        ]  # fmt: skip
        assert [rows[1][name] for name in ("memory_mib", "memory_total_mib", "power_w", "errors", "event")] == [
            100, 1000, 300, 2, 79
        ]  # fmt: skip
        assert (rows[2]["temperature_c"], rows[2]["power_w"], rows[2]["tool"]) == (60, None, "amd-smi")
        assert round(rows[1]["t"].timestamp()) * SECOND == at
