"""Blame and whether another try may help, beside the sentence, for programs."""

import pytest
from stenotest.simulation import Simulation, run_row

from steno.engine.notify.news import RUN_END, NewsItem
from steno.engine.notify.webhook import message_of
from steno.engine.rules.why_ended import cause_now
from steno.engine.state.facts import Blame


@pytest.mark.parametrize(
    ("reason", "exit_status", "blame", "again"),
    [
        ("container_exited_with_error", 1, Blame.TASK, False),
        ("instance_unreachable", None, Blame.PROVIDER, True),
        ("failed_to_start_due_to_no_capacity", None, Blame.PROVIDER, False),
    ],
)
def test_a_failed_run_carries_blame_and_again(reason: str, exit_status: int | None, blame: Blame, again: bool) -> None:
    made = Simulation()
    made.runs(run_row("a", "failed", reason=reason, exit_status=exit_status, finished=made.now))
    (run,) = made.world.state.runs.all()
    cause = cause_now(run, made.world.state, made.now)
    assert (cause.blame, cause.again) == (blame, again)
    _, _, fields = message_of(NewsItem(fact_id="f", kind=RUN_END, subject=run), made.world.state, made.now)
    assert (fields["why"], fields["blame"], fields["again"]) == (cause.why, blame, again)
