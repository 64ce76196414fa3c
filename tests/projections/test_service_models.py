"""The pages of the service, over genuine recordings: now, and at any moment before."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from stenotest.big import big_record
from stenotest.dstack_history import START
from stenotest.whole_costs import cost_report

from steno.engine.decide.budget import account, metrics, starts_of
from steno.engine.money.costs import Costs
from steno.engine.state.policy import Policy, Rate
from steno.engine.wire import money, wire
from steno.events.clock import SECOND, SystemClock, format_time, parse_time
from steno.events.errors import PositionNotFound
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.answers import incidents
from steno.projections.answers import record_pages as browse
from steno.projections.answers.incidents import record_object
from steno.projections.answers.offers import offers
from steno.projections.answers.overview import burn, lanes, overview, policy_then, spent_at
from steno.projections.read_models.projector import Lag
from steno.projections.read_models.reader_pool import Look, Pool

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]
POLICY = Policy()
KINDS = {"RunObserved"}
KEYS = {
    "position",
    "at",
    "head",
    "sources",
    "running",
    "queued",
    "recent",
    "today",
    "budget",
    "burn",
    "idle_inside",
    "last_lines",
    "window",
    "lanes",
    "anomalies",
    "blind",
}


class At(SystemClock):
    """A clock that stands."""

    def __init__(self, moment: int) -> None:
        self.moment = moment

    def now(self) -> int:
        """Always the same."""
        return self.moment


@pytest.fixture(params=["dstack-0.22.5/warm_reuse", "dstack-0.22.5/several", "dstack-0.19.37/flap"])
def pool(request: pytest.FixtureRequest, tmp_path: Path, recording: Polls, recorded: Recorded) -> Iterator[Pool]:
    """A pool over a recording, seen a minute after its last poll."""
    polls = recording(request.param)
    recorded(tmp_path / "record.db", polls).close()
    made = Pool(tmp_path / "record.db", clock=At(polls[-1].observed_at + 60 * SECOND))
    yield made
    made.close()


@pytest.fixture(scope="module")
def weeks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pool]:
    """A pool over two days of a busy project, seen at their end."""
    path = tmp_path_factory.mktemp("weeks") / "record.db"
    big_record(path, events=45_000, until=START)
    with Record.open(path, clock=SystemClock()) as record:
        last = next(iter(record.read(after=record.head().position - 1, limit=1))).observed_at
    made = Pool(path, clock=At(last + SECOND))
    yield made
    made.close()


def moments(pool: Pool, count: int = 4) -> Iterator[Look]:
    """Looks at now and at so many moments before."""
    with pool.now() as look:
        head = look.position
        yield look
    for part in range(1, count):
        with pool.at(max(1, head * part // count)) as look:
            yield look


def test_the_overview_is_complete_and_sums_to_what_the_money_commands_say(pool: Pool) -> None:
    """The budget is that of the whole world, today is the day's row of the cost report, the curve ends at what was
    spent; now and at every moment before.
    """
    for look in moments(pool):
        answer = msgspec.json.decode(msgspec.json.encode(wire(overview(look, POLICY))))
        assert set(answer) == KEYS
        whole = look.view.whole()
        standing = account(whole, POLICY, look.now)
        assert answer["budget"] == wire(standing)
        assert look.view.figures(POLICY, look.now) == metrics(whole, standing, starts_of(whole))
        rows = {row.key: row.total_usd for row in cost_report(Costs(whole), "day").rows}
        assert answer["today"]["spent_usd"] == money(rows.get(answer["at"][:10], 0))
        assert answer["today"]["from"] == answer["at"][:10] + "T00:00:00.000000Z"
        ended = [run for run in look.view.runs() if run.ended]
        assert len(answer["recent"]) == min(10, len(ended))
        assert {run["run_id"] for run in answer["running"]} == {run.run_id for run in look.view.runs() if not run.ended}
        counted = {state: answer["today"][state] for state in ("succeeded", "failed", "stopped")}
        assert counted == {
            state: sum(
                run.state == state and run.transitions[-1].at[:10] == answer["at"][:10] for run in look.view.runs()
            )
            for state in counted
        }
        assert answer["anomalies"]["count"] == len(look.view.store.anomalies())
        if answer["burn"]:
            assert answer["burn"][-1]["spent_usd"] == answer["budget"]["spent_usd"]


@pytest.mark.slow
@pytest.mark.xdist_group("weeks")
def test_recent_runs_come_newest_verdict_first(weeks: Pool) -> None:
    """As a person reads them."""
    with weeks.now() as look:
        answer = msgspec.json.decode(msgspec.json.encode(wire(overview(look, POLICY))))
        verdicts = [run["transitions"][-1]["position"] for run in answer["recent"]]
        assert len(verdicts) == 10
        assert verdicts == sorted(verdicts, reverse=True)


@pytest.mark.slow
@pytest.mark.xdist_group("weeks")
def test_what_is_settled_is_summed_and_not_decoded(weeks: Pool) -> None:
    """The budget of a long record is that of all its machines, from the few of the last day."""
    for look in moments(weeks, 3):
        whole = look.view.whole()
        state, settled = look.view.ledger(look.now)
        assert len(state.vms) < len(whole.vms) or look.past
        for policy in (POLICY, Policy(budget_total=1_000_000), Policy(budget_total=None)):
            standing = account(whole, policy, look.now)
            assert account(state, policy, look.now, settled) == standing
            assert look.view.figures(policy, look.now) == metrics(whole, standing, starts_of(whole))


@pytest.mark.slow
@pytest.mark.xdist_group("weeks")
def test_the_curve_of_what_was_spent_only_rises(weeks: Pool) -> None:
    """At most 120 points, from the first machine to the moment looked from; each is what the machines cost by then."""
    with weeks.now() as look:
        points = burn(look)
        sums = [point.spent for point in points]
        assert 100 < len(points) <= 120
        assert sums == sorted(sums)
        assert sums[0] == 0
        middle = points[60].at
        exact = sum(
            interval.cost * max(0, min(middle, until) - interval.since) / (until - interval.since)
            for bill in Costs(look.view.whole()).bills().values()
            for interval in bill.intervals
            if (until := bill.until if interval.until is None else interval.until) > interval.since
        )
        assert abs(sums[60] - exact) < 10


def test_a_stretch_of_no_length_is_spent_at_its_moment() -> None:
    """As what a backend's rounding adds at the end of a machine."""
    assert spent_at([0, 10, 20, 30], [(0, 20, 100), (20, 20, 7), (30, 30, 5)]) == [0, 50, 107, 112]


