"""Waste by user, run and GPU: of runs whose use is known, split exactly; of all others unknown."""

import tempfile
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from stenotest.dstack_history import START
from stenotest.sampled_record import NONE_OF_FOUR, ONE_OF_FOUR, SampledRecord

from steno.engine.state.gpu_use import DeviceUse, GpuUse
from steno.engine.state.policy import HOUR, Policy
from steno.engine.state.run import Range, Requirements, Run
from steno.engine.wire import wire
from steno.projections.answers.costs import ChartRange, costs
from steno.projections.answers.gpu_curve import use_of
from steno.projections.answers.waste import By, WasteReport, WasteRow, _asked, waste
from steno.projections.read_models.projector import caught_up
from steno.projections.read_models.view import View

DAYS = ChartRange(since=START, now=START + 24 * HOUR)
BYS: tuple[By, ...] = ("user", "run", "gpu")
DUTIES = st.lists(st.tuples(st.sampled_from([None, ONE_OF_FOUR, NONE_OF_FOUR]), st.integers(1, 8)), max_size=4)
UNKNOWN, ASKED = Requirements(submitter="ada"), Requirements(submitter="ada", gpu_count=4)


def reports(site: SampledRecord) -> dict[By, WasteReport]:
    """The waste of the first days, by everything; its money sums, and is that of the bills."""
    with caught_up(site.record) as store:
        made = {by: waste(View(store), by, DAYS) for by in BYS}
        lines = costs(store, "vm", DAYS).report.total.lines
    for report in made.values():
        for row in (*report.rows, report.total):
            sums(row)
        assert report.total == made["user"].total
        assert sum(row.wasted_usd for row in report.rows) == report.total.wasted_usd
        assert [row.wasted_usd for row in report.rows] == sorted((row.wasted_usd for row in report.rows), reverse=True)
        assert report.advice == made["user"].advice
    assert (lines["busy"], lines["idle"]) == tuple(made["user"].total.usd[kind] for kind in ("busy", "idle_between"))
    return made


def sums(row: WasteRow) -> None:
    """Law: the parts of busy sum to it, to the micro-dollar."""
    for amounts in (row.usd, row.seconds):
        parts = amounts["working"] + amounts["idle_inside"] + amounts["unknown"]
        assert parts == pytest.approx(amounts["busy"], abs=0 if amounts is row.usd else 1e-6)
    assert row.usd["unused_gpus"] <= row.usd["working"]


@settings(max_examples=6, deadline=None)
@given(st.lists(DUTIES, min_size=1, max_size=3))
def test_idle_inside_working_and_unknown_are_busy(runs: list[list[tuple[tuple[int, ...] | None, int]]]) -> None:
    """Law: of each row, whatever runs did; a run without samples is unknown."""
    with tempfile.TemporaryDirectory() as folder:
        site = SampledRecord(Path(folder), Policy(max_vms=2))
        with closing(site.record):
            for number, duties in enumerate(runs):
                site.begin(f"run{number}", "m1")
                for use, halves in duties:
                    site.wait(halves * 30) if use is None else site.sample(f"run{number}", use, halves * 30)
                site.end(f"run{number}", "m1")
                site.machine("m1", "idle", gpus=4)
                site.wait(90)
            by_run = {row.label: row for row in reports(site)["run"].rows}
            for number, duties in enumerate(runs):
                if all(use is None for use, _ in duties) and (row := by_run.get(f"run{number}")) is not None:
                    assert (row.unknown_runs, row.wasted_usd, row.usd["unknown"]) == (1, 0, row.usd["busy"])


def test_a_known_duty_is_its_waste(tmp_path: Path) -> None:
    """On one of four GPUs for 10 minutes, then idle for 20, then without samples: at $1.99 an hour."""
    site = SampledRecord(tmp_path, Policy(max_vms=2))
    with closing(site.record):
        site.begin("train", "m1")
        site.sample("train", ONE_OF_FOUR, 600)
        begun = site.record.head().position
        site.sample("train", NONE_OF_FOUR, 1_200)
        site.wait(300)
        (row,) = reports(site)["run"].rows
        assert row.seconds["working"] == 600
        assert row.seconds["idle_inside"] == pytest.approx(1_200, abs=10)
        assert row.usd["working"] == 331_667
        assert row.usd["unused_gpus"] == 248_750  # three quarters
        assert row.wasted_usd == row.usd["idle_inside"] + row.usd["unused_gpus"]
        with caught_up(site.record) as store:
            (run,) = View(store).state.runs.all()
            use = use_of(site.record, run, site.record.head().position, 10)
            before = use_of(site.record, run, begun, 5)
        assert [gpu.mean[0] for gpu in use.gpus] == list(ONE_OF_FOUR)
        assert use.gpus[0].mean[-1] == NONE_OF_FOUR[0]
        assert (use.gpus[3].memory_mib, use.gpus[3].power_watts) == (40_960, 93)
        assert sum(use.seconds.values()) * 10**6 == use.end - use.start
        assert all(gpu.most[-1] is None for gpu in before.gpus), "nothing recorded later"
        inside = use_of(site.record, run, site.record.head().position, 500, START + 60 * 10**6, START + 600 * 10**6)
        assert (
            [gpu.least for gpu in inside.gpus] == [gpu.most for gpu in inside.gpus] == [(u,) * 500 for u in ONE_OF_FOUR]
        )


