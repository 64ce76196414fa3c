"""The law of a site: a record that is split in two by source answers, over both parts, as the whole record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from stenotest.records import StandingClock

from engine.money.tables import Tabled
from engine.providers.readings import READINGS
from engine.replay.trace import open_trace
from engine.wire import wire
from events.clock import SECOND
from events.poll import Poll
from events.store.record import Record
from projections.api.reads import READS
from projections.api.reads.read import RowPage
from projections.models.projector import caught_up
from projections.site.looks import looks
from projections.site.pages import merged_page
from projections.site.reads import _SUMS

if TYPE_CHECKING:
    from events.clock import Clock
    from projections.site.site import RecordSet

    Unserved = Callable[[Mapping[str, Path], Clock], AbstractContextManager[RecordSet]]

TRACES = Path(__file__).parent.parent / "traces" / "dstack-0.22.5"
NAMES = ("success", "failure", "warm_reuse", "several", "retry_success", "no_capacity")
THIN = 6  # of so many polls one is taken, and the last of each path
READ = {read.path: read for read in READS}
ORDERS = {
    "time": itemgetter("submitted_at"),
    "name": itemgetter("name"),
    "duration": lambda run: -1 if run["execution_seconds"] is None else run["execution_seconds"],
    "cost": lambda run: run["cost_usd"] or "",
}
SIMPLE = {
    "/api/events": ("events", ("stream", "type", "observed_at", "recorded_at")),
    "/api/polls": ("polls", ("source", "path", "t", "status")),
    "/api/incidents": ("anomalies", ("kind", "subject", "at")),
}
SUMS = ("/api/spend", "/api/utilisation", "/api/starts", "/api/offers", "/api/filters")


def polls_of(name: str) -> list[Poll]:
    """Some polls of one recording's own source."""
    found = [poll for _, poll in open_trace(TRACES / f"{name}.jsonl.zst") if poll and "/api/project/" in poll.path]
    last = {poll.path: place for place, poll in enumerate(found)}
    return [poll for place, poll in enumerate(found) if place % THIN == 0 or place in last.values()]


@pytest.fixture(scope="module")
def stories() -> dict[str, list[Poll]]:
    """The polls of each source. All end at one moment, up to which open machines are billed."""
    found = {name: polls_of(name) for name in NAMES}
    end = max(poll.observed_at for polls in found.values() for poll in polls) + SECOND
    for polls in found.values():
        polls.append(msgspec.structs.replace(polls[-1], started_at=end - 1, observed_at=end))
    return found


def written(path: Path, clock: StandingClock, stories: Sequence[list[Poll]]) -> Path:
    """A record of these sources, each poll appended when it was answered."""
    clock.sleep(0)
    with Record.open(path, write=True, create=True, shapes=READINGS.shape, clock=clock) as record:
        for poll in sorted((poll for polls in stories for poll in polls), key=lambda poll: poll.observed_at):
            clock.sleep(poll.observed_at - clock.now())
            record.append_polls([poll])
    with Record.open(path, shapes=READINGS.shape, clock=clock) as record, caught_up(record):
        return path


@pytest.fixture(scope="module")
def whole(
    stories: dict[str, list[Poll]], unserved: Unserved, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RecordSet]:
    """The record of all sources."""
    clock = StandingClock(0)
    path = written(tmp_path_factory.mktemp("whole") / "whole.db", clock, list(stories.values()))
    with unserved({"whole": path}, clock) as site:
        yield site


def asked_of(path: str, **given: Any) -> dict[str, Any]:
    """The parameters of a read, as its endpoint has them."""
    read = READ[path]
    names = {one.name: one.default for one in read.parameters}
    return {**names, "at": None, "min_position": None, "format": "json", **given}


def rows_of(site: RecordSet, path: str, key: str, limit: int, **given: Any) -> list[dict[str, Any]]:
    """Every row of a list, page by page."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        asked = asked_of(path, limit=limit, cursor=cursor, **given)
        with looks(site, asked) as found:
            page = msgspec.json.decode(msgspec.json.encode(merged_page(READ[path], found, asked, site.names)))
        assert len(page[key]) <= limit
        rows += page[key]
        cursor = page["next"]
        if cursor is None:
            return rows


def alone(site: RecordSet, path: str, key: str, **given: Any) -> list[dict[str, Any]]:
    """The same list as the only record's own handler gives it, in one page."""
    asked = asked_of(path, limit=500, cursor=None, **given)
    with looks(site, asked) as found:
        (seen,) = found.seen
        page = READ[path].answer(seen.member.service, seen.look, asked)
        assert isinstance(page, RowPage)
        assert page.next is None
        rows: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(page.answer()))[key]
        return rows


def summed(site: RecordSet, path: str, **given: Any) -> Any:
    """A sum over the records of a site."""
    asked = asked_of(path, **given)
    with looks(site, asked) as found:
        answer = _SUMS[path](found, asked)
        return msgspec.json.decode(msgspec.json.encode(wire(answer) if isinstance(answer, Tabled) else answer))


