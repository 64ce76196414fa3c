"""A run of the tests with small segments really has them, in every `steno` that it forks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support"
RUNS = """
import os
from stenotest import steno_process
env = {"PATH": os.environ["PATH"], "HOME": os.getcwd(), "STENO_PROVIDER": "local", "STENO_RECORD": "r.db"}
for _ in range(2):
    steno_process.run(["submit", "--wait", "--", "true"], env=env, check=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("small", [True, pytest.param(False, marks=pytest.mark.long)])
def test_two_runs_leave_segments_only_where_they_are_small(tmp_path: Path, small: bool) -> None:
    """A short record has no snapshot at all otherwise."""
    variables = {"STENO_TEST_SEGMENTS": "small"} if small else {}
    paths = os.pathsep.join((str(SUPPORT), str(SUPPORT.parents[1])))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": paths, **variables}
    subprocess.run([sys.executable, "-c", RUNS], env=env, cwd=tmp_path, check=True)
    assert any(tmp_path.glob("r.db.snapshot-*")) is small


def test_another_size_is_refused() -> None:
    """A value that means nothing would run the usual tests and look as if it had not."""
    code = "from stenotest.small_segments import shrink_if_asked; shrink_if_asked()"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SUPPORT), "STENO_TEST_SEGMENTS": "tiny"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert "STENO_TEST_SEGMENTS is 'tiny'; the only value is 'small'" in done.stderr
