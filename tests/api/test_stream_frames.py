"""A message of the stream is the same whoever makes it, from where, and when."""

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory
from stenotest.histories import histories
from stenotest.machines import HOST, machine_histories
from stenotest.recorded_trace import RECORDINGS, TRACES
from stenotest.records import StandingClock, temporary_record

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import Until
from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, replay_record
from steno.engine.state.world import dump, load
from steno.events import types
from steno.events.clock import SECOND, SystemClock, foreign_run_id
from steno.events.store.append import Batch
from steno.events.store.record import Record
from steno.projections.api.feed.framer import Frame, Framer
from steno.projections.read_models.past_worlds import world_before
from steno.projections.read_models.projector import caught_up

SOME = [
    name if number % 6 == 1 else pytest.param(name, marks=pytest.mark.long) for number, name in enumerate(RECORDINGS)
]
MOVES_WITHOUT_A_WORD = {"cost_usd", "provider_cost_usd", "cost_low_usd", "cost_high_usd", "intervals"}
"""Money goes on with every poll."""


def recorded(folder: Path, name: str) -> Record:
    """The record of a recording."""
    record = Record.open(folder / "record.db", clock=SystemClock(), write=True, create=True, shapes=READINGS.shape)
    record.append_polls([poll for _, poll in open_trace(TRACES / name) if poll is not None])
    return record


def from_the_start(record: Record) -> list[Frame]:
    """All frames of a record, in one go."""
    return Framer(record, Fold(READINGS), 0).advance(record.head().position)


def said(frame: Frame) -> dict[str, Any]:
    """The message in a frame; its `id` is its position, and the start of a hash."""
    first, second, *rest = frame.data.split(b"\n")
    assert rest == [b"", b""]
    message = msgspec.json.decode(second.removeprefix(b"data: "), type=dict)
    assert re.fullmatch(rb"id: %d-[0-9a-f]{8}" % frame.position, first)
    assert message["position"] == frame.position
    return message


def objects(frame: Frame) -> list[tuple[str, dict[str, Any]]]:
    """Every run and machine in a frame, as (`run_id` or `vm_id`, object)."""
    message = said(frame)
    runs = [*([message["run"]] if "run" in message else []), *message.get("runs", [])]
    vms = [*([message["vm"]] if "vm" in message else []), *message.get("vms", [])]
    return [*(("run_id", run) for run in runs), *(("vm_id", item) for item in vms)]


def check_against_replay(record: Record, frames: list[Frame]) -> None:
    """Law: an object in a message is the one a replay up to its position ends with."""
    for frame in frames:
        replay = replay_record(record, until=Until(position=frame.position)).to_json()
        for key, sent in objects(frame):
            there = replay["runs"] if key == "run_id" else replay["vms"]
            assert [item for item in there if item[key] == sent[key]] == [sent]


def check_complete(record: Record, frames: list[Frame]) -> None:
    """Law: whoever applies every message knows what a replay knows, money apart."""
    known: dict[str, dict[str, Any]] = {}
    for frame in frames:
        known.update({item[key]: item for key, item in objects(frame)})
    replay = replay_record(record).to_json()
    for key, there in (("run_id", replay["runs"]), ("vm_id", replay["vms"])):
        for wanted in there:
            sent = known[wanted[key]]
            assert {k: sent[k] for k in sent if k not in MOVES_WITHOUT_A_WORD} == {
                k: wanted[k] for k in wanted if k not in MOVES_WITHOUT_A_WORD
            }


def in_parts(record: Record, cuts: list[int]) -> list[Frame]:
    """The frames made by folds that each began at a cut, from nothing or from what another left."""
    head, frames, saved = record.head().position, list[Frame](), None
    for start, end in zip([0, *cuts], [*cuts, head], strict=True):
        framer = (
            Framer(record, Fold(READINGS, state=load(saved)), start) if saved else Framer(record, Fold(READINGS), 0)
        )
        framer.skip(start)
        frames += framer.advance(end)
        saved = dump(framer.state)
    return frames