class Question(NamedTuple):
    """How the lists are asked for."""

    limit: int
    sort: str
    order: str
    filters: dict[str, str]
    path: str
    backwards: bool


questions = st.builds(
    Question,
    limit=st.integers(1, 12),
    sort=st.sampled_from(sorted(ORDERS)),
    order=st.sampled_from(["newest", "oldest"]),
    filters=st.sampled_from(
        [{}, {"state": "succeeded"}, {"gpu": "MI300X"}, {"source": "dstack/several"}, {"search": "a"}]
    ),
    path=st.sampled_from(sorted(SIMPLE)),
    backwards=st.booleans(),
)


@settings(max_examples=5, phases=[Phase.explicit, Phase.generate])
@given(
    left=st.sets(st.sampled_from(NAMES), min_size=1, max_size=len(NAMES) - 1),
    asked=st.lists(questions, min_size=3, max_size=3),
)
def test_a_split_record_answers_as_the_whole(
    left: set[str],
    asked: list[Question],
    whole: RecordSet,
    stories: dict[str, list[Poll]],
    unserved: Unserved,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Lists in the same order whatever filters, order and size of a page; sums to the last micro-dollar."""
    folder, clock = tmp_path_factory.mktemp("split"), StandingClock(0)
    parts = {
        "left": [polls for name, polls in stories.items() if name in left],
        "right": [polls for name, polls in stories.items() if name not in left],
    }
    paths = {}
    for name, some in parts.items():
        clock = StandingClock(0)
        paths[name] = written(folder / f"{name}.db", clock, some)
    with unserved(paths, clock) as site:
        for one in asked:
            _runs_agree(site, whole, one)
            _lists_agree(site, whole, one)
        _sums_agree(site, whole)


def _runs_agree(site: RecordSet, whole: RecordSet, asked: Question) -> None:
    given = {"sort": asked.sort, "order": asked.order, **asked.filters}
    found = rows_of(site, "/api/runs", "runs", asked.limit, **given)
    expected = alone(whole, "/api/runs", "runs", **given)
    by: Callable[[Any], Any] = ORDERS[asked.sort]
    assert list(map(by, found)) == list(map(by, expected))
    assert sorted(map(_run, found)) == sorted(map(_run, expected))
    if asked.sort == "time":
        assert list(map(_run, found)) == list(map(_run, expected))


def _run(run: dict[str, Any]) -> str:
    """A run without what is of its record: its name and positions."""
    kept = {key: value for key, value in run.items() if key not in ("record", "evidence")}
    return re.sub(r'"position":\d+', "", msgspec.json.encode(kept).decode())


def _lists_agree(site: RecordSet, whole: RecordSet, asked: Question) -> None:
    key, names = SIMPLE[asked.path]
    given = {} if asked.path == "/api/incidents" else {"backwards": asked.backwards}
    chosen = itemgetter(*names)
    expected = list(map(chosen, rows_of(whole, asked.path, key, 500, **given)))
    found = list(map(chosen, rows_of(site, asked.path, key, asked.limit * 20, **given)))
    last = [row for row in expected if row[2] == expected[0 if asked.backwards else -1][2]]  # polls of one moment
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert [row for row in found if row not in last] == [row for row in expected if row not in last]
    found_vms = rows_of(site, "/api/vms", "vms", asked.limit)
    whole_vms = alone(whole, "/api/vms", "vms")
    assert sorted(map(_vm, found_vms)) == sorted(map(_vm, whole_vms))


def _vm(vm: dict[str, Any]) -> str:
    return msgspec.json.encode({key: value for key, value in vm.items() if key != "record"}).decode()


def _sums_agree(site: RecordSet, whole: RecordSet) -> None:
    for by in ("vm", "run", "day", "user", "gpu"):
        found, expected = (summed(one, "/api/costs", by=by) for one in (site, whole))
        rows = [
            sorted(({**row, "record": None} for row in one["rows"]), key=lambda row: str(row["key"]))
            for one in (found, expected)
        ]
        assert rows[0] == rows[1]
        assert {**found, "rows": []} == {**expected, "rows": []}
    for path in SUMS:
        asked = {"since": None, "until": None} if path in SUMS[:3] else {}
        assert summed(site, path, **asked) == summed(whole, path, **asked)
    budget, of_whole = summed(site, "/api/budget"), summed(whole, "/api/budget")
    assert {**budget, "parts": None} == {**of_whole, "parts": None}
    overview, expected = summed(site, "/api/overview"), summed(whole, "/api/overview")
    assert overview["burn"] == expected["burn"]
    assert overview["today"] == expected["today"]
    assert overview["anomalies"]["count"] == expected["anomalies"]["count"]
    for key in ("running", "recent"):
        assert sorted(map(_run, overview[key])) == sorted(map(_run, expected[key]))
