"""What a run costs whose provider does not say, in a form that can be read, when it was submitted."""

from msgspec.structs import replace
from stenotest.stage import Stage, run_row, vm_row

from engine.facts import RunFacts
from engine.money.costs import Costs
from events.clock import SECOND


def undated(row: RunFacts) -> RunFacts:
    (job,) = row.jobs
    return replace(
        row, submitted_at=None, jobs=(replace(job, attempts=(replace(job.attempts[0], submitted_at=None),)),)
    )


def test_the_cost_of_a_run_that_no_poll_and_no_date_shows_at_work_is_unknown() -> None:
    """It was over when a poll first showed it: nobody knows what part of its machine's time was its own."""
    made = Stage()
    began = made.now
    made.wait(360)
    made.runs(undated(run_row("a", "done", on="m1", exit_status=0, finished=began + 350 * SECOND)))
    made.machines(vm_row("m1", created=began))
    (run,) = made.world.state.runs.values()
    costs = Costs(made.world.state)
    assert run.vm_id == made.vm_id("m1")
    assert costs.of_run(run.run_id) is None
    assert run.run_id not in costs.of_runs()


def test_polls_that_show_it_at_work_date_its_cost() -> None:
    made = Stage()
    began = made.now
    made.wait(60)
    made.runs(undated(run_row("a", on="m1")))
    made.machines(vm_row("m1", "busy", created=began))
    made.wait(300)
    made.runs(undated(run_row("a", "done", on="m1", exit_status=0, finished=began + 350 * SECOND)))
    made.machines(vm_row("m1", created=began))
    (run,) = made.world.state.runs.values()
    costs = Costs(made.world.state)
    assert costs.of_run(run.run_id) == costs.of_runs()[run.run_id] == 1_990_000 * 290 // 3600
