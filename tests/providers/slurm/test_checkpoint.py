"""The script of a checkpointed job, run by bash: what it asks of Slurm, and when it stops. `scontrol` is played."""

import os
import signal
import subprocess
from pathlib import Path

import pytest
from stenotest.waiting import LIMIT_S, wait

from steno.engine.errors import TaskInvalid
from steno.engine.providers.slurm.script import notice, render
from steno.engine.providers.slurm.spec import JobSpec, spec_of

PROGRAM = """
import os, signal, sys, time
from pathlib import Path
def told(*_):
    Path("told").touch()
    sys.exit(0)
signal.signal(signal.SIGUSR1, told)
Path("ready").touch()
time.sleep(60)
"""


UNPREPARED = """
import time
from pathlib import Path
Path("told").touch()
Path("ready").touch()
time.sleep(60)
"""


def segment(
    folder: Path, *, before: int, restarts: int, program: str = PROGRAM, **limits: int
) -> tuple[int, list[str], str]:
    """The segment that gets its signal at once: exit status, calls of scontrol, standard error.

    Args:
        before: seconds that earlier segments took.
        restarts: how often it was requeued already.
    """
    spec = JobSpec(commands=("python3 program.py",), time=10, checkpoint=True, **limits)
    (folder / "program.py").write_text(program)
    state = folder / "checkpoints" / "a-000000000001" / ".steno-elapsed"
    state.parent.mkdir(parents=True)
    state.write_text(str(before))
    played = folder / "bin" / "scontrol"
    played.parent.mkdir()
    played.write_text(f'#!/bin/sh\necho "$*" >> {folder}/asked\nexit 1\n')  # it fails, so the script does not wait
    played.chmod(0o755)
    script = render(spec, name="a", run_id="00000000-0000-4000-8000-000000000001", folder=str(folder))
    where = {"PATH": f"{folder}/bin:{os.environ['PATH']}", "HOME": str(folder), "SLURM_JOB_ID": "7"}
    where["SLURM_RESTART_COUNT"] = str(restarts)
    process = subprocess.Popen(["bash", "-c", script], cwd=folder, env=where, stderr=subprocess.PIPE, text=True)
    try:
        wait((folder / "ready").exists, what="the program")
        process.send_signal(signal.SIGUSR1)
        errors = process.communicate(timeout=LIMIT_S)[1]
    finally:
        process.kill()
    assert (folder / "told").exists(), "the program was not told"
    calls = folder / "asked"
    return process.returncode, calls.read_text().splitlines() if calls.exists() else [], errors


def test_a_segment_that_is_told_is_requeued(tmp_path: Path) -> None:
    """The program itself hears the signal, not only the shell around it."""
    assert segment(tmp_path, before=0, restarts=0, total=30)[1] == ["requeue 7"]


def test_the_last_segment_gets_what_is_left(tmp_path: Path) -> None:
    """26 of 30 minutes are over: 4 are left of a segment of 10."""
    assert segment(tmp_path, before=26 * 60, restarts=2, total=30)[1] == ["update JobId=7 TimeLimit=4", "requeue 7"]


def test_bug_9_no_time_is_ever_negative(tmp_path: Path) -> None:
    """The first tool's timeout went below zero and resubmitted five times in six seconds."""
    code, calls, errors = segment(tmp_path, before=100_000, restarts=2, total=30)
    assert calls == ["update JobId=7 TimeLimit=2"]
    assert code == 124
    assert "out of time" in errors


def test_resubmissions_are_bounded(tmp_path: Path) -> None:
    code, calls, errors = segment(tmp_path, before=0, restarts=3, resubmissions=3)
    assert (code, calls) == (124, [])
    assert "3 resubmissions" in errors


def test_a_program_that_the_signal_ends_has_that_signal_as_its_exit_status(tmp_path: Path) -> None:
    """Slurm keeps seven bits of an exit status: 138 would read 10, so the script itself ends by SIGUSR1."""
    code = segment(tmp_path, before=0, restarts=3, resubmissions=3, program=UNPREPARED)[0]
    assert code == -signal.SIGUSR1
    assert (tmp_path / "ends" / "7").read_text().startswith("138 ")


@pytest.mark.parametrize(("minutes", "seconds"), [(1, 0), (2, 60), (3, 120), (240, 120)])
def test_bug_9_every_segment_works_before_it_is_told(minutes: int, seconds: int) -> None:
    assert notice(JobSpec(commands=("true",), time=minutes, checkpoint=True)) == seconds


def test_a_segment_without_time_for_a_checkpoint_is_refused() -> None:
    with pytest.raises(TaskInvalid, match="2m or more"):
        spec_of({"commands": ["true"], "checkpoint": "1m", "max_duration": "1h"})


def test_the_time_of_a_job_is_that_of_a_segment() -> None:
    """`max_duration: 12h` in segments of four hours, as people write it, and as a strategy does."""
    for task in ({"max_duration": "12h"}, {"max_duration": "4h", "total_time": "12h"}):
        spec = spec_of({"commands": ["true"], "checkpoint": "4h", **task})
        assert (spec.time, spec.total) == (240, 720)
