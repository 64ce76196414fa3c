"""The provider's clock beside ours, measured by the `Date` of its answers."""

import math
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import msgspec
import pytest
import uvicorn
from hypothesis import example, given
from hypothesis import strategies as st
from stenotest.dstack_history import START, DstackHistory
from stenotest.machines import machine_item
from stenotest.waiting import LIMIT_S

from steno.engine.fold.fold import Fold
from steno.engine.fold.poll_reader import PollReader
from steno.engine.providers.dstack.client import Client
from steno.engine.providers.dstack.settings import Address
from steno.engine.providers.registry import READINGS
from steno.engine.state.changes import AnomalyKind
from steno.engine.state.sources import skew_of
from steno.events.clock import SECOND, SystemClock
from steno.events.poll import Poll

HOUR = 3600.0


def dated(poll: Poll, *, ahead: float, took: float, old: float = 0.0) -> Poll:
    """The poll as a server answers it that took so long, took its `Date` when it began, `old` seconds late."""
    began = poll.started_at / SECOND + ahead - old
    observed = poll.started_at + round(took * SECOND)
    return msgspec.structs.replace(poll, server_time=math.floor(began) * SECOND, observed_at=observed)


def told(world: Fold) -> list[str]:
    return [anomaly.detail for anomaly in world.state.anomalies if anomaly.kind is AnomalyKind.CLOCK_SKEW]


