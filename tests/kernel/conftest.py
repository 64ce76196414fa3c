"""A kernel's task as its provider runs it: the command of its configuration in a shell, with a real compiler."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from stenotest.kernels import Judgement, judge

from engine.kernel.submission import KernelSubmission

Judged = Callable[..., Judgement]


@pytest.fixture
def judged(tmp_path: Path) -> Judged:
    """Run the task of a submission; it leaves no file behind."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler: apt-get install g++")
    scratch = tmp_path / "scratch"
    scratch.mkdir()

    def run(wanted: KernelSubmission, **more: object) -> Judgement:
        found = judge(wanted, scratch, **more)  # type: ignore[arg-type]
        assert list(scratch.iterdir()) == []
        return found

    return run
