"""The cost of a run whose provider gives no readable time of submission."""

from msgspec.structs import replace
from stenotest.simulation import Simulation, run_row, vm_row

from steno.engine.money.costs import Costs
from steno.engine.state.facts import RunFacts
from steno.events.clock import SECOND


def undated(row: RunFacts) -> RunFacts:
    (job,) = row.jobs
    return replace(
        row, submitted_at=None, jobs=(replace(job, attempts=(replace(job.attempts[0], submitted_at=None),)),)
    )


def test_the_cost_of_a_run_that_no_poll_and_no_date_shows_at_work_is_unknown() -> None:
    """It was over when a poll first showed it: the part of its machine's time that was its own is unknown."""
    made = Simulation()
    began = made.now
    made.wait(360)
    made.runs(undated(run_row("a", "done", on="m1", exit_status=0, finished=began + 350 * SECOND)))
    made.machines(vm_row("m1", created=began))
    (run,) = made.world.state.runs.all()
    costs = Costs(made.world.state)
    assert run.vm_id == made.vm_id("m1")
    assert costs.of_run(run.run_id) is None
    assert run.run_id not in costs.of_runs()


def test_polls_that_show_it_at_work_date_its_cost() -> None:
    made = Simulation()
    began = made.now
    made.wait(60)
    made.runs(undated(run_row("a", on="m1")))
    made.machines(vm_row("m1", "busy", created=began))
    made.wait(300)
    made.runs(undated(run_row("a", "done", on="m1", exit_status=0, finished=began + 350 * SECOND)))
    made.machines(vm_row("m1", created=began))
    (run,) = made.world.state.runs.all()
    costs = Costs(made.world.state)
    assert costs.of_run(run.run_id) == costs.of_runs()[run.run_id] == 1_990_000 * 290 // 3600
