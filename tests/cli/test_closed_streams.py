"""Output that nobody takes: no traceback, nothing lost, and no exit code that means something else."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from stenotest.command_line import Steno
from stenotest.dstack_history import DstackHistory, single

pytestmark = pytest.mark.slow

INTERRUPTED = 130


def shell(line: str, home: Path, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """A line of shell in which `$STENO` is the command."""
    return subprocess.run(
        ["bash", "-c", line],
        cwd=home,
        env=environment | {"STENO": f"{sys.executable} -m steno.cli.main"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def trace(home: Path) -> Path:
    """A trace of one finished run."""
    return DstackHistory().listed(single(run="done")).write(home / "t.jsonl")


@pytest.mark.parametrize("words", ["--help", "replay t.jsonl --json", "replay --help", "completion bash", "config"])
def test_a_reader_that_has_gone_is_an_interruption(
    words: str, home: Path, environment: dict[str, str], trace: Path
) -> None:
    """`steno … | true`, with `true` over before a word is written: not 1, which says that a run did not succeed."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "steno.cli.main", *words.split()],
            cwd=home,
            env=environment,
            stdout=writer,
            stderr=subprocess.PIPE,
            text=True,
            timeout=600,
            check=False,
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (INTERRUPTED, "")


ONE_STREAM = [pytest.param(closed, marks=pytest.mark.long) for closed in (">&-", "2>&-", "<&-")]


@pytest.mark.parametrize("closed", [*ONE_STREAM, "<&- >&- 2>&-"])
def test_closed_streams_change_nothing(closed: str, home: Path, environment: dict[str, str], trace: Path) -> None:
    """No traceback, the right exit code, and no file opened in place of a stream is written into."""
    assert shell(f"$STENO import t.jsonl {closed}", home, environment).returncode == 0
    done = shell(f"$STENO replay {closed}", home, environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert shell(f"$STENO show nothing {closed}", home, environment).returncode == 4
    assert shell("$STENO verify", home, environment).returncode == 0


def test_a_full_disk_names_the_file_and_says_what_to_do(home: Path, environment: dict[str, str], trace: Path) -> None:
    """Exit 8."""
    done = shell("$STENO replay t.jsonl >/dev/full", home, environment)
    assert done.returncode == 8
    assert done.stderr == "steno: no space left on device: free some space\n"


@pytest.mark.usefixtures("trace")
def test_an_export_onto_a_folder_is_refused(home: Path, steno: Steno, record_file: Path) -> None:
    """With its name, and nothing is left behind."""
    (home / "folder").mkdir()
    before = sorted(path.name for path in home.iterdir())
    assert steno("import", "t.jsonl").returncode == 0
    for target in (".", "/", "folder", "none/x.jsonl"):
        done = steno("export", "--trace", target)
        assert done.returncode in (2, 4)
        assert done.stderr.startswith(f"steno: {target}: ")
    assert not [path for path in set(home.iterdir()) if path.name not in before and record_file.name not in path.name]
