"""Start-up times fall into buckets; the parts of a report become safe CSV."""

from stenotest.bills import a_run, at

from steno.engine.money.report import start_time, whole_time
from steno.engine.money.starts import spans_of, starts_of
from steno.engine.objects import run_object
from steno.engine.rules.sets import CURRENT
from steno.engine.state.changes import Transition
from steno.engine.state.states import State
from steno.engine.wire import Tabled, csv_of
from steno.events.clock import SECOND, format_time
from steno.projections.answers.compare import compared
from steno.projections.answers.timeline import timeline


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
    shown_run = run_object(run, CURRENT)
    assert (shown_run.submitted_at, shown_run.provider_submitted_at) == (format_time(at(0)), format_time(at(120)))
    waited = {field.field: field.values for field in compared(shown_run, shown_run, (None, None)).outcome}
    assert waited["waited_seconds"] == (128.7, 128.7)
    assert [(span.state, span.seconds) for span in timeline(shown_run, [], at(200)).spans] == [
        ("requested", 120.5),
        ("queued", 8.2),
        ("running", 10.0),
    ]
    elsewhere = run_object(a_run("r", **times), CURRENT)
    assert (elsewhere.submitted_at, elsewhere.provider_submitted_at) == (format_time(at(120)), None)


def test_start_up_times_are_counted_by_kind_and_bucket() -> None:
    """A time on an edge belongs to the bucket that begins there; buckets between used buckets are shown."""
    starts = starts_of([("cold", 60 * SECOND), ("cold", 299 * SECOND), ("warm", 10 * SECOND), ("warm", 5 * SECOND)])
    counts = {bucket.from_seconds: (bucket.cold, bucket.warm) for bucket in starts.buckets}
    assert counts == {5: (0, 1), 10: (0, 1), 15: (0, 0), 30: (0, 0), 60: (1, 0), 120: (0, 0), 180: (1, 0)}
    assert (starts.cold.count, starts.cold.median_seconds, starts.cold.worst_seconds) == (2, 179.5, 299.0)
    assert starts.warm.p95_seconds == 10.0


def test_without_runs_there_are_no_buckets() -> None:
    """And no figures."""
    starts = starts_of([])
    assert (starts.buckets, starts.cold.count, starts.warm.median_seconds) == ((), 0, None)


class Names(Tabled, frozen=True, kw_only=True):
    """A row of texts."""

    def table(self):
        yield "name", "amount", "unknown"
        yield '=cmd("x")', "-1.500000", None


def test_a_text_that_a_spreadsheet_would_compute_is_kept_as_text() -> None:
    """Amounts stay amounts."""
    assert csv_of(Names()) == 'name,amount,unknown\r\n"\'=cmd(""x"")",-1.500000,\r\n'
