"""How a source answers, in the words of every page: polled in vain, or not polled."""

import pytest

from steno.engine.state.changes import GapKind
from steno.engine.state.sources import Observability, Source
from steno.events.clock import SECOND
from steno.projections.read_models.view import source_view

NOW = 1_000_000 * SECOND


@pytest.mark.parametrize(
    ("age", "failed", "observability", "blind"),
    [
        (5, False, Observability.FRESH, None),
        (5, True, Observability.FRESH, None),
        (45, False, Observability.STALE, None),
        (45, True, Observability.STALE, GapKind.NO_ANSWER),
        (90, True, Observability.BLIND, GapKind.NO_ANSWER),
        (90, False, Observability.BLIND, GapKind.NOT_POLLED),
    ],
)
def test_a_source_that_is_polled_in_vain_is_not_said_to_lack_a_recorder(
    age: int, failed: bool, observability: Observability, blind: GapKind | None
) -> None:
    """From the first poll that failed on, not only once it is blind."""
    last = NOW - age * SECOND
    source = Source(name="dstack/main", last_answered=last, failed=failed, failed_at=NOW - SECOND if failed else 0)
    view = source_view(source, NOW)
    assert (view.observability, view.blind) == (observability, blind)
