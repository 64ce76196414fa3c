"""Appending polls: lossless, one observation for what changed, nothing for what did not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from stenotest.records import START, poll_of

from steno.events.clock import SECOND, foreign_run_id
from steno.events.errors import IdConflict, PositionNotFound
from steno.events.shape.shape import BodyShape
from steno.events.types import RunObserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from steno.events.poll import Poll
    from steno.events.store.record import Record

    Opener = Callable[..., Record]

SHAPE = BodyShape(kind="run", items="[]", volatile=("cost", "jobs[].seen"), cold=("spec", "jobs[].spec"))
ONE = BodyShape(kind="run", volatile=SHAPE.volatile, cold=SHAPE.cold)
LOG = BodyShape(kind="provider_event", items="[]")


def shapes(path: str, req: bytes, /) -> BodyShape | None:
    return {"/runs": SHAPE, "/run": ONE, "/log": LOG}.get(path)


def run(name: str, *, status: str = "running", cost: float = 0.1, seen: str = "2026-11-20T13:37:20.737094Z") -> dict:
    spec = {"commands": ["a command that is long enough to be worth a part of its own", name]}
    return {"id": name, "status": status, "cost": cost, "jobs": [{"seen": seen, "spec": spec}], "spec": spec}


def listing(*runs: dict, at: int = START, path: str = "/runs", took: int = 20_000) -> Poll:
    return poll_of(msgspec.json.encode(list(runs)), path=path, at=at, took=took)


def test_only_a_change_is_an_observation(opener: Opener) -> None:
    """Volatile values move without anything having happened; a new status is news, once."""
    record = opener(shapes)
    first = record.append_polls([listing(run("a"), run("b"))])[0]
    assert [(kind, name) for kind, name, _ in first.changed] == [("run", "a"), ("run", "b")]
    assert record.append_polls([listing(run("a", cost=0.2), run("b"))])[0].changed == ()
    changed = record.append_polls([listing(run("a", cost=0.3), run("b", status="done"))])[0]
    assert changed.changed == (("run", "b", f"run/{foreign_run_id('dstack', 'b')}"),)
    assert [event.type for event in record.read()] == [
        "PollRecorded", "RunObserved", "RunObserved", "PollRecorded", "PollRecorded", "RunObserved",
    ]  # fmt: skip
    assert [event.data for event in record.read(after=5)] == [RunObserved(poll=5, provider_id="b")]
    assert record.changed(5) == (changed.changed[0][2],)


def test_what_another_process_saw_is_no_news(opener: Opener) -> None:
    """A change is decided inside the transaction, against what any process has written."""
    record, other = opener(shapes), opener(shapes)
    record.append_polls([listing(run("a"))])
    assert other.append_polls([listing(run("a"))])[0].changed == ()
    other.append_polls([listing(run("a", status="done"))])
    assert record.append_polls([listing(run("a", status="done"))])[0].changed == ()
    assert record.verify().ok


def test_an_answer_asked_for_earlier_is_no_news(opener: Opener) -> None:
    """A slow answer that left before the newest one shown is recorded and moves nothing."""
    record = opener(shapes)
    record.append_polls([listing(run("a"), at=START)])
    record.append_polls([listing(run("a", status="done"), at=START + 2 * SECOND)])
    late = poll_of(msgspec.json.encode(run("a")), path="/run", at=START + 3 * SECOND, took=2 * SECOND)
    assert record.append_polls([late])[0].changed == ()


def test_the_stream_of_an_item_can_be_chosen(opener: Opener) -> None:
    """A run that was submitted under an id of our own is observed on its stream."""
    record = opener(shapes)
    given_items: list[dict[str, object]] = []

    def stream_of(kind: str, provider_id: str, item: int) -> str:
        given_items.append(json.loads(record.item(item)))
        return f"{kind}/ours-{provider_id}"

    record.append_polls([listing(run("a"))], stream_of=stream_of)
    assert record.version("run/ours-a") == 1
    assert [item["id"] for item in given_items] == ["a"]


def test_an_entry_of_the_providers_log_is_seen_once(opener: Opener) -> None:
    """First sight of an id is an event on the source's stream; the same page again is not."""
    record = opener(shapes)
    page = [{"id": "e2", "message": "two"}, {"id": "e1", "message": "one"}]
    assert len(record.append_polls([listing(*page, path="/log")])[0].changed) == 2
    again = record.append_polls([listing({"id": "e3", "message": "three"}, *page, path="/log")])[0]
    assert again.changed == (("provider_event", "e3", "source/dstack/main"),)
    other = opener(shapes)
    assert other.append_polls([listing(*page, path="/log")])[0].changed == ()


