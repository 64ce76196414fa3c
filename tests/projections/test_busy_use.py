"""Stored splits of busy time are those of the bills, whenever samples came and the writer looked."""

import tempfile
from pathlib import Path

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st
from stenotest.dstack_history import START, Item, job, run_item, submission
from stenotest.machines import HOST, machine_item
from stenotest.telling import Telling
from stenotest.whole_costs import cost_report

from steno.cli.render.money import costs_table
from steno.engine.money.costs import Costs, charges
from steno.engine.money.use_split import UseSplitter, split_of_run
from steno.engine.objects import RunObject, VmObject, run_object, vm_object
from steno.engine.rules.sets import CURRENT
from steno.engine.state.samples import Sample, pack
from steno.events.clock import SECOND
from steno.events.types import SamplesRecorded
from steno.projections.answers.costs import costs
from steno.projections.answers.overview import idle_inside
from steno.projections.read_models.reader_pool import Look
from steno.projections.read_models.store import ProjectionStore
from steno.projections.read_models.view import View

_run = msgspec.json.Decoder(RunObject).decode
_vm = msgspec.json.Decoder(VmObject).decode


def a_run(finished: float | None = None) -> Item:
    over = finished is not None
    ended = {"exit_status": 0, "reason": "done_by_runner"} if over else {}
    attempt = submission("done" if over else "running", finished=finished, hostname=HOST, price=1.99, **ended)
    return run_item("a", "done" if over else "running", job(attempt))


def sampled(telling: Telling, uses: list[int], at: float, every: int = 30) -> None:
    """Append an answer of the run's provider: the use of a GPU, from `at` seconds on."""
    (run,) = telling.caught_up().runs.all()
    samples = [
        Sample(at=START + (round(at) + every * place) * SECOND, device="0", use=use) for place, use in enumerate(uses)
    ]
    about = {"run_id": run.run_id, "provider": "dstack", "provider_id": run.provider_id, "source": "dstack"}
    telling.event(f"run/{run.run_id}", SamplesRecorded(**about, block=pack(samples)))


def seen(telling: Telling) -> Look:
    """The record as it is seen at the story's moment."""
    store, now = telling.caught_up(), START + round(telling.story.now * SECOND)
    return Look(record=telling.record, view=View(store), position=telling.keeper.position, now=now)


def compare(store: ProjectionStore) -> None:
    """Rows of runs, machines and costs against everything computed from the world."""
    state = View(store).whole()
    whole = Costs(state)
    for run in store.runs.all():
        folded = state.runs[run.run_id]
        fresh = run_object(folded, CURRENT, whole.of_run(run.run_id), split_of_run(whole, run.run_id))
        assert _run(run.object).busy == fresh.busy
    for vm in store.vms.all():
        bill = whole.bill(vm.vm_id)
        fresh_vm = vm_object(state.vms[vm.vm_id], bill, UseSplitter(state).total(charges(bill)))
        assert _vm(vm.object).busy == fresh_vm.busy
    assert costs(store, "run").report == cost_report(whole, "run")
    assert costs(store, "day").report == cost_report(whole, "day")


@settings(max_examples=8, deadline=None)
@given(
    st.lists(
        st.tuples(st.lists(st.sampled_from([0, 0, 90]), max_size=6), st.integers(0, 150), st.booleans(), st.booleans()),
        min_size=1,
        max_size=6,
    ),
    st.booleans(),
)
def test_stored_splits_are_those_of_the_bills(steps: list[tuple[list[int], int, bool, bool]], ends: bool) -> None:
    """Law: also of samples that come after the run and its machine ended."""
    with tempfile.TemporaryDirectory() as folder, Telling(Path(folder) / "record.db") as telling:
        telling.look([a_run()], [machine_item(status="busy")])
        for uses, after, looks, restarts in steps:
            sampled(telling, uses, telling.story.now)
            telling.look([a_run()], [machine_item(status="busy")], after=after + 1)
            if looks:
                compare(telling.caught_up(restarted=restarts))
        now = telling.story.now
        if ends:
            telling.look([a_run(now + 1)], [machine_item(status="terminated", finished=now + 5)], after=9)
            compare(telling.caught_up())
        sampled(telling, [0, 90, 90], now - 60)
        compare(telling.caught_up())


def test_people_see_the_parts_where_samples_say_anything(tmp_path: Path) -> None:
    """The columns are there with the first samples, and the run's object has the key."""
    with Telling(tmp_path / "record.db") as telling:
        telling.look([a_run()], [machine_item(status="busy")])
        telling.look([a_run()], [machine_item(status="busy")], after=3_595)
        before = costs_table(costs(telling.caught_up(), "user").report, 200)
        assert idle_inside(seen(telling)) == ()
        (run,) = telling.store.runs.all()
        assert b'"busy":' not in run.object
        sampled(telling, [90] + [90] * 60 + [0] * 30, 100)
        after, narrow = (costs_table(costs(telling.caught_up(), "user").report, width) for width in (200, 26))
        (run,) = telling.store.runs.all()
        days = idle_inside(seen(telling))
    assert [day.idle_inside_usd for day in days] == [0] * 6 + [497_500]
    assert "IDLE INSIDE" not in before
    assert "parts of busy" not in before
    assert after.split("\n")[0].split()[1:6] == ["BUSY", "WORKING", "IDLE", "INSIDE", "UNKNOWN"]
    assert "parts of busy" in after
    assert "BUSY" in narrow
    assert "parts of busy" not in narrow
    busy = _run(run.object).busy
    assert busy is not None
    assert (busy.working_seconds, busy.idle_inside_seconds, round(busy.unknown_seconds)) == (1_800, 900, 900)
    assert busy.idle_inside_usd == "0.497500"