def test_a_run_with_samples_of_its_processes_alone_has_none_of_its_gpus(tmp_path: Path) -> None:
    """As every run of this machine: all of its time is unknown, and it is counted so."""
    site = SampledRecord(tmp_path, Policy(max_vms=2))
    with closing(site.record):
        site.begin("train", "m1")
        site.sample("train", (), 600)
        (row,) = reports(site)["run"].rows
        assert (row.runs, row.unknown_runs, row.usd["unknown"]) == (1, 1, row.usd["busy"])


def test_what_to_ask_for_next_time(tmp_path: Path) -> None:
    """Runs of one name count together: the GPUs used, twice the highest memory, twice the mean of the CPUs."""
    site = SampledRecord(tmp_path, Policy(max_vms=2))
    with closing(site.record):
        site.begin("train", "m1")
        site.sample("train", ONE_OF_FOUR, 120)
        site.begin("small", "m2", memory="8GB..", cpu="2..", gpu={"name": "MI300X", "count": 1})
        site.sample("small", ONE_OF_FOUR, 120)
        lines = reports(site)["user"].advice
    asks = {(line.name, line.resource): (line.asked, line.used, line.ask) for line in lines}
    assert asks == {
        ("train", "gpus"): (4, 1, 1),
        ("train", "memory_gb"): (64, 2.89, 8),
        ("train", "cpus"): (16, 1.3, 4),
    }
    assert all(Decimal(wire(line)["busy_usd"]) > 0 for line in lines)


@pytest.mark.parametrize(
    ("terms", "uses", "more", "gpus"),
    [
        (ASKED, (80, 0, 0, 0), 0, [("gpus", 4, 1)]),
        (ASKED, (0, 0, 0, 0), 0, [("gpus", 4, 0)]),
        (ASKED, (80, None, 0, 4), 0, [("gpus", 4, 2)]),  # one GPU is unknown
        (ASKED, (80, 0, 0, 0, 0, 0, 0, 0), 0, [("gpus", 4, 1)]),  # GPUs of the node that the run did not get
        (ASKED, (80,), 0, [("gpus", 4, 4)]),  # of three GPUs there are no samples
        (ASKED, (0,) * 4, 4, [("gpus", 4, 4)]),
        (UNKNOWN, (0,), 0, []),
        (None, (0, 0), 0, []),
    ],
)
def test_a_gpu_of_which_nothing_is_known_is_not_unused(
    terms: Requirements | None, uses: tuple[int | None, ...], more: int, gpus: list[tuple[str, float, float]]
) -> None:
    """Only a GPU that samples show, and that the run asked for, counts."""
    devices = tuple(DeviceUse(device=str(place), use=use) for place, use in enumerate(uses))
    use = GpuUse(log=b"", newest=0, devices=devices, more=more)
    run = Run(
        run_id="a", provider="dstack", first_position=1, first_at=0, last_position=1, last_at=0, terms=terms, use=use
    )
    assert list(_asked(run)) == gpus


def test_nodes_ask_together() -> None:
    terms = Requirements(submitter="ada", nodes=2, memory=Range(64), cpus=Range(8))
    use = GpuUse(log=b"", newest=0, task_memory=1024, cpu_sum=100, cpu_count=1)
    run = Run(
        run_id="a", provider="slurm", first_position=1, first_at=0, last_position=1, last_at=0, terms=terms, use=use
    )
    assert list(_asked(run)) == [("memory_gb", 128, 1), ("cpus", 16, 1)]
    run.terms = replace(terms, first_node_only=True)
    assert list(_asked(run)) == [], "the second node may have used the rest"
