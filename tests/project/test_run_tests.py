"""`tests/run_tests.py`: what it forgives, and what it does not. With genuine runs of pytest and xdist."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "run_tests.py"
SPREAD = ("-n", "2", "--dist", "loadgroup", "-m", "not long")

FLAKY = """
import pathlib, pytest

def fails(name, times):
    file = pathlib.Path(__file__).with_name(name)
    count = int(file.read_text()) if file.exists() else 0
    file.write_text(str(count + 1))
    assert count >= times, "by the load of the machine"
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder of tests with the marks of ours."""
    (tmp_path / "pyproject.toml").write_text(
        '[tool.pytest.ini_options]\naddopts = ["--import-mode=importlib", "-ra", "-p", "xdist.plugin"]\n'
        'markers = ["long: not now"]\n'
    )
    return tmp_path


def run(project: Path, tests: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The script over these tests."""
    (project / "test_it.py").write_text(FLAKY + tests)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")}
    return subprocess.run(
        [sys.executable, str(SCRIPT), *(arguments or SPREAD)],
        cwd=project,
        env=environment | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )


def runs(output: str) -> int:
    """How often pytest ran."""
    return len(re.findall("test session starts", output))


@pytest.mark.slow
def test_a_run_that_passes_is_run_once(project: Path) -> None:
    """Exit 0, and nothing is called unstable."""
    done = run(project, "def test_a(): pass\n")
    assert (done.returncode, runs(done.stdout)) == (0, 1), done.stdout
    assert "UNSTABLE" not in done.stdout


@pytest.mark.slow
def test_up_to_three_that_pass_when_run_again_alone_are_called_unstable(project: Path) -> None:
    """Whatever their group or parameters; the others are not run again, and the first failure stays in the output."""
    tests = """
@pytest.mark.xdist_group("dstack-0.22.5")
def test_grouped(): fails("a", 1)

@pytest.mark.parametrize("who", ["x@y"])
def test_parameter(who): fails("b", 1)

@pytest.mark.parametrize("who", ["x@y"])
@pytest.mark.xdist_group("one")
class TestBoth:
    def test_both(self, who): fails("c", 1)

def test_stable(): fails("d", 0)
"""
    done = run(project, tests)
    assert (done.returncode, runs(done.stdout)) == (0, 2), done.stdout
    assert re.findall(r"^UNSTABLE (test_it.*)$", done.stdout, re.MULTILINE) == [
        "test_it.py::TestBoth::test_both[x@y]",
        "test_it.py::test_grouped",
        "test_it.py::test_parameter[x@y]",
    ]
    assert "by the load of the machine" in done.stdout
    assert [(project / name).read_text() for name in "abcd"] == ["2", "2", "2", "1"]


@pytest.mark.slow
def test_one_that_fails_twice_fails_the_run(project: Path) -> None:
    """Even where the others pass the second time."""
    done = run(project, "def test_a(): fails('a', 1)\n\ndef test_b(): fails('b', 2)\n")
    assert (done.returncode, runs(done.stdout)) == (1, 2), done.stdout
    assert "UNSTABLE" not in done.stdout


@pytest.mark.slow
def test_four_failures_are_no_accident(project: Path) -> None:
    """They are not run again."""
    done = run(project, "".join(f"def test_{n}(): fails('{n}', 1)\n\n" for n in range(4)))
    assert (done.returncode, runs(done.stdout)) == (1, 1), done.stdout
    assert "4 tests failed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tests", "arguments"),
    [
        ("def test_a(: pass\n", SPREAD),
        ("@pytest.mark.long\ndef test_a(): pass\n", SPREAD),
        ("def test_a(): pass\n", ("--no-such-option",)),
        ("import os\n\ndef test_a(): os._exit(1)\n", ("-n0",)),
        ("def test_a(): pytest.exit('enough', 3)\n", ("-n0",)),
    ],
    ids=["no Python", "no tests", "an option", "died", "left"],
)
def test_nothing_else_is_forgiven(project: Path, tests: str, arguments: tuple[str, ...]) -> None:
    """A run that was none is a failure."""
    done = run(project, tests, *arguments)
    assert done.returncode != 0, done.stdout
    assert "UNSTABLE" not in done.stdout
    assert runs(done.stdout) <= 2


@pytest.mark.slow
def test_a_fixture_that_fails_on_the_way_out_counts_as_the_failure_of_its_test(project: Path) -> None:
    """It is run again like any other."""
    tests = "@pytest.fixture\ndef thing():\n    yield\n    fails('a', 1)\n\ndef test_a(thing): pass\n"
    done = run(project, tests)
    assert (done.returncode, runs(done.stdout)) == (0, 2), done.stdout
    assert "UNSTABLE test_it.py::test_a" in done.stdout
