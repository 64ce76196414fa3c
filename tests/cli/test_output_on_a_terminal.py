"""Output of a run on a terminal: colours come through, what would steer the terminal is shown instead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

from stenotest.story import Story, single
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


def test_a_providers_texts_stay_on_their_line(tmp_path: Path) -> None:
    """Names, users and words of a provider neither begin a line of ours nor colour it."""
    hostile = "u\x1b[31m\x1b]0;pwn\x07\r\nfake line\x1b[2K"
    item = single("esc", "failed", "failed", reason="job_failed", job_reason=hostile)
    item["user"] = item["run_spec"]["configuration"]["image"] = hostile
    item["run_spec"]["run_name"] = f"esc{hostile}"
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    trace = Story().listed(item).write(tmp_path / "trace.jsonl")
    assert on_terminal(["import", str(trace)], cwd=tmp_path, env=environment).code == 0
    run_id = json.loads(on_terminal(["ps", "--all", "--json"], cwd=tmp_path, env=environment).terminal)["runs"][0][
        "run_id"
    ]
    for words in (["ps", "--all"], ["ps", "--all", "--wide"], ["show", run_id], ["timeline", run_id], ["incidents"]):
        code, text, _ = on_terminal(words, cwd=tmp_path, env=environment)
        assert code == 0, text
        assert [one for one in ("\x07", "u\x1b[31m", "\x1b[2K") if one in text] == [], words
        assert [line for line in text.splitlines() if line.startswith(("fake", "\x1b[2Kfake"))] == [], words
