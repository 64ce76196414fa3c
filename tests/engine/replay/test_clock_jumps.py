"""Law: what the wall clock did while genuine servers were recorded changes no verdict, no time and no bill."""

from itertools import pairwise
from pathlib import Path

import pytest
from msgspec.structs import replace
from stenotest.recorded_trace import FOR_LAWS, TRACES
from stenotest.records import MachineClock

from steno.engine.providers.registry import READINGS
from steno.engine.replay.replay import open_trace, replay_polls, replay_record, replay_trace, step_record
from steno.engine.replay.result import JsonObject, Replay
from steno.events.clock import SECOND, Stamp
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.events.traces.trace import TraceReading, import_trace, write_trace_line

READING = TraceReading(source_of=READINGS.source, answered=READINGS.answered)
HOUR = 3600 * SECOND
WRONG = [2 * HOUR, pytest.param(-2 * HOUR, marks=pytest.mark.long)]


def polls_of(recording: str) -> list[Poll]:
    """Its polls in order of time, to the millisecond, as boot time has them."""
    polls = (poll for _, poll in open_trace(TRACES / recording) if poll is not None)
    return [
        replace(poll, started_at=poll.started_at // 1000 * 1000, observed_at=poll.observed_at // 1000 * 1000)
        for poll in sorted(polls, key=lambda poll: poll.observed_at)
    ]


def wrong_for_a_while(polls: list[Poll], wrong: int) -> list[int]:
    """For each poll how far the clock is ahead of the right time: wrong in the middle of the longest stretch in which
    somebody looked all the time.
    """
    times = [poll.observed_at for poll in polls]
    gaps = [0, *(at for at in range(1, len(times)) if times[at] - times[at - 1] > 50 * SECOND), len(times)]
    first, end = max(pairwise(gaps), key=lambda gap: gap[1] - gap[0])
    third = (end - first) // 3
    assert third, "nobody looked for long"
    return [wrong if first + third <= at < end - third else 0 for at in range(len(times))]


def told(replay: Replay) -> JsonObject:
    whole = replay.to_json()
    whole["anomalies"] = [anomaly for anomaly in whole["anomalies"] if anomaly["kind"] != "clock_jump"]
    return whole


def jumps(replay: Replay) -> int:
    return sum(anomaly["kind"] == "clock_jump" for anomaly in replay.to_json()["anomalies"])


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("recording", FOR_LAWS)
def test_a_trace_with_boot_times_replays_alike_whatever_its_wall_clock_did(
    recording: str, wrong: int, tmp_path: Path
) -> None:
    """Also from its text."""
    polls, trace = polls_of(recording), tmp_path / "trace.jsonl"
    right = told(replay_polls(enumerate(polls, 1)))
    stamped = [
        replace(
            poll,
            started_at=poll.started_at + ahead,
            observed_at=poll.observed_at + ahead,
            stamp=Stamp(1 << 16, poll.observed_at - polls[0].observed_at, 0).packed(),
        )
        for poll, ahead in zip(polls, wrong_for_a_while(polls, wrong), strict=True)
    ]
    trace.write_bytes(b"".join(map(write_trace_line, stamped)))
    for replayed in (replay_polls(enumerate(stamped, 1)), replay_trace(trace)):
        assert told(replayed) == right
        assert jumps(replayed) == 2


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("recording", ["dstack-0.22.5/warm_reuse.jsonl.zst", "slurm-22.05/success.jsonl.zst"])
def test_a_record_replays_alike_whatever_the_wall_clock_did(recording: str, wrong: int, tmp_path: Path) -> None:
    """And so does every step of it, and the trace that it is exported to."""
    polls, replays = polls_of(recording), list[Replay]()
    for ahead in (0, wrong):
        clock, right = MachineClock(), dict[int, int]()
        with Record.open(
            tmp_path / f"{ahead}.db", write=True, create=True, shapes=READINGS.shape, clock=clock
        ) as record:
            for poll, clock.wrong in zip(polls, wrong_for_a_while(polls, ahead), strict=True):
                clock._now = poll.observed_at
                right[record.append_polls([poll])[0].position] = poll.observed_at
            assert record.verify().ok
            replays.append(replay_record(record))
            assert all(step.at == right[step.position] for step in step_record(record))
            walls = [event.observed_at for event in record.read(types={"PollRecorded", "PollFailed"})]
            trace = tmp_path / f"{ahead}.jsonl"
            trace.write_bytes(
                b"".join(
                    write_trace_line(record.poll(event.position))
                    for event in record.read(types={"PollRecorded", "PollFailed"})
                )
            )
    assert any(later < earlier for earlier, later in pairwise(walls))  # as read, for ever
    assert told(replays[1]) == told(replays[0])
    assert [jumps(replay) for replay in replays] == [0, 2]
    by_line = [told(replay_trace(tmp_path / f"{ahead}.jsonl")) for ahead in (0, wrong)]
    assert by_line[0] == by_line[1]


def test_an_imported_outlier_changes_nothing(tmp_path: Path) -> None:
    """A trace of an older version has no boot time: one poll two hours ahead of the next is that poll's time."""
    polls = polls_of("dstack-0.22.5/warm_reuse.jsonl.zst")
    place = len(polls) // 2
    odd = replace(
        polls[place], started_at=polls[place].started_at + 2 * HOUR, observed_at=polls[place].observed_at + 2 * HOUR
    )
    replays = list[JsonObject]()
    for name, lines in (("right", polls), ("odd", [*polls[:place], odd, *polls[place + 1 :]])):
        trace = tmp_path / f"{name}.jsonl"
        trace.write_bytes(b"".join(map(write_trace_line, lines)))
        with Record.open(
            tmp_path / f"{name}.db", write=True, create=True, shapes=READINGS.shape, clock=MachineClock()
        ) as record:
            import_trace(record, trace, READING)
            whole = told(replay_record(record))
        replays += [whole, told(replay_trace(trace))]
    right, right_trace, wrong, wrong_trace = replays
    assert wrong["runs"] == right["runs"]
    assert wrong["vms"] == right["vms"]
    assert wrong["blind"] == right["blind"]
    assert wrong_trace["vms"] == right_trace["vms"]
    assert wrong_trace["blind"] == right_trace["blind"]
