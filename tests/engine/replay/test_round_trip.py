"""Law: a record that is exported and imported into a fresh one replays alike, or the trace says what it leaves out."""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory, Item, provider_id, single
from stenotest.event_world import marked
from stenotest.histories import History, histories
from stenotest.machines import MachineHistory, machine_histories, machine_item
from stenotest.recorded_trace import FOR_LAWS, RECORDINGS, TRACES
from stenotest.records import StandingClock

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, replay_record
from steno.engine.replay.result import JsonObject
from steno.events import types
from steno.events.clock import SECOND, Clock, SystemClock, foreign_run_id
from steno.events.store.record import Batch, Record
from steno.events.subjects import OfRun
from steno.events.traces.trace import TraceReading, import_trace, write_trace_line

READING = TraceReading(source_of=READINGS.source, answered=READINGS.answered)
OURS = "11111111-2222-4333-8444-55555555555{}"


def opened(path: Path, clock: Clock | None = None) -> Record:
    return Record.open(path, clock=clock or SystemClock(), write=True, create=True, shapes=READINGS.shape)


def exported(record: Record, trace: Path) -> Path:
    """The lines that `steno export --trace` writes of the polls."""
    stored = record.read(types={"PollRecorded", "PollFailed"})
    trace.write_bytes(b"".join(write_trace_line(record.poll(event.position)) for event in stored))
    return trace


def imported(folder: Path, trace: Path) -> JsonObject:
    with opened(folder / "imported.db") as record:
        import_trace(record, trace, READING)
        return told(record)


def told(record: Record) -> JsonObject:
    """A replay without positions, which follow from our own events, and without the archives' names."""
    replay = replay_record(record).to_json()
    for thing in (*replay["runs"], *replay["vms"]):
        thing.pop("archive", None)
        thing.pop("evidence", None)
        for step in thing.get("transitions", ()):
            del step["position"]
    for anomaly in replay["anomalies"]:
        del anomaly["position"]
    return replay


@pytest.mark.parametrize("name", FOR_LAWS)
def test_a_recording_comes_back_equal(name: str, tmp_path: Path) -> None:
    """Recorded live, exported, imported: the same runs, machines, ids, reasons, attempts, bills, blind times."""
    with opened(tmp_path / "live.db") as record:
        record.append_polls([poll for _, poll in open_trace(TRACES / name) if poll is not None])
        first = told(record)
        again = imported(tmp_path, exported(record, tmp_path / "trace.jsonl"))
    assert again == first


@pytest.mark.ci
@pytest.mark.parametrize("name", [name for name in RECORDINGS if name.startswith("slurm")])
def test_a_trace_of_another_provider_is_an_archive_of_its_own(name: str, tmp_path: Path) -> None:
    """Although its polls name no project, and whatever was imported before."""
    alone = imported(tmp_path, TRACES / name)
    with opened(tmp_path / "both.db") as record:
        import_trace(record, TRACES / "dstack-0.22.5/several.jsonl.zst", READING)
        import_trace(record, TRACES / name, READING)
        archives = {run["archive"] for run in replay_record(record).to_json()["runs"] if run["provider"] == "slurm"}
        both = told(record)
    assert archives <= {"slurm"}
    assert [run for run in both["runs"] if run["provider"] == "slurm"] == alone["runs"]
    assert [vm for vm in both["vms"] if vm["source"].startswith("slurm")] == alone["vms"]


@dataclass(slots=True, repr=False)
class Past:
    """The past of a Steno: its events, and the polls between."""

    steps: list[types.Event | DstackHistory]
    stopped: bool = False
    """By a policy of ours."""

    def __repr__(self) -> str:
        """Our events, and the words of every answer."""
        return " ".join(
            str([row["status"] for line in step.lines for row in line["body"]])
            if isinstance(step, DstackHistory)
            else str(step)
            for step in self.steps
        )


class Steno:
    """Requests runs and looks at them, every five seconds."""

    def __init__(self) -> None:
        self.past = Past([])
        self.now = 0.0
        self.shown: list[Item] = []
        self.row: list[Item] = []

    def tell(self, *events: types.Event) -> None:
        self.past.steps += events

    def look(self) -> None:
        self.now += 5
        story = DstackHistory(now=self.now).listed(*reversed(self.shown))
        self.past.steps.append(story.machines(*self.row) if self.row else story)

    def watch(self, items: list[Item], stopped: int | None = None, run_id: str = "") -> None:
        """A run from its first sight to its end; a policy stops it at one of them."""
        self.shown.append(items[0])
        for index, item in enumerate(items):
            self.shown[-1] = item
            if index == stopped:
                self.past.stopped = True
                name = item["run_spec"]["run_name"]
                self.tell(
                    types.StopRequested(
                        run_id=run_id, provider="dstack", provider_id=item["id"], name=name, by="policy", submitter="me"
                    )
                )
            self.look()

    def hand_over(self, run_id: str, name: str, provider_id: str, *, answered: bool) -> None:
        """`answered`: the provider's answer came; else the mark alone says whose the run is."""
        self.tell(types.SubmitIntended(run_id=run_id, provider="dstack", name=name, marked=True))
        if answered:
            self.tell(types.SubmitSucceeded(run_id=run_id, provider="dstack", provider_id=provider_id, name=name))

    def watch_machine(self, items: list[Item], stopped: int | None) -> None:
        for index, item in enumerate(items):
            self.row = [item]
            self.look()
            if index == stopped:
                self.past.stopped = True
                vm = foreign_run_id("dstack", item["id"])
                self.tell(
                    types.VmStopIntended(vm_id=vm, provider="dstack", provider_id=item["id"], by="idle"),
                    types.VmStopSucceeded(vm_id=vm, provider="dstack"),
                )


