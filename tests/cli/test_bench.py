"""`steno bench`: the table, the file, the exit codes."""

import json
import shutil
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner
from stenotest.command_line import Steno, refused

from steno.cli.commands import bench
from steno.cli.program import steno as program
from steno.cli.wiring.app import App


def test_the_table_says_what_was_measured_and_the_file_has_it(steno: Steno, tmp_path: Path):
    """Rows of an earlier report stay in the file."""
    report = tmp_path / "report.json"
    first = steno("bench", "warm_kernels", "--quick", "--output", report)
    assert first.returncode == 0, first.stderr
    assert "not measured" in first.stdout
    assert "set DOCKER_HOST" in first.stdout
    second = steno("bench", "cli_start", "--quick", "--json", "--output", report)
    assert "1/1 cli_start" in second.stderr
    (row,) = json.loads(second.stdout)["rows"]
    assert (row["name"], row["target"], row["size"]) == ("help-start", "≤ 80 ms", "quick")
    assert row["share"] == pytest.approx(row["measured"] / 80, rel=0.01)
    names = [row["name"] for row in json.loads(report.read_text())["rows"]]
    assert names == ["help-start", "warm-kernel", "warm-listener"]


def test_a_script_that_fails_is_shown_and_exits_1(steno: Steno, tmp_path: Path):
    """Its targets are rows that say so: here the compiler is broken."""
    (tmp_path / "g++").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "g++").chmod(0o755)
    done = steno("bench", "judge", "--quick", PATH=f"{tmp_path}:{Path(shutil.which('sh') or '').parent}")
    assert done.returncode == 1
    assert done.stdout.count("benchmarks/judge.py failed: subprocess.CalledProcessError") == 1
    assert "judge-time, judge-agree, judge-benchmark, judge-check, judge-cancel: " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_unknown_benchmark_is_refused_with_the_known_ones(steno: Steno):
    assert "there is no benchmark 'append'; choose of record_append," in refused(steno("bench", "append"), 2)


def test_a_file_that_is_no_report_is_refused_before_anything_runs(steno: Steno, tmp_path: Path):
    """So is one of another machine: its rows could not be compared."""
    other = tmp_path / "other.json"
    other.write_text("{}")
    assert "is not a report of steno bench" in refused(steno("bench", "cli_start", "--output", other), 2)
    machine = {"cores": 64, "model": "another", "python": "3.11.7", "sqlite": "3.40.1", "postgresql": None}
    other.write_text(json.dumps({"machine": machine, "rows": []}))
    assert "is of another machine" in refused(steno("bench", "cli_start", "--output", other), 2)


def test_without_the_repository_one_line_says_where_the_benchmarks_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """As where a wheel is installed."""
    monkeypatch.setattr(bench, "_ROOT", tmp_path)
    done = CliRunner().invoke(program, ["bench"], obj=App(), standalone_mode=False)
    assert isinstance(done.exception, bench.NoBenchmarks)
    completions = ShellComplete(program, {"obj": App()}, "steno", "_STENO_COMPLETE").get_completions(["bench"], "rec")
    assert completions == []


def test_names_are_completed():
    completions = ShellComplete(program, {"obj": App()}, "steno", "_STENO_COMPLETE").get_completions(
        ["bench"], "record_"
    )
    assert [completion.value for completion in completions] == ["record_append", "record_polls"]