@pytest.mark.slow
@pytest.mark.xdist_group("weeks")
def test_lanes_hold_the_machines_of_the_window_and_who_was_on_them(weeks: Pool) -> None:
    """Six hours back; runs that lie outside are left out."""
    with weeks.now() as look:
        window, lanes_shown = lanes(look)
        assert window.end - window.start == 6 * 3600 * SECOND
        assert len(lanes_shown) > 10
        for lane in lanes_shown:
            last = lane.vm.intervals[-1].end
            assert last is None or last >= format_time(window.start)
            assert all(run.end is None or run.end >= window.start for run in lane.runs)
            assert {run.run_id for run in lane.runs} <= set(lane.vm.runs)
            for run in lane.runs:
                known = look.view.run(run.run_id)
                assert (known.name, known.state, known.start) == (run.name, run.state, run.run_start)


def test_where_no_machine_was_lately_the_newest_ones_life_is_shown(
    tmp_path: Path, recording: Polls, recorded: Recorded
) -> None:
    """A week later the page is not empty."""
    polls = recording("dstack-0.22.5/warm_reuse")
    recorded(tmp_path / "record.db", polls).close()
    week = parse_time((datetime.now(UTC) + timedelta(days=7)).isoformat())
    with closing(Pool(tmp_path / "record.db", clock=At(week))) as pool, pool.now() as look:
        window, lanes_shown = lanes(look)
        assert len(lanes_shown) == 1
        assert window.end < week
        assert window.start < window.end


