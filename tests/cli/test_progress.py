"""Commands that read a long record or trace show how far they are, on a terminal only."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from stenotest.command_line import Steno
from stenotest.terminal import Shown, on_terminal

TRACE = Path(__file__).parents[1] / "traces" / "dstack-0.22.5" / "several.jsonl.zst"
AT_ONCE = """
import sys
from cli.wiring import output
from engine.replay import record
from events.store import verify
output.PATIENCE = 0
record._STEP = verify._CHUNK = 50
from cli.main import main
main()
"""
"""Steno that shows progress of short work too."""


def impatient(words: Sequence[str], **options: Any) -> "subprocess.Popen[Any]":
    return subprocess.Popen([sys.executable, "-c", AT_ONCE, *words], **options)


def shown(words: Sequence[object], home: Path, environment: Mapping[str, str]) -> Shown:
    """What it shows where standard error alone is a terminal."""
    return on_terminal([*map(str, words)], cwd=home, env=environment, streams=("stderr",), start=impatient)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("import", TRACE), "importing"),
        (("replay", TRACE), "replaying under current"),
        (("replay",), "replaying under current"),
        (("replay", "--diff", "2025-12-sdk"), "replaying under 2025-12-sdk"),
        (("export", "--trace", "all.jsonl"), "exporting"),
        (("verify",), "verifying"),
    ],
    ids=lambda value: " ".join(map(str, value)).replace(str(TRACE), "TRACE") if isinstance(value, tuple) else value,
)
@pytest.mark.usefixtures("record_file")
def test_long_reading_shows_progress_on_a_terminal(
    steno: Steno, home: Path, environment: dict[str, str], words: tuple[object, ...], what: str
) -> None:
    """A bar that grows and is gone at the end; the answer on standard output is the one without a terminal."""
    if words[0] != "import":
        assert steno("import", TRACE).returncode == 0
    environment["COLUMNS"] = "100"
    found = shown(words, home, environment)
    bars = [part for part in found.terminal.split("\r") if part.startswith(what)]
    shares = [int(bar.rstrip("%").split()[-1]) for bar in bars]
    assert len(shares) > 2
    assert shares == sorted(shares)
    assert 0 <= shares[0] < shares[-1] <= 100
    assert found.terminal.rstrip("\n").endswith("\r\x1b[K")
    assert what not in found.out

    (home / "record.db").rename(home / "of-the-terminal.db")
    if words[0] != "import":
        assert steno("import", TRACE).returncode == 0
    again = steno(*words)
    assert (again.returncode, again.stderr) == (found.code, "")
    assert words[0] == "verify" or again.stdout == found.out
