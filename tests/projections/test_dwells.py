"""Dwells: what waits for longer than the others of its kind."""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stenotest.dstack_history import DstackHistory, Item, job, run_item, submission
from stenotest.machines import machine_item

from steno.engine.money.report import rank
from steno.engine.notify.dwells import LEAST
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers.dwells import Dwell, dwells
from steno.projections.answers.incidents import unusual
from steno.projections.read_models.past_worlds import as_it_was, opened
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.view import View

Recorded = Callable[[Path, Sequence[Poll]], Record]


def train(number: int, status: str, *, name: str = "train", exit_status: int | None = None) -> Item:
    """A run of that name; each number is a run of its own."""
    newest = submission(status, exit_status=exit_status, submitted=number * 1000)
    word = {"terminated": "done"}.get(status, status)
    return run_item(name, word, job(newest), label=f"{name}-{number}", submitted=number * 1000)


def history(count: int, name: str = "train") -> DstackHistory:
    """Runs that were provisioning for 60 to 79 s, one after another."""
    story = DstackHistory()
    for number in range(count):
        story.now = number * 1000
        story.listed(train(number, "provisioning", name=name)).wait(60 + number % 20)
        story.listed(train(number, "running", name=name)).wait(10)
        story.listed(train(number, "terminated", name=name, exit_status=0)).wait(1)
    return story


def lasting(recorded: Recorded, folder: Path, story: DstackHistory) -> tuple[Dwell, ...]:
    polls = [poll for _, poll in story.polls() if poll is not None]
    with recorded(folder / f"{len(polls)}.db", polls) as record, caught_up(record) as store:
        return dwells(View(store))


def waiting(story: DstackHistory, number: int, seconds: int, name: str = "train") -> DstackHistory:
    """One more run, polled every 10 s while it is provisioning."""
    story.now = number * 1000
    for _ in range(seconds // 10 + 1):
        story.listed(train(number, "provisioning", name=name)).wait(10)
    return story


@pytest.mark.parametrize(("seconds", "stuck"), [(50, False), (70, False), (90, True), (600, True)])
def test_what_waits_longer_than_its_kind_is_stuck(
    seconds: int, stuck: bool, recorded: Recorded, tmp_path: Path
) -> None:
    """95 % of 25 runs of the name were provisioning for at most 78 s."""
    (dwell,) = lasting(recorded, tmp_path, waiting(history(25), 30, seconds))
    assert (dwell.name, dwell.state, dwell.seconds, dwell.stuck) == ("train", "provisioning", seconds, stuck)
    assert (dwell.among, dwell.samples, dwell.p95_seconds) == ("runs named train", 25, 78)
    assert dwell.more == f"steno explain {dwell.subject.removeprefix('run/')}"


def test_it_is_over_when_it_moves_on(recorded: Recorded, tmp_path: Path) -> None:
    story = waiting(history(25), 30, 600)
    assert lasting(recorded, tmp_path, story)[0].stuck
    story.listed(train(30, "running"))
    assert lasting(recorded, tmp_path, story) == ()


def test_a_name_of_few_runs_is_compared_with_its_gpu(recorded: Recorded, tmp_path: Path) -> None:
    """And nothing is judged where those are few as well."""
    (dwell,) = lasting(recorded, tmp_path, waiting(history(25), 30, 600, name="new"))
    assert (dwell.among, dwell.samples, dwell.stuck) == ("dstack runs on no GPU", 25, True)
    (dwell,) = lasting(recorded, tmp_path, waiting(history(LEAST - 1), 30, 610, name="new"))
    assert (dwell.samples, dwell.p95_seconds, dwell.stuck) == (LEAST - 1, None, False)


def test_time_in_which_nobody_looked_makes_nothing_stuck(recorded: Recorded, tmp_path: Path) -> None:
    """It depends on the record only: up to the newest answer, whatever the time is now."""
    story = waiting(history(25), 30, 50).wait(9000)
    (dwell,) = lasting(recorded, tmp_path, story)
    assert (dwell.seconds, dwell.stuck) == (50, False)
    story.failed()
    assert lasting(recorded, tmp_path, story)[0].seconds == 50


def test_a_machine_is_compared_with_those_of_its_kind(recorded: Recorded, tmp_path: Path) -> None:
    """The kind is backend and GPU: 20 were terminating for 30 s."""
    story = DstackHistory()
    gone: list[Item] = []
    for number in range(LEAST):
        label, created = f"vm-{number}", story.now
        story.machines(machine_item("vm", "idle", label=label, created=created), *gone).wait(20)
        story.machines(machine_item("vm", "terminating", label=label, created=created), *gone).wait(30)
        gone.insert(0, machine_item("vm", "terminated", label=label, created=created, finished=story.now))
        story.machines(*gone).wait(20)
    for status in ("idle", *("terminating",) * 6):
        story.machines(machine_item("vm", status, label="last", created=story.now if status == "idle" else 0), *gone)
        story.wait(10)
    (dwell,) = lasting(recorded, tmp_path, story)
    assert (dwell.state, dwell.seconds, dwell.samples, dwell.p95_seconds) == ("terminating", 50, LEAST, 30)
    assert dwell.stuck
    assert "MI300X".lower() in dwell.among


def test_dwells_depend_on_the_record_only(recorded: Recorded, tmp_path: Path) -> None:
    """However the read models were made, and at any moment as they were then."""
    polls = [poll for _, poll in waiting(history(25), 30, 100).polls() if poll is not None]
    with recorded(tmp_path / "record.db", polls) as record, caught_up(record) as store:
        head = record.head().position
        with as_it_was(record, head) as folded, opened(record, head - 5) as past:
            assert dwells(View(folded)) == dwells(View(store))
            assert [dwell.seconds for dwell in dwells(View(past))] < [dwell.seconds for dwell in dwells(View(store))]


@given(samples=st.lists(st.integers(0, 10**9), min_size=1, max_size=200))
def test_the_95th_percentile_is_a_sample_that_few_exceed(samples: list[int]) -> None:
    usual = rank(sorted(samples), 95)
    assert usual is not None
    assert usual in samples
    assert 20 * sum(sample > usual for sample in samples) <= len(samples)
    assert 20 * sum(sample >= usual for sample in samples) >= len(samples)


# -- moves from state to state -----------------------------------------------------------------------------------------


def test_a_move_that_none_of_a_hundred_had_made_is_listed_once(recorded: Recorded, tmp_path: Path) -> None:
    """A run goes back from running to the queue, for the first time; the next run to do so is not listed."""
    story = DstackHistory()
    for number in range(104):
        story.now = number * 100
        words = ("running", "pending", "running") if number >= 102 else ("running",)
        for word in (*words, "terminated"):
            story.listed(train(number, word, exit_status=0 if word == "terminated" else None)).wait(10)
    polls = [poll for _, poll in story.polls() if poll is not None]
    with recorded(tmp_path / "record.db", polls) as record, caught_up(record) as store:
        look = Look(record=record, view=View(store), position=record.head().position, now=story.start)
        again, back = unusual(look)
        for note, move in ((back, "running → queued"), (again, "queued → running")):
            assert note.kind == "new_transition"
            assert note.detail == f"{move}: none of 102 runs of dstack had done so before"
            assert note.more == f"steno explain {note.subject.removeprefix('run/')}"
        assert back.subject == again.subject
        with opened(record, back.position - 1) as before:
            assert unusual(msgspec.structs.replace(look, view=View(before))) == ()
        with as_it_was(record, record.head().position) as folded:
            assert folded.moves() == store.moves()