@pytest.mark.slow
@pytest.mark.xdist_group("weeks")
def test_anomalies_come_newest_first_page_by_page_those_of_cost_among_them(weeks: Pool) -> None:
    """An anomaly of a run's figures has its place between those of polls."""
    with weeks.now() as look:
        everything = incidents.incidents(look, limit=500)
        positions = [anomaly.position for anomaly in everything.anomalies]
        assert "cost_divergence" in {anomaly.kind for anomaly in everything.anomalies}
        assert positions == sorted(positions, reverse=True)
        assert len(positions) == look.view.store.count_anomalies()
        assert everything.next is None
        paged: tuple[incidents.DatedAnomaly, ...] = ()
        behind = None
        while True:
            page = incidents.incidents(look, behind=behind, limit=1)
            paged += page.anomalies
            behind = page.next
            if behind is None:
                break
        assert paged == everything.anomalies
        counts = Counter(anomaly.kind for anomaly in everything.anomalies)
        assert {each.kind: each.count for each in everything.kinds} == counts
        for each in everything.kinds:
            alike = incidents.incidents(look, kind=each.kind, limit=500).anomalies
            assert alike == tuple(anomaly for anomaly in everything.anomalies if anomaly.kind == each.kind)
            assert (each.last_at, each.first_at) == (alike[0].at, alike[-1].at)
        odd = next(anomaly for anomaly in everything.anomalies if anomaly.kind == "cost_divergence")
        assert odd in incidents.newest(look, 500)
        run = look.view.run(odd.subject.removeprefix("run/"))
        assert "cost_divergence" in {anomaly.kind for anomaly in look.view.anomalies_of(f"run/{run.run_id}")}


