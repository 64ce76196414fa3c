"""The benchmarks measure every row of the one table of targets, once, and the page shows what was measured."""

import os
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from benchmarks import page, suite, support
from benchmarks.targets import TARGETS, Target

ROOT = Path(__file__).parents[2]
OTHERS = {"__init__", "gpu_duty", "gpu_judge", "page", "simulator", "suite", "support", "targets"}
"""Files of the benchmarks that measure nothing; of those that need a GPU, the exit status is the result."""
CHEAP = ("cli_start", "record_append", "record_polls", "recorder")
"""Each takes three seconds of CPU at most at its smallest size."""
LONG = [script for script in suite.SCRIPTS if script not in CHEAP]
NEEDS = ("no containers: ", "no browser ", "no compiler ", "no PostgreSQL ")
MACHINE = suite.Machine(cores=2, model="a processor", python="3.11.7", sqlite="3.40.1", postgresql=None)


def test_every_name_is_of_one_target():
    """Rows are joined by their names."""
    names = [target.name for target in TARGETS]
    assert len(names) == len(set(names))


def test_every_script_measures_a_target():
    """No benchmark is left out of the report, and no target names a script that is not there or cannot be imported."""
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    assert set(suite.SCRIPTS) == there - OTHERS
    for script in suite.SCRIPTS:
        import_module(f"benchmarks.{script}")


def measures_all(script: str) -> None:
    """At its smallest size the script reports each of its targets once; a row is missing only for lack of software."""
    rows = suite.run(script, "quick")
    assert [row.name for row in rows] == [
        target.name for target in TARGETS if target.script == script and not target.full
    ]
    for row in rows:
        if row.problem is not None and row.problem.startswith(NEEDS) and os.environ.get("STENO_REQUIRE_LAB") != "1":
            pytest.skip(row.problem)
        assert row.problem is None, row
        assert row.measured is not None, row
        assert (row.met is None) == (row.share is None), row


@pytest.mark.parametrize("script", CHEAP)
def test_a_benchmark_measures_its_targets(script: str):
    measures_all(script)


@pytest.mark.long
@pytest.mark.parametrize("script", LONG)
def test_a_long_benchmark_measures_its_targets(script: str, engine: str, monkeypatch: pytest.MonkeyPatch):
    """Kernels as processes and in containers."""
    monkeypatch.setenv("DOCKER_HOST", engine)
    measures_all(script)


@pytest.mark.parametrize(
    ("limit", "least", "value", "met", "share"),
    [
        (80.0, True, 100.0, True, 0.8),
        (80.0, True, 40.0, False, 2.0),
        (20.0, False, 10.0, True, 0.5),
        (20.0, False, 40.0, False, 2.0),
    ],
)
def test_a_share_of_one_or_less_meets_the_target(limit: float, least: bool, value: float, met: bool, share: float):
    target = Target("script", "name", "what", "ms", limit, least)
    assert target.met(value) is met
    assert target.share(value) == share


def test_a_ratio_is_the_median_of_turns():
    """Three turns, in the unit of the target, with both sides."""
    row = support.compared("append-batch", "events", [80, 60, 90], [100, 100, 100], "events/s")
    assert (row.measured, row.low, row.high, row.rounds) == (80, 60, 90, 3)
    assert (row.ours, row.theirs) == (80, 100)


def row(name: str, value: float) -> suite.Row:
    """A row that was measured."""
    (target,) = [candidate for candidate in TARGETS if candidate.name == name]
    figure = support.Measured(name=name, of="things", measured=value, low=value, high=value, rounds=1)
    return suite._row(target, figure, None, size="quick", at="2026-11-27T00:00:00Z", load=(0.0, 0.0), failed=False)


def test_a_second_report_replaces_only_what_it_measured():
    old = suite.Report(machine=MACHINE, rows=(row("append-batch", 60), row("open-run", 1)))
    new = suite.Report(machine=MACHINE, rows=(row("help-start", 70), row("append-batch", 90)))
    assert [(row.name, row.measured) for row in suite.joined(old, new).rows] == [
        ("append-batch", 90), ("open-run", 1), ("help-start", 70),
    ]  # fmt: skip


def test_the_picture_shows_every_target_that_was_measured():
    """As SVG, for a bright and a dark page; what is far off the scale stays in the picture."""
    rows = (row("append-batch", 60), row("open-run", 1e-9), row("read-ps", 1e9), row("sse-cpu", 5))
    drawn = ElementTree.fromstring(page.picture(suite.Report(machine=MACHINE, rows=rows)))
    dots = drawn.findall("{*}circle")
    assert [dot.get("class") for dot in dots] == ["missed", "met", "missed"]
    assert all(page.LEFT <= float(dot.get("cx", "")) <= page.RIGHT for dot in dots)
    assert "prefers-color-scheme:dark" in "".join(drawn.itertext())


def test_the_page_shows_the_report():
    """`docs/performance.md` and its picture are made from `docs/performance.json`, and all targets are in it."""
    report = suite.read(page.REPORT)
    assert report is not None
    assert page.generated(page.PAGE.read_text(), report) == page.PAGE.read_text()
    assert page.PICTURE.read_text() == page.picture(report)
    assert {row.name for row in report.rows} <= {target.name for target in TARGETS}
    assert {target.name for target in TARGETS if not target.full} <= {row.name for row in report.rows}


def test_a_report_is_read_as_it_was_written(tmp_path: Path):
    report = suite.Report(machine=MACHINE, rows=(row("append-batch", 60), row("sse-cpu", 5)))
    suite.write(tmp_path / "report.json", report)
    assert suite.read(tmp_path / "report.json") == report
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(msgspec.DecodeError):
        suite.read(tmp_path / "other.json")
