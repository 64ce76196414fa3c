"""A kernel's task as its provider runs it: the command of its configuration in a shell, with a real compiler."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from stenotest.kernels import Judgement, judge

from steno.engine.kernel.submission import KernelSubmission

Judged = Callable[..., Judgement]


@pytest.fixture
def scratch() -> Iterator[Path]:
    """A folder that every user may enter, as a machine's /tmp is: a kernel's programs have users of their own."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def judged(scratch: Path) -> Judged:
    """Run the task of a submission; it leaves no file behind."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler: apt-get install g++")

    def run(wanted: KernelSubmission, **more: object) -> Judgement:
        judgement = judge(wanted, scratch, **more)  # type: ignore[arg-type]
        assert list(scratch.iterdir()) == []
        return judgement

    return run