def test_blind_times_that_last_come_first(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """And the others newest first."""
    polls = recording("dstack-0.22.5/server_restart")
    recorded(tmp_path / "record.db", polls).close()
    with closing(Pool(tmp_path / "record.db", clock=SystemClock())) as pool:
        for look in moments(pool, 8):
            gaps = incidents.blind(look)
            assert len(gaps) == len(look.view.store.blind()) + len(look.view.open_gaps(look.now))
            over = [gap.end for gap in gaps if gap.end is not None]
            assert over == sorted(over, reverse=True)
            assert all(gap.end is None for gap in gaps[: len(gaps) - len(over)])


def test_events_are_paged_both_ways_and_filtered(pool: Pool) -> None:
    """Every event once, whatever the size of a page, up to the moment looked at and not beyond."""
    for look in moments(pool, 3):
        forwards = list(_all(lambda behind, look=look: browse.events(look, behind=behind, limit=37)))
        backwards = list(_all(lambda behind, look=look: browse.events(look, behind=behind, limit=41, backwards=True)))
        assert [row["position"] for row in forwards] == list(range(1, look.position + 1))
        assert backwards == forwards[::-1]
        stream = str(forwards[-1]["stream"])
        mine = list(
            _all(lambda behind, look=look, stream=stream: browse.events(look, behind=behind, limit=9, stream=stream))
        )
        assert mine == [row for row in forwards if row["stream"] == stream]
        some = list(
            _all(lambda behind, look=look: browse.events(look, behind=behind, limit=9, types=KINDS, backwards=True))
        )
        assert some == [row for row in backwards if row["type"] == "RunObserved"]


def test_polls_are_paged_with_what_they_changed(pool: Pool) -> None:
    """Each row as `steno polls --json` gives it."""
    from steno.projections.answers.record_pages import poll_rows

    with pool.now() as look:
        expected = list(poll_rows(look.record, after=0, until=look.position))
        assert list(_all(lambda behind: browse.polls(look, behind=behind, limit=23))) == expected
        assert list(_all(lambda behind: browse.polls(look, behind=behind, limit=31, backwards=True))) == expected[::-1]
        source = str(expected[0]["source"])
        assert list(_all(lambda behind: browse.polls(look, behind=behind, limit=50, source=source))) == [
            row for row in expected if row["source"] == source
        ]
        failed = list(_all(lambda behind: browse.polls(look, behind=behind, limit=3, failed=True)))
        assert failed == list(poll_rows(look.record, after=0, until=look.position, failed=True))


def _all(page: Callable[[int | None], browse.Page]) -> Iterator[dict[str, object]]:
    behind = None
    while True:
        rows_page = page(behind)
        yield from rows_page.rows
        behind = rows_page.next
        if behind is None:
            return


def test_one_event_and_one_poll_are_shown_whole(pool: Pool) -> None:
    """A poll with its answer, an observation with the item it saw; nothing that was not there yet."""
    with pool.now() as look:
        polls = browse.polls(look, backwards=True, limit=200).rows
        answered = next(row for row in polls if row["changed"])
        position = answered["position"]
        assert isinstance(position, int)
        poll = msgspec.json.decode(msgspec.json.encode(browse.poll(look, position)))
        assert poll["position"] == position
        body = look.record.poll(position).body
        assert body is not None
        assert poll["body"] == msgspec.json.decode(body)
        assert {"t", "path", "req", "status", "ms", "body"} <= set(poll)
        event = msgspec.json.decode(msgspec.json.encode(browse.event(look, position)))
        assert event["poll"]["body"] == poll["body"]
        seen = msgspec.json.decode(msgspec.json.encode(browse.event(look, position + 1)))
        assert seen["observed"]["id"] == seen["data"]["provider_id"]
        with pytest.raises(PositionNotFound):
            browse.poll(look, position + 1)
        for nowhere in (0, -1, look.position + 1, 1 << 70):
            with pytest.raises(PositionNotFound):
                browse.event(look, nowhere)
    with pool.at(position - 1) as look, pytest.raises(PositionNotFound):
        browse.poll(look, position)


def test_the_record_is_a_line_with_marks(pool: Pool) -> None:
    """Its head, its ends, and at most 400 things a person looks for."""
    for look in moments(pool):
        record_answer = record_object(look, Lag(positions=0, seconds=0.0))
        head = look.record.head()
        assert record_answer.record_id == look.record.id
        assert record_answer.position == look.position
        assert (record_answer.hash == head.hash) is (look.position == head.position)
        marks = record_answer.marks
        positions = [mark.position for mark in marks]
        assert positions == sorted(positions)
        assert len(positions) <= 400
        assert all(0 < position <= look.position for position in positions)
        ended = {f"run/{run.run_id}" for run in look.view.runs() if run.ended}
        assert {mark.subject for mark in marks if mark.kind.startswith("run_")} >= ended or len(marks) > 300


@pytest.mark.slow
@pytest.mark.xdist_group("weeks")
def test_gpus_are_offered_with_the_recorded_price_or_the_assumed_one(
    tmp_path: Path, recorded: Recorded, weeks: Pool
) -> None:
    """In the words the submit page shows."""
    with weeks.now() as look:
        offered = [wire(offered) for offered in offers(look, POLICY)]
        assert offered == [
            {
                "gpu": "MI300X",
                "count": 1,
                "memory_gb": 192,
                "label": "AMD MI300X (192GB, $1.99/hr)",
                "price_usd_per_hour": "1.990000",
                "from": "recorded",
            }
        ]
        dearer = offers(look, Policy(rates=(Rate(gpu="mi300x", hourly=2_505_000),)))
        assert [(offer.label, offer.origin) for offer in dearer] == [("AMD MI300X (192GB, $2.51/hr)", "assumed")]
    recorded(tmp_path / "record.db", []).close()
    with closing(Pool(tmp_path / "record.db", clock=SystemClock())) as pool, pool.now() as look:
        (only,) = offers(look, POLICY)
        assert only.label == "AMD MI300X (192GB, $1.99/hr)"
        assert only.origin == "assumed"
        assert offers(look, Policy(assumed=(Rate(gpu="", hourly=5),))) == []


def test_an_empty_record_has_an_overview(tmp_path: Path, recorded: Recorded) -> None:
    """Nothing is there, and nothing fails."""
    recorded(tmp_path / "record.db", []).close()
    with closing(Pool(tmp_path / "record.db", clock=SystemClock())) as pool, pool.now() as look:
        answer = msgspec.json.decode(msgspec.json.encode(wire(overview(look, policy_then(look.view.state, POLICY)))))
        assert set(answer) == KEYS
        assert answer["lanes"] == answer["running"] == answer["burn"] == answer["blind"] == []
        assert record_object(look, Lag(positions=0, seconds=0.0)).marks == ()
        assert incidents.incidents(look).anomalies == ()
