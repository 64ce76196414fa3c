"""The cost of one run, of all of them, and of a catch-up say the same."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from steno.engine.money.costs import Costs
from steno.engine.wire import money
from steno.events.poll import Poll
from steno.events.store.record import Record
from steno.projections.read_models.past_worlds import as_it_was
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.view import View

Polls = Callable[[str], tuple[Poll, ...]]
Recorded = Callable[[Path, Sequence[Poll]], Record]


@pytest.mark.parametrize("share", [0.3, 0.6, 1.0])
def test_the_cost_of_one_run_is_that_of_its_object(
    share: float, tmp_path: Path, recording: Polls, recorded: Recorded
) -> None:
    """While it goes on, and at its end; the live line of a submission shows the first."""
    polls = recording("dstack-0.22.5/warm_reuse")
    with recorded(tmp_path / "record.db", polls[: round(len(polls) * share)]) as record, caught_up(record) as store:
        view = View(store)
        runs = view.runs()
        assert runs
        assert [money(Costs(view.whole()).of_run(run.run_id)) for run in runs] == [run.cost_usd for run in runs]


def test_a_run_nobody_knows_costs_nothing_known(tmp_path: Path, recorded: Recorded) -> None:
    """None, not zero."""
    with recorded(tmp_path / "record.db", []) as record, as_it_was(record, 0) as store:
        assert Costs(View(store).whole()).of_run("nobody") is None


def test_what_was_settled_is_not_written_again(tmp_path: Path, recording: Polls, recorded: Recorded) -> None:
    """A machine that is gone keeps its row through later polls of its source."""
    polls = recording("dstack-0.22.5/warm_reuse")
    with recorded(tmp_path / "record.db", polls) as record, caught_up(record) as store:
        before = list(store.vms.all())
    again = [poll for poll in polls if poll.path.endswith("/instances/list")][:1]
    with recorded(tmp_path / "record.db", again) as record, caught_up(record) as store:
        assert list(store.vms.all()) == before