@st.composite
def pasts(draw: Any) -> Past:
    """Runs that a Steno requested, some again for lack of capacity, beside those of others; a machine it may stop."""
    steno = Steno()
    for number in range(draw(st.integers(1, 3))):
        name, run_id = f"run-{number}", OURS.format(number)
        tale: History = draw(histories(name))
        if draw(st.booleans()):
            steno.watch(tale.items)
            continue
        steno.tell(
            types.RunRequested(
                run_id=run_id, provider="dstack", project="main", name=name, configuration=b"{}", submitter="me"
            )
        )
        for attempt in range(1, draw(st.integers(1, 3))):
            items = [_as(item, f"{name} {attempt}", run_id) for item in (single(name), _without_capacity(name))]
            steno.hand_over(run_id, name, items[0]["id"], answered=draw(st.booleans()))
            steno.watch(items)
            steno.tell(
                types.RunRequeued(
                    run_id=run_id,
                    provider="dstack",
                    provider_id=items[0]["id"],
                    attempt=attempt + 1,
                    gpu=None,
                    not_before=0,
                )
            )
        items = [_as(item, name, run_id) for item in tale.items]
        steno.hand_over(run_id, name, items[0]["id"], answered=draw(st.booleans()))
        steno.watch(items, draw(st.none() | st.integers(0, len(items) - 1)), run_id)
    machine: MachineHistory | None = draw(st.none() | machine_histories())
    if machine is not None:
        steno.watch_machine(machine.items, draw(st.none() | st.integers(0, len(machine.items) - 1)))
    return steno.past


def stopped_while_unreachable() -> Past:
    """A machine that we stop for idleness, and that its provider ends because it no longer answers."""
    steno = Steno()
    made, going = machine_item(status="provisioning"), machine_item(status="terminating", reason="unreachable")
    steno.watch_machine([made, made, going], 0)
    return steno.past


def _without_capacity(name: str) -> Item:
    reasons = {"reason": "job_failed", "job_reason": "failed_to_start_due_to_no_capacity"}
    return single(name, "failed", "failed", finished=1, **reasons)


def _as(item: Item, label: str, run_id: str | None) -> Item:
    """The run under an id of its own, with our mark if it is ours."""
    copied = {**item, "id": provider_id(label)}
    return copied if run_id is None else marked(copied, run_id)


def stream_of(event: types.Event) -> str:
    return f"run/{event.run_id}" if isinstance(event, OfRun) else f"vm/{getattr(event, 'vm_id', '')}"


def live(path: Path, past: Past) -> Record:
    """The record of it, written as it happened."""
    clock = StandingClock(START)
    record = opened(path, clock)
    for step in past.steps:
        if isinstance(step, DstackHistory):
            record.append_polls([poll for _, poll in step.polls() if poll is not None])
            clock.sleep(START + round(step.now * SECOND) - clock.now())
        else:
            record.append_many([Batch(stream_of(step), (step,))])
    return record


def essence(replay: JsonObject) -> tuple[dict[str, Any], dict[str, Any]]:
    """Runs by id and machines by id: what the trip must keep whatever Steno did."""
    keys = ("provider_id", "state", "exit_status", "attempts", "vm_id", "start", "finished_at", "cost_usd", "reason")
    runs = {run["run_id"]: {key: run[key] for key in keys} for run in replay["runs"]}
    return runs, {vm["vm_id"]: vm for vm in replay["vms"]}


@settings(deadline=None)
@given(pasts())
@example(stopped_while_unreachable())
def test_what_a_steno_did_comes_back_equal_by_the_marks_in_the_polls(past: Past) -> None:
    """Ids and attempts too. Only whose stop it was is not in the polls; the trace leaves that out, and says so."""
    with tempfile.TemporaryDirectory() as folder, live(Path(folder) / "live.db", past) as record:
        first = essence(told(record))
        again = essence(imported(Path(folder), exported(record, Path(folder) / "trace.jsonl")))
    if past.stopped:
        for thing in (entry for things in (*first, *again) for entry in things.values()):
            thing["reason"] = None if "intervals" in thing or thing["state"] == "stopped" else thing["reason"]
    assert again == first
