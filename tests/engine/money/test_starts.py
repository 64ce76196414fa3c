"""Start-up times fall into buckets; the parts of a report become safe CSV."""

from engine.money.starts import starts_of
from engine.money.tables import Tabled, csv_of
from events.clock import SECOND


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
