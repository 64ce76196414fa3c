"""Output of a run on a terminal: colours come through, what would steer the terminal is shown instead."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

from stenotest.terminal import on_terminal

if TYPE_CHECKING:
    from pathlib import Path

STEERING = (
    "\x1b]52;c;aGVsbG8=\x07",  # writes into the clipboard
    "\x1b]0;title\x07",
    "\x1b]8;;http://evil.example\x1b\\link\x1b]8;;\x1b\\",
    "\x1b[2J\x1b[H",  # clears the screen
    "\x1b[6n\x1b[c",  # makes the terminal type an answer
    "\x1bP$q\x1b\\",
    "\x9b2J",
    "\x08\x08\x7f",
    "a\u202eb",
)


def test_a_run_does_not_steer_the_terminal(tmp_path: Path) -> None:
    """Its output is anybody's. Into a file it goes byte by byte, as it was."""
    said = "\x1b[31mred\x1b[0m\r\n\ttab " + " ".join(STEERING) + "\n"
    script = tmp_path / "says.py"
    script.write_bytes(b"import sys\nsys.stdout.buffer.write(%r)\n" % said.encode())
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    steno = [sys.executable, "-m", "cli.main"]

    def call(*words: str) -> bytes:
        return subprocess.run([*steno, *words], env=environment, cwd=tmp_path, capture_output=True, check=True).stdout

    call("submit", "--wait", "--name", "says", "--", f"{sys.executable} {script}")
    assert call("logs", "says") == said.encode()

    code, text, _ = on_terminal(["logs", "says"], cwd=tmp_path, env=environment, streams=("stdout",))
    assert code == 0
    assert "\x1b[31mred\x1b[0m\r" in text
    assert "\ttab" in text
    assert "\\x1b]52;c;aGVsbG8=\\x07" in text
    assert [one for one in STEERING if one in text] == []
    assert not {"\x07", "\x08", "\x7f", "\x9b", "\u202e"} & set(text)
    assert text.count("\x1b") == 2