@contextmanager
def busy_server() -> Iterator[int]:
    """A genuine uvicorn, as dstack's, whose every answer holds up its loop; others ask it all the time."""

    async def app(scope: dict[str, Any], _: object, send: Callable[[object], Awaitable[None]]) -> None:
        if scope["type"] == "http":
            time.sleep(0.3)  # as dstack does while it parses
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"[]"})

    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="off"))  # type: ignore[arg-type]
    over = threading.Event()
    threads = [threading.Thread(target=server.run)]
    threads[0].start()
    while not server.started:
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]

    def ask() -> None:
        with httpx.Client(timeout=LIMIT_S) as client:
            while not over.is_set():
                client.post(f"http://127.0.0.1:{port}/")

    threads += [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads[1:]:
        thread.start()
    try:
        yield port
    finally:
        over.set()
        for thread in threads[1:]:
            thread.join()
        server.should_exit = True
        threads[0].join()


@pytest.mark.slow
def test_a_busy_server_whose_date_is_old_is_not_behind() -> None:
    """It renews its `Date` only when its loop comes round: here it is seconds older than the question."""
    with busy_server() as port:
        address = Address(url=f"http://127.0.0.1:{port}", project="main", token="t" * 10, loopback=True)
        client, old = Client(address, SystemClock()), False
        for _ in range(60):
            answer = client.ask("/api/x")
            assert answer.server_time is not None
            assert skew_of(answer.server_time, answer.started_at, answer.observed_at) == 0
            old = answer.server_time + 3 * SECOND < answer.started_at
            if old:
                break
        client.close()
    assert old, "its date was never old: this shows nothing"


@given(
    apart=st.floats(-2, 2),
    took=st.floats(0.001, 119),
    old=st.floats(0, 57),
    began=st.floats(0, 1),
    second=st.floats(0, 1),
)
@example(apart=0, took=5, old=3, began=0, second=0.5)
@example(apart=0, took=30, old=0, began=0, second=0)
def test_equal_clocks_never_seem_apart(apart: float, took: float, old: float, began: float, second: float) -> None:
    """For any duration of an answer, any moment of its date, and any age of that date."""
    started = START + round(second * SECOND)
    date = math.floor(started / SECOND + apart + began * took - old) * SECOND
    assert skew_of(date, started, started + round(took * SECOND)) == 0


@given(
    ahead=st.sampled_from([3.5, 10.0, HOUR, -70.0, -HOUR]) | st.floats(-2 * HOUR, 2 * HOUR),
    took=st.floats(0.001, 30),
    began=st.floats(0, 1),
    old=st.floats(0, 1),
    second=st.floats(0, 1),
)
def test_a_skew_is_never_too_small(ahead: float, took: float, began: float, old: float, second: float) -> None:
    """A date that is at most a second old gives a skew between the true one and that plus what the answer took and two
    seconds; or none, where the clocks may be equal.
    """
    started = START + round(second * SECOND)
    date = math.floor(started / SECOND + ahead + began * took - old) * SECOND
    skew = skew_of(date, started, started + round(took * SECOND)) / SECOND
    assert skew == 0 or ahead - 1e-5 <= skew <= ahead + took + 2 + 1e-5
    if ahead > took + 4 or ahead < -took - 64:
        assert skew != 0


@pytest.mark.parametrize(
    ("ahead", "took", "expected"),
    [
        (0, 5, None),
        (0, 30, None),
        (3.5, 0.01, "its clock is 3 s ahead of ours"),
        (3.5, 5, None),
        (-3, 0.01, None),  # a date that is three seconds old says no more
        (-3, 5, None),
        (HOUR, 0.01, "its clock is 3600 s ahead of ours"),
        (HOUR, 30, "its clock is 3570 s ahead of ours"),
        (-HOUR, 0.01, "its clock is 3598 s behind ours"),
        (-HOUR, 30, "its clock is 3598 s behind ours"),
    ],
)
def test_slow_answers_and_true_skews(ahead: float, took: float, expected: str | None) -> None:
    """The date is taken when the server begins: the answer's end says nothing of it."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    for number, poll in DstackHistory().machines(machine_item()).polls():
        assert poll is not None
        world.apply(reader.read(number, dated(poll, ahead=ahead, took=took)))
    assert told(world) == ([] if expected is None else [expected])


def test_a_skew_that_appears_and_goes_is_told_twice() -> None:
    """And not again while slow answers and old dates do not contradict it."""
    world, reader = Fold(READINGS), PollReader(READINGS)
    clock = [(0, 0.1, 0), (HOUR, 0.1, 0), (HOUR, 20, 0), (HOUR, 1, 15), (HOUR, 0.1, 0.9), (0, 0.1, 0.5), (0, 30, 30)]
    story = DstackHistory()
    for number in range(len(clock)):
        story = story.machines(*(machine_item(f"m{n}") for n in range(number + 1))).wait(120)
    for (number, poll), (ahead, took, old) in zip(story.polls(), clock, strict=True):
        assert poll is not None
        world.apply(reader.read(number, dated(poll, ahead=ahead, took=took, old=old)))
    assert told(world) == ["its clock is 3600 s ahead of ours", "its clock is ours again"]


STAYS = st.sampled_from([0.0, -3.0, 30.0, -70.0, HOUR, -HOUR]).map(lambda ahead: (ahead, ahead))
MOVES = st.permutations([0.0, -HOUR, HOUR]).map(lambda pair: (pair[0], pair[1]))
LATE = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
SHORT = st.tuples(st.floats(0.01, 20), st.floats(0.01, 20), st.floats(0.01, 20))


@given(ahead=STAYS | MOVES, took=SHORT, old=LATE, ends_given=st.booleans())
def test_a_shifted_machine_is_never_billed_short(
    ahead: tuple[float, float], took: tuple[float, float, float], old: tuple[float, float, float], ends_given: bool
) -> None:
    """It was made at 10 s and ended at 400 s; the provider's clock may be set in between. Another machine is first seen
    in the last answer, so that the clocks are compared there too.
    """
    before, after = ahead
    made, gone = 10.0, 400.0
    item = machine_item(created=made + before)
    last = machine_item(created=made + before, status="terminated", finished=gone + after if ends_given else None)
    story = DstackHistory(now=40).machines(item).wait(300).machines(item).wait(100).machines(last, machine_item("b"))
    world, reader = Fold(READINGS), PollReader(READINGS)
    for (number, poll), clock, lasted, late in zip(story.polls(), (before, after, after), took, old, strict=True):
        assert poll is not None
        world.apply(reader.read(number, dated(poll, ahead=clock, took=lasted, old=late)))
    vm = next(iter(world.state.vms.all()))
    assert vm.finished_at is not None
    lived = (vm.finished_at - vm.created) / SECOND
    assert lived >= gone - made - 1e-5
    if ends_given and before == after:
        assert lived == pytest.approx(gone - made)


def test_an_old_date_bills_nothing_short() -> None:
    """As happened: a machine was first met in an answer whose date was three seconds old."""
    item, last = machine_item(created=10), machine_item(created=10, status="terminated", finished=400)
    story = DstackHistory(now=40).machines(item).wait(400).machines(last, machine_item("b", created=430))
    story = story.wait(300).machines(last, machine_item("b", created=430, status="terminated", finished=700))
    world, reader = Fold(READINGS), PollReader(READINGS)
    for (number, poll), late in zip(story.polls(), (0, 4, 0), strict=True):
        assert poll is not None
        world.apply(reader.read(number, dated(poll, ahead=0, took=1, old=late)))
    lives = [((vm.finished_at or 0) - vm.created) / SECOND for vm in world.state.vms.all()]
    assert (lives, told(world)) == ([390.0, 270.0], [])