def test_a_listing_names_its_items_and_equal_items_share_a_part(opener: Opener) -> None:
    """Item parts are equal exactly when the items are, apart from volatile values; `items` gives them whole."""
    record = opener(shapes)
    first, two, three = record.append_polls(
        [
            listing(run("a"), run("b")),
            listing(run("a", cost=0.5), run("b", status="done")),
            poll_of(msgspec.json.encode(run("a")), path="/run"),
        ]
    )
    rows = {row[0]: row for row in record.scan()}
    assert list(rows) == [first.position, two.position, three.position]
    before, after, single = (record.children(rows[appended.position][6]) for appended in (first, two, three))
    assert before[0] == single[0] == "run"
    assert [(kind, name) for kind, name, _ in first.changed] == [("run", "a"), ("run", "b")]
    assert before[1][0] == after[1][0] == single[1][0]
    assert before[1][1] != after[1][1]
    bare = run("a") | {"cost": None}
    bare["jobs"] = [bare["jobs"][0] | {"seen": None}]
    assert json.loads(record.item(before[1][0])) == bare
    assert [json.loads(item) for item in record.items(two.position)] == [run("a", cost=0.5), run("b", status="done")]
    assert record.scope(rows[first.position][5]).path == "/runs"


def test_a_poll_with_the_same_id_is_appended_once(opener: Opener) -> None:
    """The same poll again is known, another one under its id a conflict that appends nothing."""
    record = opener(shapes)
    polls = [listing(run("a")), listing(run("a", cost=0.3), at=START + SECOND)]
    ids = ["01" * 8, "02" * 8]
    assert [appended.appended for appended in record.append_polls(polls, ids=ids)] == [True, True]
    head = record.head()
    again = record.append_polls([*polls, *polls], ids=ids * 2)
    assert [(appended.position, appended.appended) for appended in again] == [(1, False), (3, False)] * 2
    with pytest.raises(IdConflict):
        record.append_polls([listing(run("z")), polls[1]], ids=["03" * 8, ids[0]])
    with pytest.raises(IdConflict):
        record.append_polls(polls, ids=["04" * 8] * 2)
    assert record.head() == head
    assert record.append_polls([listing(run("a", cost=0.4))])[0].position == head.position + 1
    assert record.verify().ok


def test_a_position_that_is_no_poll_is_refused_by_name(opener: Opener) -> None:
    """Asking for the poll of an observation, or beyond the end, says so."""
    record = opener(shapes)
    record.append_polls([listing(run("a"))])
    for position in (0, 2, 3, 1 << 70):
        with pytest.raises(PositionNotFound):
            record.poll(position)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
    | st.sampled_from(
        ["2026-11-20T13:37:20.737094Z", "2026-11-20T13:37:20.737094+00:00", "0001-01-01T00:00:00.000000Z"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["id", "cost", "spec", "jobs", "seen", "status", "ü"]), inner, max_size=5)
    ),
    max_leaves=12,
)
ITEMS = st.fixed_dictionaries({"id": st.sampled_from("ab"), "cost": JSON, "spec": JSON, "jobs": JSON})
BODIES = JSON | st.lists(ITEMS, max_size=3) | ITEMS


@settings(suppress_health_check=[*settings.default.suppress_health_check, HealthCheck.function_scoped_fixture])
@given(
    answers=st.lists(st.tuples(st.sampled_from(["/runs", "/run", "/log", "/other"]), BODIES, st.booleans()), max_size=8)
)
def test_every_answer_comes_back_equal(answers: list[tuple[str, object, bool]], opener: Opener) -> None:
    """Whatever JSON a provider sends, compact or not, whole or cut along a shape, equals what is read back."""
    polls = [
        poll_of(
            json.dumps(body).encode()
            if spaced
            else json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(),
            path=path,
            at=START + number * SECOND,
        )
        for number, (path, body, spaced) in enumerate(answers)
    ]
    with opener(shapes) as record, opener(shapes, write=False) as reader:
        results = record.append_polls(polls)
        for appended, (_, body, _), poll in zip(results, answers, polls, strict=True):
            back = reader.poll(appended.position)
            assert back.body is not None
            assert json.loads(back.body) == body
            assert msgspec.structs.replace(back, body=poll.body) == poll
        assert record.verify().ok
