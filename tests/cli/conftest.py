"""The genuine command as a subprocess, in a home of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cli.testing import Steno


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home; also the current folder of every call."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def environment(home: Path) -> dict[str, str]:
    """What a call sees of the environment: nothing of the developer's own settings."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "STENO_RECORD": str(home / "record.db"),
        "STENO_API_PORT": "0",  # many run side by side
    }


@pytest.fixture
def steno(home: Path, environment: dict[str, str]) -> Steno:
    """`steno(*words)` runs the command to its end; its output is text, its record `home/record.db`."""

    def call(*words: object, stdin: str | None = None, **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "cli.main", *map(str, words)],
            cwd=home,
            env=environment | variables,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    return call