@pytest.mark.parametrize("patience", [6, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SOME)
def test_a_recording_says_what_its_replay_says(name: str, patience: int | None, tmp_path: Path) -> None:
    """At every position that says something (of a long one, at some from all of it), and nothing is left unsaid."""
    with recorded(tmp_path, name) as record:
        frames = from_the_start(record)
        check_against_replay(record, frames[:: 1 if patience is None else 1 + len(frames) // patience])
        check_complete(record, frames)


@pytest.mark.parametrize("piece", [7, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", SOME)
def test_a_recording_cut_anywhere_says_the_same(name: str, piece: int, tmp_path: Path) -> None:
    """Each piece is made from what the one before it left."""
    with recorded(tmp_path, name) as record:
        head, whole = record.head().position, from_the_start(record)
        assert in_parts(record, list(range(piece, head, piece))) == whole
        assert [sent.position for sent in whole] == sorted({frame.position for frame in whole})


@pytest.mark.ci
def test_a_kept_moment_is_a_place_to_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that comes back after a restart does not wait for a fold of everything."""
    monkeypatch.setattr("steno.projections.read_models.projection_writer.SPACING", 32)
    with recorded(tmp_path, "dstack-0.22.5/warm_reuse.jsonl.zst") as record:
        caught_up(record).close()
        whole, head = from_the_start(record), record.head().position
        begun = set()
        for start in range(0, head, 23):
            world, position = world_before(record, start)
            assert start - 64 < position <= start
            begun.add(position)
            made = Framer(record, world, position).advance(head)
            assert made == [frame for frame in whole if frame.position > position]
        assert len(begun) > 3


def test_every_event_but_a_poll_that_moved_nothing_has_its_message(tmp_path: Path) -> None:
    """Observations, intents and failures one each; an answered poll only where it moved something by itself."""
    with recorded(tmp_path, "dstack-0.22.5/server_restart.jsonl.zst") as record:
        record.append_many([Batch("source/dstack", [types.RecorderStarted(source="dstack", software="1")])])
        frame = {sent.position: said(sent)["event"] for sent in from_the_start(record)}
        events = {stored.position: stored.type for stored in record.read()}
        assert frame == {position: events[position] for position in frame}
        assert {events[position] for position in events.keys() - frame.keys()} == {"PollRecorded"}


def test_a_run_that_is_lost_is_told_of_by_the_poll_that_lost_it(tmp_path: Path) -> None:
    """No observation says so: it is time that went by."""
    story = DstackHistory().listed({**_running("gone")})
    for _ in range(70):
        story.wait(10).listed()
    with temporary_record(tmp_path, shapes=READINGS.shape, clock=StandingClock()) as record:
        record.append_polls([poll for _, poll in story.polls() if poll is not None])
        frames = from_the_start(record)
        check_against_replay(record, frames)
        last = said(frames[-1])
        assert (last["event"], last["stream"]) == ("PollRecorded", "source/dstack/main")
        assert [run["state"] for run in last["runs"]] == ["lost"]
        assert f"run/{last['runs'][0]['run_id']}" in frames[-1].about


def _running(name: str) -> dict[str, Any]:
    from stenotest.dstack_history import single

    return single(name, "running", "running")


Tale = list[tuple[str, Any]]
"""(`polls`, polls) and (`event`, (stream, event)), in the order of the record."""


@st.composite
def tales(draw: Any) -> Tale:
    """Runs on machines that come and go, are drained, told to go, lost and found, adopted and asked for again."""
    runs = [draw(histories(f"run-{number}")) for number in range(2)]
    machines = [draw(machine_histories(f"vm-{number}")) for number in range(2)]
    for which in (item for run in runs for item in run.items):
        for job in which["jobs"]:
            for attempt in job["job_submissions"]:
                attempt["job_provisioning_data"] = {"hostname": HOST, "price": 1.99}
    tale: list[tuple[str, Any]] = [
        ("event", ("source/dstack/main", types.PolicyAdopted(source="dstack/main", policy=b"{}")))
    ]
    story, at, hidden = DstackHistory(), [0] * 4, set[int]()
    steps = ("runs", "runs", "machines", "next", "next", "watch", "hide", "fail", "late", "wait", "event")
    for move in draw(st.lists(st.sampled_from(steps), min_size=5, max_size=30)):
        rows = [machine.items[at[2 + number]] for number, machine in enumerate(machines) if 2 + number not in hidden]
        attempt = [run.items[at[number]] for number, run in enumerate(runs) if number not in hidden]
        match move:
            case "runs":
                story.listed(*attempt)
            case "machines":
                story.machines(*rows)
            case "next":
                which = draw(st.integers(0, 3))
                at[which] = min(at[which] + draw(st.integers(1, 6)), len([*runs, *machines][which].items) - 1)
            case "watch":
                for _ in range(draw(st.sampled_from([3, 14, 20]))):
                    story.listed(*attempt).wait(0.1).machines(*rows).wait(49)
            case "hide":
                hidden ^= {draw(st.integers(0, 3))}
            case "fail":
                story.failed()
            case "late":
                story.now = max(0, story.now - 7)
                story.machines(*rows)
                story.now += 7
            case "wait":
                story.wait(draw(st.sampled_from([20, 61, 300])))
            case "event":
                vm_id = foreign_run_id("dstack", draw(st.sampled_from(machines)).items[0]["id"])
                tale.append(("polls", list(story.polls())))
                story = DstackHistory(now=story.now)
                tale.append(("event", draw(st.sampled_from(_events(vm_id, runs[0].items[0]["id"])))))
        story.wait(draw(st.sampled_from([1, 5, 30])))
    return [*tale, ("polls", list(story.polls()))]


def _events(vm_id: str, provider_id: str) -> list[tuple[str, types.Event]]:
    who = {"vm_id": vm_id, "provider": "dstack"}
    run_id = foreign_run_id("dstack", provider_id)
    run = {"run_id": run_id, "provider": "dstack"}
    request = {"run_id": "asked", "provider": "dstack", "name": "run-0"}
    return [
        (f"vm/{vm_id}", types.VmDrainStarted(**who, by="idle")),
        (f"vm/{vm_id}", types.VmStopIntended(**who, provider_id="x", by="idle")),
        (f"vm/{vm_id}", types.VmStopSucceeded(**who)),
        (f"vm/{vm_id}", types.VmGoneConfirmed(**who, ended_at=START + 90 * SECOND, submitter="me")),
        ("queue/dstack/main", types.RunHeld(**run, why="cap")),
        ("queue/dstack/main", types.RunRequeued(**run, provider_id=provider_id, attempt=2, not_before=START)),
        ("run/asked", types.RunRequested(**request, project="main", configuration=b"{}", submitter="me")),
        ("run/asked", types.SubmitSucceeded(**request, provider_id=provider_id)),
        ("notice/1", types.NoticeFailed(notice_id="1", error="no", attempt=1)),
    ]


def written(folder: Path, tale: Tale) -> Record:
    """The record of a tale."""
    for old in folder.glob("record.db*"):
        old.unlink()
    clock = StandingClock(START)
    record = temporary_record(folder, shapes=READINGS.shape, clock=clock)
    for kind, what in tale:
        if kind == "event":
            stream, event = what
            record.append_many([Batch(stream, [event])])
        else:
            polls = [poll for _, poll in what if poll is not None]
            for start in range(0, len(polls), 3):
                record.append_polls(polls[start : start + 3])
            clock.sleep(max([poll.observed_at for poll in polls], default=0) - clock.now())
    return record


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(tale=tales(), data=st.data())
def test_any_history_cut_anywhere_says_the_same(tale: Tale, data: st.DataObject, tmp_path: Path) -> None:
    """Law: any cut and resume gives the same sequence of positions and bytes."""
    with written(tmp_path, tale) as record:
        head, whole = record.head().position, from_the_start(record)
        cuts = sorted(data.draw(st.sets(st.integers(0, head), max_size=6)))
        assert in_parts(record, cuts) == whole
        assert in_parts(record, list(range(1, head))) == whole


@pytest.mark.slow
@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(tale=tales(), data=st.data())
def test_any_history_says_what_its_replay_says(tale: Tale, data: st.DataObject, tmp_path: Path) -> None:
    """Law: objects are those of a replay up to there, and nothing is left unsaid."""
    with written(tmp_path, tale) as record:
        frames = from_the_start(record)
        few = frames if len(frames) < 12 else data.draw(st.lists(st.sampled_from(frames), min_size=12, max_size=12))
        check_against_replay(record, few)
        check_complete(record, frames)
