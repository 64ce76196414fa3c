"""Start-up times fall into buckets; the parts of a report become safe CSV."""

from stenotest.bills import a_run, at

from engine.fold.change import Transition
from engine.money.report import start_time, whole_time
from engine.money.starts import spans_of, starts_of
from engine.money.tables import Tabled, csv_of
from engine.objects import run_object
from engine.rules.current import CURRENT
from engine.states import State
from events.clock import SECOND, format_time
from projections.models.compare import compared
from projections.models.timeline import timeline


def test_the_time_in_stenos_own_queue_is_waiting_time() -> None:
    """Two minutes for a place under the cap, 8.7 s at the provider: that run waited for 128.7 s, wherever it is shown.
    The provider's own time stands beside the request's.
    """
    moves = (
        (State.REQUESTED, State.QUEUED, 120.5),
        (State.QUEUED, State.RUNNING, 128.7),
        (State.RUNNING, State.SUCCEEDED, 138.7),
    )
    steps = [
        Transition(position=2 + place, at=at(when), before=before, after=after, rule="r")
        for place, (before, after, when) in enumerate(moves)
    ]
    times = {"submitted_at": at(120), "started_at": at(128.7), "finished_at": at(138.7)}
    run = a_run("r", requested_at=at(0), transitions=tuple(steps), **times)
    assert start_time(run) == 128_700_000
    assert whole_time(run) == 138_700_000
    assert spans_of(run) == (128_700_000, 0, 10 * SECOND)
    shown = run_object(run, CURRENT)
    assert (shown.submitted_at, shown.provider_submitted_at) == (format_time(at(0)), format_time(at(120)))
    waited = {one.field: one.values for one in compared(shown, shown, (None, None)).outcome}
    assert waited["waited_seconds"] == (128.7, 128.7)
    assert [(one.state, one.seconds) for one in timeline(shown, [], at(200)).spans] == [
        ("requested", 120.5),
        ("queued", 8.2),
        ("running", 10.0),
    ]
    elsewhere = run_object(a_run("r", **times), CURRENT)
    assert (elsewhere.submitted_at, elsewhere.provider_submitted_at) == (format_time(at(120)), None)


def test_start_up_times_are_counted_by_kind_and_bucket() -> None:
    """A time on an edge belongs to the bucket that begins there; buckets between used ones are shown."""
    found = starts_of([("cold", 60 * SECOND), ("cold", 299 * SECOND), ("warm", 10 * SECOND), ("warm", 5 * SECOND)])
    counts = {one.from_seconds: (one.cold, one.warm) for one in found.buckets}
    assert counts == {5: (0, 1), 10: (0, 1), 15: (0, 0), 30: (0, 0), 60: (1, 0), 120: (0, 0), 180: (1, 0)}
    assert (found.cold.count, found.cold.median_seconds, found.cold.worst_seconds) == (2, 179.5, 299.0)
    assert found.warm.p95_seconds == 10.0


def test_without_runs_there_are_no_buckets() -> None:
    """And no figures."""
    found = starts_of([])
    assert (found.buckets, found.cold.count, found.warm.median_seconds) == ((), 0, None)


class Names(Tabled, frozen=True, kw_only=True):
    """One row of texts."""

    def table(self):
        yield "name", "amount", "unknown"
        yield '=cmd("x")', "-1.500000", None


def test_a_text_that_a_spreadsheet_would_compute_is_kept_as_text() -> None:
    """Amounts stay amounts."""
    assert csv_of(Names()) == 'name,amount,unknown\r\n"\'=cmd(""x"")",-1.500000,\r\n'
